"""From a folder of photographs to scores and an export, in 25 lines."""

import json

import keras
import numpy as np
import pytest
from PIL import Image

if keras.backend.backend() != "tensorflow":
    pytest.skip("files are read by tf.data", allow_module_level=True)

SCRIPT = """
import keras
import keras_gsp as gsp

keras.utils.set_random_seed(0)
photos = gsp.data.image_folder("{folder}")
readable = gsp.data.readable_images(photos.paths, on_error="skip")
train, test = photos.subset(readable.indices).split()
cut = gsp.data.Preprocessing(size=32, resize=36)
indices = gsp.data.class_balanced_batches(
    train.labels, classes_per_batch=4, samples_per_class=2
)
batches = gsp.data.augmented_batches(
    train.paths, train.labels, indices, size=32, resize=36
)
gallery = gsp.data.evaluation_batches(
    test.paths, test.names, preprocessing=cut
)
image = keras.Input((32, 32, 3))
features = keras.layers.Conv2D(16, 3, 2)(keras.layers.Rescaling(1 / 255)(image))
pooled = gsp.layers.GeneralizedSumPooling(8)(features)
encoder = keras.Model(image, keras.layers.UnitNormalization()(pooled))
encoder.compile("adam", gsp.losses.MultiSimilarityLoss())
encoder.fit(batches, steps_per_epoch=4, shuffle=False, verbose=0)
index = gsp.retrieval.ExactIndex.from_encoder(encoder, gallery)
embeddings = encoder.predict(gallery, verbose=0)
scores = gsp.metrics.retrieval_scores(embeddings, test.names)
gsp.retrieval.export_retriever(encoder, index, "{export}")
"""


def test_the_script_has_at_most_25_statements_and_answers_by_name(tmp_path):
    import ast
    import warnings

    import tensorflow as tf

    folder, export = tmp_path / "photos", tmp_path / "export"
    rng = np.random.default_rng(0)
    for name in "abcdefgh":
        (folder / name).mkdir(parents=True)
        color = rng.integers(0, 200, 3)
        for number in range(4):
            pixels = color + rng.integers(0, 50, (40, 50, 3))
            picture = Image.fromarray(pixels.astype("uint8"))
            picture.save(folder / name / f"{number}.png")
    (folder / "a" / "9.webp.txt").write_text("no image")
    (folder / "b" / "9.jpg").write_bytes(b"\xff\xd8\xff nothing")
    code = SCRIPT.format(folder=folder, export=export)
    assert len(ast.parse(code).body) <= 25
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        names: dict = {}
        exec(compile(code, "script", "exec"), names)  # noqa: S102
    messages = [str(warning.message) for warning in caught]
    assert not any("shuffle" in message for message in messages)
    assert any("1 of 34 files" in m and "9.webp.txt" in m for m in messages)
    assert list(names["readable"].skipped) == [str(folder / "b" / "9.jpg")]
    assert names["scores"]["num_queries"] == 16
    # A served query with the bytes of a gallery item finds that item.
    served = tf.saved_model.load(str(export))
    test = names["test"]
    with open(test.paths[5], "rb") as file:
        contents = tf.constant([file.read()])
    found = served.signatures["serving_default"](contents)
    found = {key: value.numpy() for key, value in found.items()}
    assert json.dumps(sorted(found))
    labels = found["labels"][0].tolist()
    assert labels[0].decode() == test.names[5]
    assert found["distances"][0, 0] < 1e-3 or found["scores"][0, 0] > 0.999
