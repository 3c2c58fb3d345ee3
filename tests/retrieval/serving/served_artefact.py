"""Encoders, encoded images, and questions to SavedModels."""

import subprocess
import sys
import textwrap

import keras
import numpy as np

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

    if sys.argv[3] == "scann":
        import scann

    def read(value):
        return tf.io.read_file(value) if tf.rank(value) == 0 else tf.stack(
            [read(one) for one in value]
        )

    models = {}
    with np.load(sys.argv[1]) as questions:
        for number, key in enumerate(questions.files):
            path, signature, *names = key.split("|")[:-1]
            path = path.replace("!", "/")
            if path not in models:
                models[path] = tf.saved_model.load(path)
            given = questions[key]
            if given.dtype.kind in "US":
                values = tf.constant(given.astype(object))
                values = tf.unstack(values) if len(names) > 1 else [values]
                values = [read(value) for value in values]
            else:
                values = [tf.constant(given)]
            answer = models[path].signatures[signature](
                **dict(zip(names, values))
            )
            arrays = {}
            for name, tensor in answer.items():
                arrays[name] = np.asarray(tensor.numpy())
                if tensor.dtype == tf.string:
                    texts = arrays[name].astype("S")
                    arrays[name] = np.char.decode(texts, "utf-8")
            np.savez(f"{sys.argv[2]}/{number}.npz", **arrays)
    assert "keras_gsp" not in sys.modules
"""


def ask_here(questions):
    """Asks SavedModels in this process; see `ask`."""
    import tensorflow as tf

    def read(files):
        contents = [open(file, "rb").read() for file in np.ravel(files)]
        return tf.reshape(tf.constant(contents), np.shape(files))

    models, answers = {}, []
    for path, signature, names, given in questions:
        if path not in models:
            models[path] = tf.saved_model.load(str(path))
        values = given if len(names) > 1 else [given]
        values = [
            read(value) if np.asarray(value).dtype.kind == "U" else value
            for value in values
        ]
        inputs = dict(zip(names, map(tf.constant, values), strict=True))
        answer = models[path].signatures[signature](**inputs)
        answers.append(
            {
                name: np.char.decode(
                    np.asarray(tensor.numpy()).astype("S"), "utf-8"
                )
                if tensor.dtype == tf.string
                else tensor.numpy()
                for name, tensor in answer.items()
            }
        )
    return answers


def ask(folder, questions, scann=False):
    """Asks SavedModels in one process that cannot import keras_gsp.

    Args:
        folder: where questions and answers are written.
        questions: tuples of path, signature, names of its inputs and their
            value: an array of file names to read, or of pixels; stacked for
            several inputs.
        scann: whether that process imports ScaNN.

    Returns:
        One dict of arrays for each question.
    """
    # "/" would make folders inside the archive.
    stored = {
        "|".join([str(path), signature, *names, str(i)]).replace(
            "/", "!"
        ): value
        for i, (path, signature, names, value) in enumerate(questions)
    }
    np.savez(folder / "questions.npz", **stored)
    answers = folder / "answers"
    answers.mkdir()
    arguments = [folder / "questions.npz", answers, "scann" if scann else ""]
    done = subprocess.run(
        [sys.executable, "-I", "-c", textwrap.dedent(ASK), *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    found = []
    for i in range(len(questions)):
        with np.load(answers / f"{i}.npz") as arrays:
            found.append(dict(arrays))
    return found


def write_files(folder):
    """Ten images of different sizes, JPEG and PNG in turn; their names."""
    import tensorflow as tf

    rng = np.random.default_rng(0)
    names = []
    for i in range(10):
        colors = rng.integers(0, 255, (4, 5 + i % 3, 3))
        photo = np.kron(colors, np.ones((9, 9, 1))).astype("uint8")
        encode = tf.io.encode_png if i % 2 else tf.io.encode_jpeg
        path = folder / (f"{i}.png" if i % 2 else f"{i}.jpg")
        path.write_bytes(encode(photo).numpy())
        names.append(str(path))
    return np.array(names)


def write_broken_files(folder, good):
    """Empty, random, truncated and damaged bytes; the names of the files."""
    contents = {path[-3:]: open(path, "rb").read() for path in good[:2]}
    flipped = bytearray(contents["png"])
    flipped[len(flipped) // 2] ^= 0xFF
    bad = [
        b"",
        np.random.default_rng(0).bytes(300),
        contents["jpg"][: len(contents["jpg"]) // 2],
        contents["png"][: len(contents["png"]) // 2],
        contents["jpg"][:10],
        bytes(flipped),
    ]
    names = []
    for i, content in enumerate(bad):
        path = folder / f"bad{i}"
        path.write_bytes(content)
        names.append(str(path))
    return np.array(names)


def pixels_of(files, size=24, resize=24):
    """Pixels of each file, as the evaluation pipeline prepares them."""
    batches = gsp.data.evaluation_batches(list(files), size=size, resize=resize)
    return np.concatenate(list(batches.as_numpy_iterator()))


def small_encoder(side=24, **options):
    """An encoder with GSP, images to 6 numbers."""
    backbone = keras.Sequential(
        [
            keras.Input((side, side, 3)),
            keras.layers.Rescaling(1 / 127.5, -1.0),
            keras.layers.Conv2D(8, 5, strides=4, activation="tanh"),
        ]
    )
    pooling = gsp.layers.GeneralizedSumPooling(
        4, prototype_initializer="random_normal", **options
    )
    return gsp.models.build_encoder(backbone, embedding_size=6, pooling=pooling)
