"""Codes of labels of every type, and arrays of every library."""

import pathlib

import keras
import numpy as np
import pandas as pd
import pytest

from keras_gsp._labels import (
    checked_labels,
    label_codes,
    label_numbers,
)

IDS = np.array([7, 2**32 + 1, 7, 1])
NAMES = ["cat", "ant", "cat", "bee"]


def as_tensor(values):
    return keras.ops.convert_to_tensor(values)


@pytest.mark.parametrize(
    "labels, values",
    [
        ([3, 1, 3, 2], [1, 2, 3]),
        (np.array([3.0, 1.0, 3.0, 2.0], "float32"), [1, 2, 3]),
        (np.array([[3], [1], [3], [2]]), [1, 2, 3]),
        (as_tensor([3, 1, 3, 2]), [1, 2, 3]),
        (pd.Series([3, 1, 3, 2], index=[9, 8, 7, 6]), [1, 2, 3]),
        (pd.array([3, 1, 3, 2], dtype="Int64"), [1, 2, 3]),
        (pd.array([3, 1, 3, 2], dtype="int64[pyarrow]"), [1, 2, 3]),
        ([True, False, True, True], [False, True]),
        ([-1, -(2**63), -1, 0], [-(2**63), -1, 0]),
        (IDS, [1, 7, 2**32 + 1]),
        (IDS.astype("float64"), [1, 7, 2**32 + 1]),
        (NAMES, ["ant", "bee", "cat"]),
        (np.array(NAMES, np.dtypes.StringDType()), ["ant", "bee", "cat"]),
        ([name.encode() for name in NAMES], ["ant", "bee", "cat"]),
        (pd.Series(NAMES), ["ant", "bee", "cat"]),
        (pd.Series(NAMES, dtype=object), ["ant", "bee", "cat"]),
        (pd.Categorical(NAMES), ["ant", "bee", "cat"]),
        ([pathlib.PurePath(n) for n in NAMES], ["ant", "bee", "cat"]),
        ([b"\xff", b"\xfe", b"\xff", b"a"], None),
    ],
)
def test_codes_are_exact_and_numbered_by_the_sorted_labels(labels, values):
    codes, known = label_codes(labels)
    assert codes.dtype == "int32" and codes.shape == (4,)
    assert known.tolist() == sorted(known.tolist())
    assert known[codes].tolist() == checked_labels(labels, 4).tolist()
    assert values is None or known.tolist() == values


def test_labels_without_a_code_are_refused_by_name():
    for labels, error, message in [
        ([1.0, np.nan], ValueError, "`labels` must not be NaN"),
        (pd.array([1, None], dtype="Int64"), ValueError, "must not be NaN"),
        ([1.0, 2.5], ValueError, r"be whole numbers.*Received: \[2.5\]"),
        ([1.0, np.inf], ValueError, r"be whole numbers.*Received: \[inf\]"),
        ([2.0**53, 1.0], ValueError, r"Received: \[9007199254740992"),
        (np.array([2.0**24], "float32"), ValueError, "as integers or strings"),
        ([2**64, 1], ValueError, "fit into int64; pass .*18446744073709551616"),
        (np.array([2**63], "uint64"), ValueError, "Received: 9223372036854"),
        ([1, "a"], TypeError, r"objects of types \['int', 'str'\]"),
        (["a", np.nan], TypeError, r"\['float', 'str'\]"),
        (["a", b"a"], TypeError, r"\['bytes', 'str'\]"),
        (pd.Series(["a", None]), TypeError, "none missing"),
        (np.array(["2026-01-01"], "datetime64[D]"), TypeError, "datetime64"),
        (5, ValueError, r"Received: shape \(\)"),
        (np.zeros((2, 3), int), ValueError, r"Received: shape \(2, 3\)"),
    ]:
        with pytest.raises(error, match=message):
            label_codes(labels)


def test_numbers_of_32_bits_stay_and_what_is_ignored_is_no_code():
    labels = np.array([-7, 2**31 - 1, -7])
    numbers, names = label_numbers(labels)
    assert numbers.dtype == "int32" and names is None
    assert numbers.tolist() == labels.tolist()
    for ignored in (-1, 0, 1, 5):
        ids = np.array([2**40, ignored, 2**41, 2**40])
        numbers, names = label_numbers(ids, ignored)
        first, same, second, again = numbers.tolist()
        assert same == ignored and first == again and len(names) == 3
        assert len({first, ignored, second}) == 3
        numbers, _ = label_numbers(NAMES, ignored)
        assert ignored not in numbers and len(set(numbers.tolist())) == 3


def test_both_forms_of_a_name_are_one_label():
    codes, values = label_codes(["cafe\u0301", "caf\u00e9", "a"])
    assert codes.tolist() == [1, 1, 0] and values.tolist() == ["a", "caf\u00e9"]
