"""Ids, labels and attributes of any library stay exact in every index."""

import keras
import numpy as np
import pytest

from keras_gsp.retrieval import MilvusIndex
from tests.retrieval.index.test_indexes import (
    every_engine,
    every_engine_in_memory,
    random_rows,
)

WORDS = [
    "it's",
    "x'] or id not in ['x",
    'a"b',
    '"] or id != "',
    "back\\slash",
    "\\",
    '\\" or true or "',
    "line\nfeed\r\ttab",
    "\x01\x7f",
    "日本 é 😀",
    "{id} % _ $",
    "",
]


class Detached:
    """What a tensor of PyTorch offers, with a gradient."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array__(self, *_, **__):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

    def detach(self):
        return self

    cpu = detach

    def numpy(self):
        return self.values

    def float(self):
        return self.values.astype("float32")


def pandas():
    return pytest.importorskip("pandas")


# Of each way that a column or a matrix goes; `test_label_codes` has all types.
NUMBERS = {
    "list": list,
    "uint64": lambda a: np.array(a, "uint64"),
    "whole floats": lambda a: np.array(a, "float64"),
    "column": lambda a: np.array(a)[:, None],
    "not contiguous": lambda a: np.repeat(a, 2)[::2],
    "masked without a mask": np.ma.masked_array,
    "tensor": keras.ops.convert_to_tensor,
    "PyTorch": Detached,
    "pandas with floats": lambda a: pandas().Series([*a, None])[:3],
}
VECTORS = {
    "list": lambda a: a.tolist(),
    "columns first": np.asfortranarray,
    "tensor": keras.ops.convert_to_tensor,
    "PyTorch": Detached,
    "pandas": lambda a: pandas().DataFrame(a),
}


def empty(kind, folder):
    if kind is MilvusIndex:
        return MilvusIndex(folder / "gallery.db", "things")
    return kind()


@every_engine
def test_arrays_of_every_library_are_taken(kind, tmp_path):
    index, rows = empty(kind, tmp_path), random_rows(3)
    total = 0
    for made in NUMBERS.values():
        ids = [total, total + 1, total + 2]
        columns = made(ids), made([1, 0, 1])
        index.upsert(rows, columns[1], columns[0], {"year": columns[1]})
        total += 3
        assert index.items(made(ids))[2].tolist() == ids
        assert index.count({"id": made(ids), "year": made([1, 1, 1])}) == 2
        excluded = index.search(
            rows, 1, exclude_ids=made(ids), where={"id": ids}
        )
        assert (excluded.ids[:, 0] != ids).all()
    assert index.delete(made(ids)) == 3 and len(index) == total - 3
    for made in VECTORS.values():
        index.upsert(made(rows), [5] * 3, [0, 1, 2], {"year": [7] * 3})
        found = index.search(made(rows), 1, where={"year": 7})
        assert found.ids[:, 0].tolist() == [0, 1, 2]
        np.testing.assert_array_equal(index.items([2])[0][0], rows[2])


@every_engine
def test_no_word_leaves_its_string(kind, tmp_path):
    count = len(WORDS)
    rows, index = random_rows(count), empty(kind, tmp_path)
    index.upsert(rows, WORDS, WORDS, {"word": WORDS})
    for at, word in enumerate(WORDS):
        for name in "id", "label", "word":
            assert index.count({name: word}) == 1
            assert index.count({name: slice(word, word)}) == 0
        found = index.search(rows[at], 1, where={"word": [word]})
        assert found.ids.tolist() == found.labels.tolist() == [[word]]
        assert index.items([word])[2].tolist() == [word]
    assert index.delete(['x\'] or id not in ["x"]']) == 0
    for at, word in enumerate(WORDS):
        assert index.delete([word]) == 1 and len(index) == count - at - 1


@every_engine_in_memory
def test_large_ids_are_exact_and_stay_so_in_files(kind, tmp_path):
    large = [2**63 - 5, 7, -(2**63), 2**53 + 1, 2**53]
    index = kind(random_rows(5), large, large, attributes={"number": large})
    index.save(tmp_path / "index")
    for one in (index, kind.load(tmp_path / "index")):
        found = one.search(random_rows(5), 1)
        assert found.ids[:, 0].tolist() == large
        assert found.labels[:, 0].tolist() == large
        assert one.items([-(2**63), 6])[2].tolist() == [-(2**63)]
        for name in "id", "label", "number":
            assert one.count({name: 2**63 - 5}) == 1
            assert one.count({name: [2**63 - 4, -1, 2**64, 7.0, 6.5]}) == 1
            assert one.count({name: slice(2**53 + 1, 2**64)}) == 2
        assert one.delete([2**53]) == 1 and one.delete(2**63 - 4) == 0
        assert one.items(large)[2].tolist() == large[:4]


@every_engine
def test_a_column_keeps_its_type_and_all_digits(kind, tmp_path):
    index, rows = empty(kind, tmp_path), random_rows(2)
    index.upsert(rows, [2**53 + 1, 3], [0, 1], {"price": [0.5, 1.5]})
    index.upsert(rows[:1], [4.0], [2], {"price": [2]})
    assert index.count({"label": 4, "price": 2.0}) == 1
    for label, price, name in ((0.5, 1, "labels"), (1, 2**53 + 1, "price")):
        with pytest.raises(TypeError, match=f"`{name}`.*64 holds"):
            index.upsert(rows[:1], [label], [2], {"price": [price]})
    assert index.count({"label": 4, "price": 2.0}) == 1 < len(index) == 3


@every_engine
def test_the_arrays_of_the_caller_are_not_kept(kind, tmp_path):
    index, rows = empty(kind, tmp_path), random_rows(6)
    buffer, ids = np.empty((2, 8), "float32"), np.empty(2, "int64")
    labels, words = np.empty(2, "int64"), np.empty(2, "U3")
    for batch in range(3):
        buffer[:], ids[:] = rows[2 * batch : 2 * batch + 2], [batch, batch + 3]
        labels[:], words[:] = batch, [f"w{batch}", f"v{batch}"]
        index.upsert(buffer, labels, ids, {"word": words})
    buffer[:], ids[:], labels[:], words[:] = 9, 9, 9, "no"
    returned = [index.ids(), *index.items([0, 1])[:3]]
    for _ in range(2):
        found = index.search(rows, 1)
        assert found.ids[:, 0].tolist() == [0, 3, 1, 4, 2, 5]
        assert found.labels[:, 0].tolist() == [0, 0, 1, 1, 2, 2]
        assert (found.distances < 1e-6).all()
        assert index.count({"word": "w1"}) == 1
        for values in (*returned, found.ids, found.labels, found.distances):
            values[:] = 7
    if kind is not MilvusIndex:
        part = index.gallery.parts[-1].values
        for values in (*index.gallery.columns.values(), part):
            with pytest.raises((TypeError, ValueError), match="not|read-only"):
                values[:] = values[0]
