"""The benchmark of losses asks both sides for what it lists."""

import re

import keras
import pytest

import keras_gsp as gsp
from training.research.benchmarks import losses
from training.research.pages import pages

if keras.backend.backend() != "tensorflow":
    pytest.skip("the benchmark compiles by XLA", allow_module_level=True)

NAMES = losses.PAIR_LOSSES + losses.PROXY_LOSSES


def test_every_listed_loss_is_one_of_ours():
    from training.research.benchmarks.loss_contenders.gsp_losses import LOSSES

    assert sorted(LOSSES) == sorted(NAMES)
    for name, loss in LOSSES.items():
        assert isinstance(loss(), gsp.losses.MetricLoss), name


def test_the_other_side_knows_no_loss_that_is_not_listed():
    source = (losses.CONTENDERS / "pml_losses.py").read_text()
    known = re.findall(r'^    "(\w+)":', source, re.MULTILINE)
    assert len(known) >= 20
    assert set(known) <= set(NAMES)


def test_cases_fit_what_the_losses_can_take():
    cases = losses.list_cases(losses.Settings())
    for case in cases:
        assert case["batch_size"] <= losses.LARGEST_BATCH.get(case["loss"], 512)
        assert (case["num_classes"] > 0) == (
            case["loss"] in losses.PROXY_LOSSES
        )
        if case["loss"] == "smooth_ap":
            assert case["batch_size"] == case["samples_per_class"] ** 2


def test_what_differs_is_named_and_kept(tmp_path, monkeypatch):
    """A table is printed and makes a page, and the command fails all the same.

    The contenders, processes of their own, are not started here.
    """
    found = {
        "ours": {"value": 1.0, "seconds": [1.0]},
        "theirs": {"value": 1.1, "seconds": [2.0]},
        "gradient_difference": 0.0,
    }
    monkeypatch.setattr(losses, "compare", lambda cases, _: [found] * 3)
    with pytest.raises(SystemExit, match="contrastive at a batch of 16, "):
        losses.main(["--smoke", "--json", str(tmp_path / "losses.json")])
    page = pages(tmp_path)["losses.md"]
    for word in ("proxy_nca", "2e+03", "9.1e-02", "losses --smoke"):
        assert word in page
