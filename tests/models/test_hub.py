"""Saving to and loading from a hub of models; a folder stands in for it."""

import getpass
import pathlib
import shutil
import socket
import types

import keras
import numpy as np
import pytest
from keras.src.saving import saving_lib

import keras_gsp as gsp


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The calls of huggingface_hub that Keras makes, on a folder."""

    class Api:
        def __init__(self, **options):
            pass

        def create_repo(self, name, exist_ok):
            (tmp_path / name).mkdir(parents=True, exist_ok=exist_ok)
            # A repository of the hub has this file from the start.
            (tmp_path / name / ".gitattributes").write_text("*.h5 lfs\n")
            return types.SimpleNamespace(repo_id=name)

        def upload_folder(self, repo_id, folder_path, commit_message):
            target = tmp_path / repo_id
            shutil.copytree(folder_path, target, dirs_exist_ok=True)

    standin = types.SimpleNamespace(
        HfApi=Api,
        snapshot_download=lambda repo_id, **options: str(tmp_path / repo_id),
    )
    monkeypatch.setattr(saving_lib, "huggingface_hub", standin)
    monkeypatch.setattr(saving_lib, "check_pydot", lambda: False)
    return tmp_path


def check_nothing_private(folder):
    private = {str(pathlib.Path.home()), str(folder), socket.gethostname()}
    private |= {str(pathlib.Path.cwd()), getpass.getuser() + "@"}
    for file in folder.rglob("*"):
        if file.suffix in (".json", ".md"):
            text = file.read_text()
            assert not [word for word in private if word in text], file


def test_an_encoder_comes_back_with_its_preprocessing(hub):
    cut = gsp.data.Preprocessing(8, 9)
    saved = gsp.models.build_encoder(
        keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3)]),
        embedding_size=5,
        pooling=gsp.layers.GeneralizedSumPooling(4),
        preprocessing=cut,
    )
    saved.save("hf://someone/retriever")
    folder = hub / "someone" / "retriever"
    names = {file.name for file in folder.iterdir()}
    assert {"config.json", "metadata.json", "model.weights.h5"} <= names
    check_nothing_private(folder)
    # A card of our own in place of Keras's: more files than Keras wrote.
    (folder / "README.md").write_text("---\nlibrary_name: keras\n---\n")
    found = keras.saving.load_model("hf://someone/retriever")
    images = np.random.default_rng(0).uniform(0, 255, (3, 8, 8, 3))
    np.testing.assert_allclose(found(images), saved(images), rtol=1e-7)
    assert gsp.data.preprocessing_of(found) == cut
