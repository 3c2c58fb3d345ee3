"""Neighbors by group, and of several photographs, against loops."""

import numpy as np
import pytest

from keras_gsp.retrieval import MilvusIndex
from tests.retrieval.index.test_indexes import (
    every_engine,
    made,
    random_rows,
    slow_search,
)

COUNT = 120


def shop(kind, folder, products=None):
    """Items of products with 1 to 30 photographs each."""
    rng = np.random.default_rng(0)
    if products is None:
        products = np.repeat(np.arange(10), [1, 2, 3, 5, 5, 8, 12, 24, 30, 30])
    rows = random_rows(10)[products] + 0.2 * random_rows(COUNT, seed=1)
    order = rng.permutation(COUNT)
    products, rows = products[order], rows[order]
    names = np.array([f"p{one}" for one in products])
    index = made(
        kind, folder, rows, products % 3, np.arange(COUNT), {"product": names}
    )
    return index, rows, products, names


def slow_groups(query, rows, groups, k, passes):
    """(id, group, size) of the nearest item of each of k groups."""
    allowed = np.flatnonzero(passes)
    order = allowed[slow_search([query], rows[allowed], COUNT)[0][0]]
    firsts, hits = {}, []
    for item in order:
        if groups[item] not in firsts:
            if len(firsts) == k:
                break
            firsts[groups[item]] = item
            num_hits = len(hits) + 1
        hits.append(groups[item])
    hits = hits[:num_hits]
    return [(i, group, hits.count(group)) for group, i in firsts.items()]


@every_engine
@pytest.mark.parametrize("column", ["product", "label"])
def test_groups_are_those_of_a_loop_over_all_items(kind, column, tmp_path):
    index, rows, products, names = shop(kind, tmp_path)
    groups = names if column == "product" else products % 3
    queries = np.concatenate([rows[:4], random_rows(3, seed=2)])
    own = [0, 1, None, None, None, None, None]
    for k in (1, 4, 10, 50):
        for where, passes in (
            (None, np.ones(COUNT, bool)),
            ({"label": [0, 1]}, products % 3 < 2),
        ):
            found = index.search(
                queries, k, group_by=column, where=where, exclude_ids=own
            )
            assert found.ids.shape == found.groups.shape == (7, k)
            for i, query in enumerate(queries):
                allowed = passes.copy()
                if own[i] is not None:
                    allowed[own[i]] = False
                expected = slow_groups(query, rows, groups, k, allowed)
                count = found.counts[i]
                shown = zip(
                    found.ids[i, :count].tolist(),
                    found.groups[i, :count].tolist(),
                    found.group_counts[i, :count].tolist(),
                    strict=True,
                )
                assert list(shown) == expected
                assert (
                    found.labels[i, :count]
                    == products[found.ids[i, :count]] % 3
                ).all()
                assert (found.ids[i, count:] == -1).all()
                assert np.isinf(found.distances[i, count:]).all()
                assert (found.group_counts[i, count:] == 0).all()


def test_milvus_looks_at_a_stated_number_of_items(tmp_path, monkeypatch):
    pytest.importorskip("milvus_lite")
    monkeypatch.setattr(MilvusIndex, "max_neighbors", 30)
    products = np.repeat(np.arange(10), [60, 40, 4, 4, 4, 4, 1, 1, 1, 1])
    index, rows, products, _ = shop(MilvusIndex, tmp_path, products)
    query = rows[products == 0][:1]
    found = index.search(query, 5, group_by="product")
    expected = slow_search(query, rows, 30)[0][0]
    assert found.counts[0] == len(set(products[expected])) < 5


@every_engine
def test_an_item_is_as_near_as_to_the_nearest_photograph(kind, tmp_path):
    index, rows, products, names = shop(kind, tmp_path)
    queries = random_rows(15, seed=3).reshape(5, 3, 8)
    queries[0, 1] = queries[0, 0]
    own = [None, None, 3, 4, None]
    found = index.search(queries, 9, exclude_ids=own)
    grouped = index.search(queries, 4, exclude_ids=own, group_by="product")
    for i, photographs in enumerate(queries):
        distances = np.min(
            np.linalg.norm(rows[:, None] - photographs, axis=2), axis=1
        )
        if own[i] is not None:
            distances[own[i]] = np.inf
        order = np.argsort(distances, kind="stable")
        assert found.ids[i].tolist() == order[:9].tolist()
        np.testing.assert_allclose(
            found.distances[i], distances[order[:9]], 1e-5
        )
        firsts = list(dict.fromkeys(names[order].tolist()))[:4]
        assert grouped.groups[i].tolist() == firsts
    alone = index.search(queries[:, :1], 9)
    np.testing.assert_array_equal(alone.ids, index.search(queries[:, 0], 9).ids)
    with pytest.raises(ValueError, match=r"8. Received: shape \(5, 3, 7\)"):
        index.search(queries[..., :7])
    with pytest.raises(ValueError, match="15 ids for 5 queries"):
        index.search(queries, exclude_ids=range(15))
