"""Every benchmark runs at tiny sizes, and its record makes its page."""

import json
from concurrent.futures import ThreadPoolExecutor

import keras
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("most rivals are TensorFlow's", allow_module_level=True)

from keras_gsp.losses.metric_loss import MetricLoss
from training.research import report
from training.research.benchmarks import (
    digits,
    losses,
    pooling,
    search,
    step_share,
)
from training.research.benchmarks.__main__ import BENCHMARKS
from training.research.pages import pages
from training.research.report import run_measurement

RUNS = {
    digits: ["a plain product", "GSP, sharp", "a row from itself"],
    search: ["faiss Flat", "plain product", "memory to search, GB"],
    pooling: [pooling.UNIT, "gap", pooling.OURS],
    losses: ["ContrastiveLoss", "ProxyNCALoss", "pytorch-metric-learning"],
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
    command = f"training.research.benchmarks.{name_of(module)} --smoke\n"
    assert f"    python -m {command}" in page
    assert f"Measured on {record['device']}, load" in page
    assert str(tmp_path) not in path.read_text()


def test_every_pooling_and_every_loss_is_measured_by_make_bench():
    # Reading writes photographs of up to 24 megapixels.
    assert {*map(name_of, RUNS), "reading"} == {*BENCHMARKS}
    words = pooling.Settings().poolings
    assert {*words} < {*pooling.contenders(words, (2, 3, 3, 8, 2))}
    for name in losses.NAMES:
        assert isinstance(losses.build_loss(name), MetricLoss), name
    # The other side knows no loss that is not exported.
    assert {*losses.THEIRS} <= {*losses.NAMES}


def test_losses_that_differ_are_named_and_kept(tmp_path, monkeypatch):
    """A table makes a page, and the command fails all the same."""

    def step(value):
        return lambda loss, labels, arrays, *_: lambda: (value, arrays)

    monkeypatch.setattr(losses, "HAS_THEIRS", True)
    monkeypatch.setattr(losses, "our_step", step(1.0))
    monkeypatch.setattr(losses, "their_step", step(1.1))
    path = tmp_path / "losses.json"
    with pytest.raises(SystemExit, match="ContrastiveLoss at a batch of 16, "):
        run_measurement(losses, ["--smoke", "--json", str(path)])
    assert "9.1e-02 | 0.0e+00" in pages(tmp_path)["losses.md"]
