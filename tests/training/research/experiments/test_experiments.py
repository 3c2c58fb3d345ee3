"""Every experiment runs at tiny sizes, writes both files, repeats itself."""

import json

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("experiments train on TensorFlow", allow_module_level=True)

from training.research.experiments import (
    collage,
    dominant_prototypes,
    gap_as_prototypes,
    gradient_cost,
    solver_rounds,
    sweep,
    synthetic_tokens,
    transport_toy,
    zero_shot_prediction,
)
from training.research.results.pages import pages

EXPERIMENTS = [
    transport_toy,
    gradient_cost,
    synthetic_tokens,
    gap_as_prototypes,
]
SLOW = [
    zero_shot_prediction,
    dominant_prototypes,
    collage,
    solver_rounds,
    sweep,
]
TIMED = ("milliseconds", "megabytes")


def name_of(module):
    return module.__name__.rpartition(".")[2]


def report_of(module, folder):
    record = folder / "docs" / f"{name_of(module)}.json"
    module.main(["--smoke", "--out", str(folder), "--json", str(record)])
    return json.loads((folder / f"{name_of(module)}.json").read_text())


@pytest.fixture(
    scope="module",
    params=[
        *EXPERIMENTS,
        *(pytest.param(module, marks=pytest.mark.slow) for module in SLOW),
    ],
    ids=name_of,
)
def smoke_run(request, tmp_path_factory):
    """An experiment, the folder it wrote into, and its report."""
    folder = tmp_path_factory.mktemp(name_of(request.param))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_GSP_CACHE", str(folder / "cache"))
        return request.param, folder, report_of(request.param, folder)


def without_times(content):
    if isinstance(content, dict):
        return {
            key: without_times(value)
            for key, value in content.items()
            if key not in TIMED
        }
    if isinstance(content, list):
        return [without_times(value) for value in content]
    return content


def test_a_smoke_run_writes_numbers_and_a_picture(smoke_run):
    module, folder, report = smoke_run
    assert report["results"]
    assert report["settings"]["smoke"] is True
    assert report["environment"]["packages"]["keras"] == keras.__version__
    picture = folder / f"{name_of(module)}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_kept_record_has_a_page(smoke_run):
    module, folder, report = smoke_run
    page = pages(folder / "docs")[f"{name_of(module)}.md"]
    assert module.table(report["results"]) in page
    assert "smoke True" in page and str(folder) not in page


@pytest.mark.slow
def test_a_second_run_gives_the_same_numbers(
    smoke_run, tmp_path, monkeypatch, capsys
):
    module, _, first = smoke_run
    monkeypatch.setenv("KERAS_GSP_CACHE", str(tmp_path / "cache"))
    second = report_of(module, tmp_path)
    assert without_times(first["results"]) == without_times(second["results"])
    printed = capsys.readouterr().out
    assert "seeds=" in printed and "keras" in printed and " s; " in printed
