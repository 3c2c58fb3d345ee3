"""A run on several devices is the run on one; what is not, is refused."""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.runs.many_devices import CASES, CUT_BY_CLASS
from training import train
from training.recipes.named import named
from training.runs import distribution
from training.runs.distribution import Distribution

RECIPE = named("glyphs", pooling="gsp", regularizer="zsr").with_(
    classes_per_batch=4
)
ROOT = Path(__file__).parents[3]


@pytest.fixture
def engine(monkeypatch):
    """Mocks a backend with devices."""
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("KERAS_DISTRIBUTION_NUM_PROCESSES", raising=False)

    def use(kind, num_devices=4):
        backend = distribution.BACKENDS[kind]
        monkeypatch.setattr("keras.backend.backend", lambda: backend)
        devices = [f"device:{number}" for number in range(num_devices)]
        monkeypatch.setattr(distribution, "devices_of", lambda kind: devices)

    return use


@pytest.mark.parametrize("kind", ["data", "model", "mirrored"])
def test_what_can_work_passes_and_another_backend_is_refused(
    engine, monkeypatch, kind
):
    engine(kind)
    Distribution(kind).check(RECIPE, num_classes=18)
    # One device is never refused.
    monkeypatch.setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "2")
    Distribution().check(RECIPE)
    assert Distribution().settings == {}
    monkeypatch.setattr("keras.backend.backend", lambda: "other")
    with pytest.raises(ValueError, match="other. Set KERAS_BACKEND="):
        Distribution(kind).check(RECIPE)


SINGLE = "needs 2 devices or more. Received: device:0."
MESH = "divide the 4 devices. Received: model_devices={}."
# Engine, sentence, number of devices, recipe, environment, arguments.
REFUSED = [
    *((kind, SINGLE, 1, {}, {}, {}) for kind in ("data", "model", "mirrored")),
    ("data", "cut evenly by 3 devices", 3, {}, {}, {}),
    ("mirrored", "cut evenly by 3 devices", 3, {}, {}, {}),
    ("data", "4 devices and its chunks", 4, {"batch_chunks": 8}, {}, {}),
    *(
        ("model", MESH.format(n), 4, {}, {}, {"model_devices": n})
        for n in (0, 1, 3)
    ),
    ("model", "training classes, 9.", 4, {}, {}, {"num_classes": 9}),
    ("model", "a recipe with neither", 4, {"regularizer": "none"}, {}, {}),
    ("mirrored", "jit_compile=True.", 4, {"jit_compile": True}, {}, {}),
    *(
        ("mirrored", f"Received: {name}=2. Unset it", 4, {}, {name: "2"}, {})
        for name in ("TF_CONFIG", "KERAS_DISTRIBUTION_NUM_PROCESSES")
    ),
    (
        *("mirrored", "log_regularizer_share=True.", 4),
        *({"log_regularizer_share": True}, {}, {}),
    ),
]


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_what_an_engine_cannot_do_is_refused(engine, monkeypatch, row):
    kind, reason, num_devices, settings, environment, arguments = row
    engine(kind, num_devices)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    num_classes = arguments.get("num_classes")
    with pytest.raises(ValueError, match=re.escape(reason)):
        cut = {k: v for k, v in arguments.items() if k != "num_classes"}
        Distribution(kind, **cut).check(RECIPE.with_(**settings), num_classes)


def test_the_command_refuses_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("keras.backend.backend", lambda: "other")
    with pytest.raises(SystemExit, match="needs the backend jax"):
        train.main(["glyphs", f"--runs={tmp_path}", "--distribution", "data"])
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def found_on(tmp_path_factory):
    """Comparisons in processes of their own, which have several devices."""

    @functools.cache
    def run(backend):
        path = tmp_path_factory.mktemp("devices") / "found.json"
        module = "tests.training.runs.many_devices"
        env = os.environ | {"KERAS_BACKEND": backend}
        if backend == "jax":
            env["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
        command = [sys.executable, "-m", module, path]
        subprocess.run(command, cwd=ROOT, env=env, check=True, timeout=900)
        return json.loads(path.read_text())

    return run


def assert_same_steps(found):
    """To rounding: devices add up their parts in another order."""
    assert found["moved"] > 1e-3
    assert found["loss"] < 2e-6 and found["weights"] < 2e-6


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("backend", "kind"), [("jax", "data"), ("tensorflow", "mirrored")]
)
def test_several_devices_take_the_steps_of_one(found_on, backend, kind, case):
    assert_same_steps(found_on(backend)[f"{kind}/{case}"])


@pytest.mark.slow
@pytest.mark.parametrize("case", CUT_BY_CLASS)
def test_classes_cut_in_two_take_the_steps_of_one_device(found_on, case):
    found = found_on("jax")[f"model/{case}"]
    assert_same_steps(found)
    cut = {path: share for path, share in found["shares"].items() if share < 1}
    # The weight and its momentum, half of each on a device; nothing else.
    assert set(cut.values()) == {0.5}
    assert len(cut) == (3 if case == "ccp" else 2)


@pytest.mark.slow
def test_a_replica_normalizes_its_own_part_of_the_batch(found_on):
    # As the guide says: on JAX it is the whole batch, see `encoder`.
    found = found_on("tensorflow")["mirrored/multi_similarity, normalized"]
    assert found["loss"] > 1e-3 and found["weights"] > 1e-3
