"""An encoder, encoded images, and a process without keras_gsp."""

import subprocess
import sys
import textwrap

import keras
import numpy as np
import pytest

import keras_gsp as gsp

# Loads a SavedModel with nothing but TensorFlow and writes every answer down.
ASK = """
    import sys

    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] == "keras_gsp":
                raise ImportError(f"{name} is not here")

    sys.meta_path.insert(0, Absent())
    import numpy as np
    import tensorflow as tf

    if sys.argv[4] == "scann":
        import scann

    def read(value):
        return tf.io.read_file(value) if tf.rank(value) == 0 else tf.stack(
            [read(one) for one in value]
        )

    model = tf.saved_model.load(sys.argv[1])
    with np.load(sys.argv[2]) as questions:
        for number, key in enumerate(questions.files):
            signature, *names = key.split("|")[:-1]
            given = questions[key]
            if given.dtype.kind in "US":
                values = tf.constant(given.astype(object))
                values = tf.unstack(values) if len(names) > 1 else [values]
                values = [read(value) for value in values]
            else:
                values = [tf.constant(given)]
            answer = model.signatures[signature](
                **dict(zip(names, values))
            )
            arrays = {}
            for name, tensor in answer.items():
                arrays[name] = np.asarray(tensor.numpy())
                if tensor.dtype == tf.string:
                    texts = arrays[name].astype("S")
                    arrays[name] = np.char.decode(texts, "utf-8")
            np.savez(f"{sys.argv[3]}/{number}.npz", **arrays)
    assert "keras_gsp" not in sys.modules
"""


@pytest.fixture
def ask(tmp_path):
    """ask(path, [(signature, names, value)...]) -> a dict for each."""

    def asked(path, questions, scann=False):
        stored = {
            "|".join([signature, *names, str(i)]): value
            for i, (signature, names, value) in enumerate(questions)
        }
        np.savez(tmp_path / "questions.npz", **stored)
        answers = tmp_path / "answers"
        answers.mkdir(exist_ok=True)
        done = subprocess.run(
            [
                sys.executable,
                "-I",
                "-c",
                textwrap.dedent(ASK),
                str(path),
                str(tmp_path / "questions.npz"),
                str(answers),
                "scann" if scann else "",
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        found = []
        for i in range(len(questions)):
            with np.load(answers / f"{i}.npz") as arrays:
                found.append(dict(arrays))
        return found

    return asked


@pytest.fixture
def encoder():
    """A small encoder with GSP: 24 x 24 pixels to 6 numbers."""
    backbone = keras.Sequential(
        [
            keras.Input((24, 24, 3)),
            keras.layers.Rescaling(1 / 127.5, -1.0),
            keras.layers.Conv2D(8, 5, strides=4, activation="tanh"),
        ]
    )
    return gsp.models.build_encoder(
        backbone,
        embedding_size=6,
        pooling=gsp.layers.GeneralizedSumPooling(
            4, prototype_initializer="random_normal"
        ),
    )


@pytest.fixture
def photos():
    """Ten images of different sizes, uint8."""
    rng = np.random.default_rng(0)
    return [
        np.kron(
            rng.integers(0, 255, (4, 5 + i % 3, 3)), np.ones((9, 9, 1))
        ).astype("uint8")
        for i in range(10)
    ]


@pytest.fixture
def files(photos, tmp_path):
    """The images as files, PNG and JPEG in turn; a NumPy array of names."""
    tf = pytest.importorskip("tensorflow")
    names = []
    for i, photo in enumerate(photos):
        encode = tf.io.encode_png if i % 2 else tf.io.encode_jpeg
        path = tmp_path / (f"{i}.png" if i % 2 else f"{i}.jpg")
        path.write_bytes(encode(photo).numpy())
        names.append(str(path))
    return np.array(names)


@pytest.fixture
def pixels(files):
    """What the encoder is given for each file, by the evaluation pipeline."""
    batches = gsp.data.evaluation_batches(list(files), size=24, resize=24)
    return np.concatenate(list(batches.as_numpy_iterator()))
