"""The experiments on alternating proxies run at tiny sizes."""

import json

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("experiments train on TensorFlow", allow_module_level=True)

from training.experiments import alternating_proxies, proxy_geometry


def results_of(module, folder):
    module.main(["--smoke", "--out", str(folder)])
    name = module.__name__.rpartition(".")[2]
    assert (folder / f"{name}.png").stat().st_size > 10_000
    report = json.loads((folder / f"{name}.json").read_text())
    return report["results"]


def test_proxy_geometry_measures_and_draws_every_problem(tmp_path, capsys):
    results = results_of(proxy_geometry, tmp_path)
    names = [row["name"] for row in results["rows"]]
    assert names == ["single problem", "CCP, problem 1", "CCP, problem 2"]
    assert names == list(results["panels"])
    for row in results["rows"]:
        for measure in proxy_geometry.MEASURES:
            assert row[measure]["mean"] > 0.0
    assert results["panels"]["CCP, problem 1"]["next_proxies"] is not None
    assert "covering radius" in capsys.readouterr().out


@pytest.mark.slow
def test_alternating_proxies_compares_three_methods(tmp_path, capsys):
    results = results_of(alternating_proxies, tmp_path)
    problems = [row["problems"]["mean"] for row in results["rows"]]
    assert problems[:2] == [0.0, 1.0]
    assert problems[2] >= 1.0
    for row in results["rows"]:
        assert 0.0 <= row["map_at_r"]["mean"] <= 1.0
    assert results["cost"]["ratio"] > 0.0
    assert "times a plain one" in capsys.readouterr().out
