"""A run on several devices is the run on one; what is not, is refused."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from training import train
from training.recipes.recipe import named
from training.runs import distribution
from training.runs.distribution import Distribution

RECIPE = named("glyphs", pooling="gsp", regularizer="zsr").with_(
    classes_per_batch=4
)
ROOT = Path(__file__).parents[3]
ODD = "an even number of devices. Received: device:0"
# Engine, sentence, number of devices, recipe, training classes.
REFUSED = [
    ("data", ODD, 1, {}, None),
    ("model", ODD, 3, {}, None),
    ("data", "a multiple of 6 devices", 6, {"classes_per_batch": 5}, None),
    ("model", "training classes. Received: 9.", 4, {}, 9),
]


@pytest.fixture
def devices(monkeypatch):
    """Mocks JAX with devices."""

    def use(count):
        monkeypatch.setattr("keras.backend.backend", lambda: "jax")
        found = [f"device:{number}" for number in range(count)]
        monkeypatch.setattr(distribution, "devices_here", lambda: found)

    return use


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_what_cannot_be_split_is_refused(devices, row):
    kind, reason, count, settings, num_classes = row
    devices(count)
    with pytest.raises(ValueError, match=re.escape(reason)):
        Distribution(kind).check(RECIPE.with_(**settings), num_classes)


def test_what_can_work_passes_and_another_backend_is_refused(
    devices, monkeypatch, tmp_path
):
    devices(4)
    for kind in ("none", "data", "model"):
        Distribution(kind).check(RECIPE, num_classes=18)
    assert Distribution().settings == {}
    monkeypatch.setattr("keras.backend.backend", lambda: "other")
    with pytest.raises(SystemExit, match="other. Set KERAS_BACKEND=jax"):
        train.main(["glyphs", f"--runs={tmp_path}", "--distribution", "data"])
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_several_devices_take_the_steps_of_one(tmp_path, backend):
    path, env = tmp_path / "found.json", {"KERAS_BACKEND": backend}
    if backend == "jax":
        env["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
    # In a process of its own, which has several devices.
    subprocess.run(
        [sys.executable, "-m", "tests.training.runs.many_devices", path],
        **{"cwd": ROOT, "env": os.environ | env, "check": True, "timeout": 900},
    )
    for name, found in json.loads(path.read_text()).items():
        # To rounding: devices add up their parts in another order.
        assert found["moved"] > 1e-3 and found["gap"] < 2e-6, (name, found)
        # The weight and its momentum, half of each on a device.
        halves = [0.5, 0.5] if name.startswith("model") else []
        assert found["shares"] == halves, name
