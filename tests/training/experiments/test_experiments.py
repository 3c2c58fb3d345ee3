"""Every experiment runs at tiny sizes, writes both files, repeats itself."""

import json

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("experiments train on TensorFlow", allow_module_level=True)

from training.experiments import (
    gap_as_prototypes,
    gradient_cost,
    synthetic_tokens,
    transport_toy,
)

EXPERIMENTS = [
    transport_toy,
    gradient_cost,
    synthetic_tokens,
    gap_as_prototypes,
]
TIMED = ("milliseconds", "megabytes")


def name_of(module):
    return module.__name__.rpartition(".")[2]


def report_of(module, folder):
    module.main(["--smoke", "--out", str(folder)])
    return json.loads((folder / f"{name_of(module)}.json").read_text())


@pytest.fixture(scope="module", params=EXPERIMENTS, ids=name_of)
def smoke_run(request, tmp_path_factory):
    """An experiment, the folder it wrote into, and its report."""
    folder = tmp_path_factory.mktemp(name_of(request.param))
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


@pytest.mark.slow
def test_a_second_run_gives_the_same_numbers(smoke_run, tmp_path, capsys):
    module, _, first = smoke_run
    second = report_of(module, tmp_path)
    assert without_times(first["results"]) == without_times(second["results"])
    printed = capsys.readouterr().out
    assert "seeds=" in printed and "keras" in printed and " s; " in printed
