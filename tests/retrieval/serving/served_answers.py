"""Answers of SavedModels; as a program, in a process without keras_gsp.

A question is a tuple: path of the SavedModel, signature, files to read.
"""

import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np


def answers_here(questions):
    """Returns one dict of arrays for each question."""
    import tensorflow as tf

    def array(tensor):
        values = np.asarray(tensor.numpy())
        if tensor.dtype == tf.string:
            values = np.char.decode(values.astype("S"), "utf-8")
        return values

    models, answers = {}, []
    for path, signature, files in questions:
        if path not in models:
            models[path] = tf.saved_model.load(str(path))
        contents = [Path(file).read_bytes() for file in files]
        answer = models[path].signatures[signature](
            image_bytes=tf.constant(contents, "string")
        )
        answers.append({name: array(one) for name, one in answer.items()})
    return answers


def answers_elsewhere(folder, questions, *modules):
    """Answers of a process without keras_gsp, `modules` imported first."""
    path = folder / "questions"
    path.write_bytes(pickle.dumps((questions, modules)))
    done = subprocess.run(
        [sys.executable, "-I", __file__, path],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return pickle.loads(path.read_bytes())


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "keras_gsp":
            raise ImportError(f"{name} is not here")


if __name__ == "__main__":
    sys.meta_path.insert(0, Absent())
    asked, needed = pickle.loads(Path(sys.argv[1]).read_bytes())
    for module in needed:
        importlib.import_module(module)
    Path(sys.argv[1]).write_bytes(pickle.dumps(answers_here(asked)))
    assert "keras_gsp" not in sys.modules
