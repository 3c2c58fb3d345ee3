"""The benchmark of losses asks both sides for what it lists."""

import keras
import pytest

import keras_gsp as gsp
from training.research.benchmarks import losses
from training.research.pages import pages
from training.research.report import run_measurement

if keras.backend.backend() != "tensorflow":
    pytest.skip("the benchmark compiles by XLA", allow_module_level=True)

NAMES = losses.exported_losses()


def test_every_exported_loss_is_found():
    for name in ("ContrastiveLoss", "SmoothAPLoss", "SoftTripleLoss"):
        assert name in NAMES
    assert len(NAMES) == len(set(NAMES)) >= 23
    for name in NAMES:
        assert isinstance(losses.build_loss(name), gsp.losses.MetricLoss), name
    # The other side knows no loss that is not exported.
    assert len(losses.THEIRS) >= 20 and {*losses.THEIRS} <= {*NAMES}


def test_what_differs_is_named_and_kept(tmp_path, monkeypatch):
    """A table is printed and makes a page, and the command fails all the same.

    The contenders are not started here.
    """

    def step(value):
        return lambda loss, labels, arrays, *_: lambda: (value, arrays)

    monkeypatch.setattr(losses, "HAS_THEIRS", True)
    monkeypatch.setattr(losses, "our_step", step(1.0))
    monkeypatch.setattr(losses, "their_step", step(1.1))
    with pytest.raises(SystemExit, match="ContrastiveLoss at a batch of 16, "):
        run_measurement(
            losses, ["--smoke", "--json", str(tmp_path / "losses.json")]
        )
    page = pages(tmp_path)["losses.md"]
    for word in ("ProxyNCALoss", "9.1e-02 | 0.0e+00", "losses --smoke"):
        assert word in page
