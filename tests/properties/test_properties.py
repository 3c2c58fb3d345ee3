"""Laws of every public op, layer and loss, for any numbers.

Hypothesis draws the kind of numbers, their dtype, the batch size and the
classes; `SUBJECTS` is the table. For many more examples:
`pytest tests/properties -m "" --hypothesis-profile thorough`.
"""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import keras_gsp as gsp
from tests.properties.subjects import LAYERS, LOSSES, NOT_NUMERIC, OPS, SUBJECTS
from tests.properties.values import (
    KINDS,
    drawn,
    fixed_cases,
    floats,
    results,
    slopes,
)

if keras.backend.backend() != "tensorflow":
    # JAX compiles every operation for every shape; its values are compared
    # below.
    pytest.skip("tested on TensorFlow", allow_module_level=True)

DTYPES = ("float32", "float64", "float16", "bfloat16")
every_subject = pytest.mark.parametrize("name", SUBJECTS)
of_each_row = pytest.mark.parametrize(
    "name", [name for name, row in SUBJECTS.items() if row.is_by_row]
)
kinds, dtypes = st.sampled_from(KINDS), st.sampled_from(DTYPES)
batches, seeds = st.integers(1, 6), st.integers(0, 2**16)
classes = st.integers(1, 6)


def known(function):
    """Calls the function; an error that explains itself is allowed."""
    try:
        return function()
    except (ValueError, TypeError) as error:
        assert "must" in str(error) and "Received" in str(error), error
        return None


@pytest.mark.parametrize(
    ("room", "table"),
    [(gsp.ops, OPS), (gsp.layers, LAYERS), (gsp.losses, LOSSES)],
)
def test_every_public_name_is_in_the_table(room, table):
    assert set(room.__all__) - NOT_NUMERIC == set(table)


@every_subject
@given(kinds, dtypes, batches, classes, seeds)
def test_values_and_gradients_are_finite(
    name, kind, dtype, batch, num_classes, seed
):
    subject = SUBJECTS[name]
    labels, array = drawn(subject, kind, dtype, batch, num_classes, seed)
    found = known(lambda: slopes(subject, labels, array, dtype))
    if found is None:
        return
    outputs, gradient = found
    for output in outputs:
        assert np.isfinite(output).all()
    if subject.is_smooth:
        assert gradient is not None
        assert np.isfinite(gradient).all()


@every_subject
@given(dtypes, seeds)
def test_dtype_is_kept_or_made_wider(name, dtype, seed):
    subject = SUBJECTS[name]
    labels, array = drawn(subject, "normal", dtype, 4, 2, seed)
    tensor = keras.ops.convert_to_tensor(array, dtype=dtype)
    for output in floats(subject.compute(labels, tensor)):
        found = keras.backend.standardize_dtype(output.dtype)
        if subject.room == "ops" and subject.is_smooth:
            expected = "float64" if dtype == "float64" else "float32"
            assert found == expected
        else:
            assert found in (dtype, "float32")


@of_each_row
@given(st.sampled_from([np.nan, np.inf, -np.inf]), st.integers(2, 5), seeds)
def test_a_bad_row_stays_a_row(name, bad, batch, seed):
    subject = SUBJECTS[name]
    labels, array = drawn(subject, "normal", "float32", batch, 2, seed)
    spoilt = array.copy()
    row = seed % batch
    spoilt[row].reshape(-1)[seed % array[row].size] = bad
    others = np.arange(batch) != row
    whole = results(subject, labels, array)
    found, gradient = slopes(subject, labels, spoilt, "float32")
    for one, other in zip(whole, found, strict=True):
        np.testing.assert_allclose(
            one[others], other[others], rtol=1e-5, atol=1e-6
        )
        if np.isnan(bad) and name.endswith("Pooling"):  # Not lost.
            assert np.isnan(other[row]).any()
    if subject.is_smooth:
        assert np.isfinite(gradient[others]).all()


@of_each_row
@given(kinds, seeds)
def test_a_row_does_not_depend_on_its_batch(name, kind, seed):
    subject = SUBJECTS[name]
    labels, array = drawn(subject, kind, "float32", 3, 1, seed)
    whole = results(subject, labels, array)
    single = results(subject, labels[:1], array[:1])
    for one, other in zip(whole, single, strict=True):
        scale = np.abs(other).max(initial=1e-30)
        np.testing.assert_allclose(
            one[:1] / scale, other / scale, rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize(
    "name", [name for name, row in SUBJECTS.items() if row.may_be_empty]
)
def test_an_empty_batch_is_empty_or_refused(name):
    """In a graph, as in `predict`; Keras refuses some of it eagerly."""
    import tensorflow as tf

    subject = SUBJECTS[name]
    labels, array = drawn(subject, "normal", "float32", 0, 1, 0)
    tensor = tf.constant(array, "float32")

    @tf.function(autograph=False)
    def compute(tensor):
        return floats(subject.compute(labels, tensor))

    try:
        found = compute(tensor)
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        assert "must" in str(error) or "is empty" in str(error)
        return
    for output in found:
        assert np.isfinite(output).all()
        if subject.is_by_row:
            assert output.shape[0] == 0


@pytest.mark.slow
def test_both_backends_compute_the_same(tmp_path):
    """Values and gradients of fixed arrays; JAX runs in its own process."""
    path = tmp_path / "jax.npz"
    command = [sys.executable, "-m", "tests.properties.values", str(path)]
    root = pathlib.Path(__file__).parents[2]
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    subprocess.run(command, check=True, cwd=root, env=environment)
    ours = fixed_cases()
    with np.load(path) as theirs:
        assert set(theirs.files) == set(ours)
        differences = {
            name: _difference(ours[name], theirs[name])
            for name in ours
            if _difference(ours[name], theirs[name]) > 1e-4
        }
    assert not differences, json.dumps(differences, indent=1)


def _difference(one, other):
    """Largest difference relative to the largest number."""
    if one.shape != other.shape:
        return float("inf")
    scale = max(np.abs(one).max(initial=0.0), 1e-3)
    return float(np.abs(one - other).max(initial=0.0) / scale)
