"""The benchmark of losses asks both sides for what it lists."""

import json
import re

import keras
import pytest

import keras_gsp as gsp
from training.benchmarks import losses

if keras.backend.backend() != "tensorflow":
    pytest.skip("the benchmark compiles by XLA", allow_module_level=True)

NAMES = losses.PAIR_LOSSES + losses.PROXY_LOSSES


def test_every_listed_loss_is_one_of_ours():
    from training.benchmarks.loss_contenders.gsp_losses import LOSSES

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


def test_a_kept_table_names_its_command_and_no_place(tmp_path):
    settings = losses.Settings(
        batch_sizes=(32,), pml_python=tmp_path, json=tmp_path / "losses.json"
    )
    losses.keep(settings, [["contrastive", *["1"] * 7]])
    record = json.loads(settings.json.read_text())
    assert record["command"].endswith("--pml-python PYTHON --batch-sizes 32")
    assert str(tmp_path) not in settings.json.read_text()
    assert record["headings"] == list(losses.HEADINGS)
