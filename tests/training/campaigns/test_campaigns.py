"""Short forms of the campaigns; the long ones are commands."""

import keras
import numpy as np
import pytest

from keras_gsp.retrieval import ExactIndex, export_retriever
from tests.retrieval.serving.served_artefact import small_encoder

if keras.backend.backend() != "tensorflow":
    pytest.skip("exports are TensorFlow's", allow_module_level=True)

from training.campaigns import fuzz, load


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    keras.utils.set_random_seed(0)
    folder = tmp_path_factory.mktemp("campaigns") / "retriever"
    rows = np.random.default_rng(0).normal(size=(30, 6))
    index = ExactIndex(rows, labels=np.arange(30) % 5)
    export_retriever(small_encoder(), index, folder, neighbors=3)
    return folder


def test_damaged_images_change_no_answer(exported, tmp_path, capsys):
    record = tmp_path / "fuzz.json"
    arguments = [str(exported), "--images", "120", "--json", str(record)]
    fuzz.main(arguments)
    assert "wrong_answers  0" in capsys.readouterr().out
    assert '"damaged_images": 120' in record.read_text()
    assert '"unnoticed_damages": 0' in record.read_text()


def test_many_threads_get_the_answers_of_one(exported, tmp_path):
    record = tmp_path / "load.json"
    options = ["--requests", "100", "--threads", "4", "--bad", "0.2"]
    load.main([str(exported), *options, "--json", str(record)])
    assert '"different_answers": 0' in record.read_text()


def test_an_export_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SystemExit, match="model"):
        load.main([str(tmp_path / "nothing")])
