"""Every benchmark runs at tiny sizes, and its record makes its page."""

import json
from concurrent.futures import ThreadPoolExecutor

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("most rivals are TensorFlow's", allow_module_level=True)

from training.research import report
from training.research.benchmarks import pooling, search, step_share
from training.research.benchmarks.__main__ import BENCHMARKS
from training.research.pages import pages
from training.research.report import run_measurement

RUNS = {
    search: ["faiss Flat", "ExactIndex", "plain product"],
    pooling: [pooling.UNIT, "gap", pooling.OURS],
    step_share: ["ResNet50", "GSP, compiled by XLA", "ZSR", "XML"],
}


def name_of(module):
    return module.__name__.rpartition(".")[2]


@pytest.mark.slow
@pytest.mark.parametrize("module", RUNS, ids=name_of)
def test_a_smoke_run_has_a_page(module, tmp_path, monkeypatch, capsys):
    # Contenders that are processes of their own run in this one.
    monkeypatch.setattr(
        report,
        "ProcessPoolExecutor",
        lambda count, _: ThreadPoolExecutor(count),
    )
    path = tmp_path / f"{name_of(module)}.json"
    run_measurement(module, ["--smoke", "--json", str(path)])
    record = json.loads(path.read_text())
    assert record["settings"]["smoke"] and "json" not in record["settings"]
    page = "".join(pages(tmp_path).values())
    printed = capsys.readouterr().out
    for word in RUNS[module]:
        assert word in page and word in printed
    command = (
        f"python -m training.research.benchmarks.{name_of(module)} --smoke"
    )
    assert f"    {command}\n" in page
    assert f"Measured on {record['device']}, load" in page
    assert str(tmp_path) not in path.read_text()


def test_every_benchmark_is_run_by_make_bench():
    assert {name_of(module) for module in RUNS} <= set(BENCHMARKS)


def test_every_pooling_of_a_recipe_is_a_contender():
    words = pooling.Settings().poolings
    assert {"gsp", "gap", "solar", "otk-large"} < {*words}
    assert {*words} < {*pooling.contenders(words, (2, 3, 3, 8, 2))}
