"""An export answers clients at once, whatever damaged images come beside.

    python -m pytest -m slow tests/endurance/test_served_requests.py \\
        --requests 10000
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from tests.retrieval.serving.served_artefact import small_encoder, write_files

if keras.backend.backend() != "tensorflow":
    pytest.skip("exports are TensorFlow's", allow_module_level=True)


def damaged(generator, content):
    """An image with random bytes in its header or anywhere, or truncated."""
    content = bytearray(content)
    reach = generator.choice([min(64, len(content)), len(content)])
    for _ in range(int(generator.integers(1, 10))):
        content[generator.integers(reach)] = generator.integers(256)
    end = len(content) if generator.random() < 0.7 else generator.integers(500)
    return bytes(content[:end])


@pytest.mark.slow
def test_damaged_images_change_no_answer_to_a_whole_one(tmp_path, request):
    import tensorflow as tf

    rows = np.random.default_rng(0).normal(size=(30, 6))
    index = gsp.retrieval.ExactIndex(rows, labels=np.arange(30) % 5)
    path = tmp_path / "served"
    gsp.retrieval.export_retriever(small_encoder(), index, path, neighbors=3)
    search = tf.saved_model.load(path).signatures["search"]
    whole = [Path(file).read_bytes() for file in write_files(tmp_path)]

    def answers(contents):
        answer = search(image_bytes=tf.constant(contents))
        ids, status = answer["ids"].numpy(), answer["status"].numpy()
        return [(a.tolist(), s) for a, s in zip(ids, status, strict=True)]

    expected = answers(whole)

    def num_refused(seed):
        generator = np.random.default_rng(seed)
        contents = whole + [damaged(generator, content) for content in whole]
        order = generator.permutation(len(contents))
        answered = answers([contents[number] for number in order])
        answered = [answered[number] for number in np.argsort(order)]
        assert answered[: len(whole)] == expected
        refused = 0
        for content in contents[len(whole) :]:
            try:
                gsp.data.decode_image(content, max_pixels=1_000_000)
            except ValueError:
                refused += 1
        return refused + sum(status != b"ok" for _, status in answered)

    rounds = max(1, request.config.getoption("--requests") // len(whole))
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(num_refused, range(rounds))) > 3 * rounds
