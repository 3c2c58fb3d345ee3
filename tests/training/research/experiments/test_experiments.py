"""Every experiment runs at tiny sizes and leaves a record with a page."""

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("experiments train on TensorFlow", allow_module_level=True)

from training.research.experiments import (
    dominant_prototypes,
    gap_as_prototypes,
    proxy_geometry,
    solver_rounds,
    synthetic_tokens,
    transport_toy,
    zero_shot_prediction,
)
from training.research.pages import pages
from training.research.report import read_record

pytestmark = pytest.mark.slow
EXPERIMENTS = (
    dominant_prototypes,
    gap_as_prototypes,
    proxy_geometry,
    solver_rounds,
    synthetic_tokens,
    transport_toy,
    zero_shot_prediction,
)


@pytest.mark.parametrize(
    "module", EXPERIMENTS, ids=lambda m: m.__name__.rpartition(".")[2]
)
def test_a_smoke_run_repeats_itself_and_has_a_page(
    module, tmp_path, monkeypatch
):
    name = module.__name__.rpartition(".")[2]
    monkeypatch.setenv("KERAS_GSP_CACHE", str(tmp_path / "cache"))
    records = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        path = folder / "docs" / f"{name}.json"
        module.main(["--smoke", "--out", str(folder), "--json", str(path)])
        records.append(read_record(path))
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        page = pages(path.parent)[f"{name}.md"]
        assert module.table(records[-1]["results"]) in page
        assert f"({name}.png)" in page and str(folder) not in page
    if name != "solver_rounds":  # It measures time.
        assert records[0]["results"] == records[1]["results"]


def test_planted_errors_are_found_in_noise(tmp_path):
    from training.research.experiments import planted_errors

    path = tmp_path / "planted_errors.json"
    planted_errors.main(["--smoke", "--json", str(path)])
    (table,) = read_record(path)["tables"]
    assert len(table["rows"]) == 2 * len(planted_errors.KINDS)
    assert planted_errors.KINDS.keys() == {row[0] for row in table["rows"]}
    page = pages(path.parent)["robustness.md"]
    assert "| copy, encoded again | whitened |" in page
