"""Short forms of the campaigns; the long ones are commands."""

import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.retrieval import ExactIndex, export_retriever
from tests.retrieval.serving.served_artefact import small_encoder

if keras.backend.backend() != "tensorflow":
    pytest.skip("exports are TensorFlow's", allow_module_level=True)

from training.research.campaigns import damage, fuzz, load
from training.research.report import run_measurement

pytestmark = pytest.mark.slow
ROOT = pathlib.Path(__file__).parents[4]


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
    options = ["--images", "120", "--json", str(record)]
    run_measurement(fuzz, ["--model", str(exported), *options])
    assert "| wrong answers | 0 |" in capsys.readouterr().out
    kept = json.loads(record.read_text())
    assert kept["kind"] == "campaign"
    assert ["damaged images", "120"] in kept["tables"][0]["rows"]


def test_many_threads_get_the_answers_of_one(exported, tmp_path):
    record = tmp_path / "load.json"
    options = ["--requests", "100", "--threads", "4", "--reloads", "2"]
    run_measurement(
        load, ["--model", str(exported), *options, "--json", str(record)]
    )
    (table,) = json.loads(record.read_text())["tables"]
    assert ["different answers", "0"] in table["rows"]
    assert ["reloads", "2"] in table["rows"]


def test_damaged_artefacts_are_refused_or_whole(exported, tmp_path):
    record = tmp_path / "damage.json"
    options = ["--flips", "9", "--times", "2", "--json", str(record)]
    run_measurement(damage, ["--model", str(exported), *options])
    (table,) = json.loads(record.read_text())["tables"]
    assert {row[0] for row in table["rows"]} > {"checkpoint", "export"}


def test_damage_that_nobody_notices_is_counted(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(f"content of {name}")
    found = damage.damage(
        tmp_path / "one",
        tmp_path / "two",
        lambda folder: (folder / "file").read_bytes(),
        4,
        3,
        np.random.default_rng(0),
    )
    assert found["refused"] == 1  # A missing file.
    assert found["silently wrong"] == 4 + 3 * 3 + 1
    assert not found["whole"]


def test_a_search_that_the_export_lacks_is_named(exported):
    pytest.importorskip("scann")
    options = ["--requests", "2", "--signatures", "search_ann"]
    with pytest.raises(SystemExit, match="search_exact.*search_ann"):
        run_measurement(load, ["--model", str(exported), *options])


def test_an_export_with_scann_loads_where_nothing_imported_scann(tmp_path):
    pytest.importorskip("scann")
    rng = np.random.default_rng(0)
    rows, images = rng.normal(size=(300, 6)), rng.uniform(size=(9, 24, 24, 3))
    index = gsp.retrieval.ScannIndex(rows, labels=np.arange(300) % 5)
    folder = tmp_path / "retriever"
    export_retriever(
        small_encoder(),
        index,
        folder,
        neighbors=3,
        held_out=(255 * images, np.arange(9) % 5),
        minimum_recall=0.1,
    )
    record = tmp_path / "load.json"
    command = [sys.executable, "-m", "training.research.campaigns.load"]
    command += ["--model", str(folder), "--json", str(record)]
    command += ["--requests", "40", "--reloads", "1"]
    command += ["--signatures", "search_exact", "search_ann"]
    subprocess.run(command, check=True, cwd=ROOT)
    tables = json.loads(record.read_text())["tables"]
    assert [one["title"] for one in tables] == ["search_exact", "search_ann"]
    for table in tables:
        assert ["different answers", "0"] in table["rows"]
