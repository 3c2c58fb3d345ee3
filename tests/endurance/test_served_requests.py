"""An export answers many clients, damaged images and reloads alike.

    python -m pytest -m slow tests/endurance/test_served_requests.py \\
        --requests 10000
"""

import io
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
from PIL import Image

import keras_gsp as gsp
from tests.retrieval.serving.served_artefact import small_encoder

if keras.backend.backend() != "tensorflow":
    pytest.skip("exports are TensorFlow's", allow_module_level=True)

import tensorflow as tf

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    keras.utils.set_random_seed(0)
    folder = tmp_path_factory.mktemp("served") / "retriever"
    rows = np.random.default_rng(0).normal(size=(30, 6))
    index = gsp.retrieval.ExactIndex(rows, labels=np.arange(30) % 5)
    gsp.retrieval.export_retriever(small_encoder(), index, folder, neighbors=3)
    return folder


def whole_images(generator):
    """Twenty small images in four formats, some of them with Exif."""
    images = []
    for number in range(20):
        colors = generator.integers(0, 256, (6, 6 + number % 3, 3))
        pixels = np.kron(colors, np.ones((8, 8, 1))).astype("uint8")
        file, exif = io.BytesIO(), Image.Exif()
        exif[0x0112] = 1 + number % 8
        name = ("JPEG", "PNG", "BMP", "WEBP")[number % 4]
        Image.fromarray(pixels).save(file, name, exif=exif)
        images.append(file.getvalue())
    return images


def damaged(generator, whole):
    """An image with random bytes: truncated, joined, overwritten."""
    content = bytearray(whole[generator.integers(len(whole))])
    way, position = generator.integers(4), generator.integers(len(content))
    if way == 0:
        return generator.bytes(int(position))
    if way == 1:
        other = whole[generator.integers(len(whole))]
        return bytes(content[:position]) + other[position:]
    # Headers are hit as often as pixels: that is where decoders break.
    reach = min(64 if way == 2 else len(content), len(content))
    for _ in range(int(generator.integers(1, 10))):
        content[generator.integers(reach)] = generator.integers(256)
    return bytes(content)


def answers(model, contents):
    found = model.signatures["search"](image_bytes=tf.constant(contents))
    ids, status = found["ids"].numpy(), found["status"].numpy()
    return [(a.tolist(), s) for a, s in zip(ids, status, strict=True)]


def test_damaged_images_change_no_answer_to_a_whole_one(exported, request):
    wanted = request.config.getoption("--requests")
    generator = np.random.default_rng(0)
    model, whole = tf.saved_model.load(exported), whole_images(generator)
    expected, num_refused = answers(model, whole), 0
    for _ in range(-(-wanted // 24)):
        chosen = generator.integers(len(whole), size=8)
        bad = [damaged(generator, whole) for _ in range(24)]
        contents = bad + [whole[one] for one in chosen]
        order = generator.permutation(len(contents))
        found = answers(model, [contents[one] for one in order])
        found = [found[one] for one in np.argsort(order)]
        assert found[24:] == [expected[one] for one in chosen]
        num_refused += sum(status != b"ok" for _, status in found[:24])
        for content in bad:
            try:
                gsp.data.decode_image(content, max_pixels=1_000_000)
            except ValueError:
                num_refused += 1
    assert num_refused > wanted // 4


def test_many_threads_and_reloads_get_the_answers_of_one(exported, request):
    wanted = request.config.getoption("--requests")
    generator = np.random.default_rng(0)
    whole = whole_images(generator)
    contents = whole + [damaged(generator, whole) for _ in range(5)]
    served = {"model": tf.saved_model.load(exported)}
    expected = [answers(served["model"], [one]) for one in contents]
    chosen = generator.integers(len(contents), size=wanted)

    def ask(number):
        if number % max(1, wanted // 3) == wanted // 6:
            model = tf.saved_model.load(exported)
            answers(model, contents[:1])
            served["model"] = model
        which = chosen[number]
        return answers(served["model"], [contents[which]]) == expected[which]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(wanted)))
