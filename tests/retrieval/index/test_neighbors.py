"""Groups, photographs, distances, diversity and examples, against loops."""

import numpy as np
import pytest

from keras_gsp.retrieval import MilvusIndex
from tests.retrieval.index.test_indexes import (
    every_engine,
    made,
    random_rows,
    same,
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


@every_engine
def test_neighbors_are_within_a_distance(kind, tmp_path):
    index, rows, _, names = shop(kind, tmp_path)
    queries = np.concatenate([rows[:3], 50 + random_rows(1)])
    whole = index.search(queries, COUNT)
    limit = float(whole.distances[0, 7])
    found = index.search(queries, 20, within=limit)
    for row in range(4):
        near = whole.ids[row, whole.distances[row] <= limit][:20]
        assert found.ids[row, : found.counts[row]].tolist() == near.tolist()
        assert (found.ids[row, found.counts[row] :] == -1).all()
    assert found.counts[0] == 8 and found.counts[3] == 0
    assert index.search(queries, 3, within=0.0).counts.tolist() == [1, 1, 1, 0]
    grouped = index.search(queries, 5, group_by="product", within=limit)
    expected = list(dict.fromkeys(names[whole.ids[0, :8]].tolist()))[:5]
    assert grouped.groups[0, : grouped.counts[0]].tolist() == expected


def slow_diverse(query, rows, candidates, k, diversity):
    chosen = []
    for _ in range(k):
        scores = []
        for item in candidates:
            near = -(1 - diversity) * np.linalg.norm(rows[item] - query)
            gaps = [np.linalg.norm(rows[item] - rows[i]) for i in chosen]
            scores.append(near + diversity * min(gaps, default=0.0))
            if item in chosen:
                scores[-1] = -np.inf
        chosen.append(candidates[int(np.argmax(scores))])
    return chosen


@every_engine
def test_diversity_is_maximal_marginal_relevance(kind, tmp_path):
    index, rows, _, _ = shop(kind, tmp_path)
    queries = rows[:4] + 0.01 * random_rows(4, seed=7)
    plain = index.search(queries, 6)
    same(index.search(queries, 6, diversity=0.0), plain)
    candidates = index.search(queries, 60).ids.tolist()
    for diversity in (0.3, 0.8, 1.0):
        found = index.search(queries, 6, diversity=diversity)
        for row, query in enumerate(queries):
            some = candidates[row], 6, diversity
            expected = slow_diverse(query, rows, *some)
            assert found.ids[row].tolist() == expected
    # Copies of one item do not fill the page.
    index.upsert(
        np.repeat(rows[:1], 9, axis=0),
        np.zeros(9, int),
        np.arange(COUNT, COUNT + 9),
        {"product": ["copy"] * 9},
    )
    assert (index.search(rows[:1], 6).distances == 0).all()
    found = index.search(rows[:1], 6, diversity=0.6)
    assert (found.distances == 0).sum() == 1
    few = index.search(rows[:1], 6, diversity=0.5, where={"product": "p3"})
    assert few.counts.tolist() == [5]
    within = index.search(rows[:1], 6, diversity=0.9, within=1.0)
    assert (within.distances[0, : within.counts[0]] <= 1.0).all()


@every_engine
def test_examples_move_the_query(kind, tmp_path):
    index, rows, products, names = shop(kind, tmp_path)
    liked, unliked = np.flatnonzero(products == 8)[:3], np.array([0, 1])
    mean = rows[liked].mean(axis=0)
    moved = mean + 2 * (mean - rows[unliked].mean(axis=0))
    whole = index.search(moved, COUNT).ids[0]
    expected = whole[~np.isin(whole, [*liked, *unliked])][:10]
    found = index.search(like=liked, unlike=unliked.tolist(), k=10)
    assert found.ids.tolist() == [expected.tolist()]
    # Embeddings leave nothing out; a query is one of the examples.
    first, *others = rows[liked]
    for query, like in ((None, rows[liked]), (first, others)):
        again = index.search(query, 10, like=like, unlike=rows[unliked])
        assert again.ids.tolist() == [whole[:10].tolist()]
    grouped = index.search(like=[int(liked[0])], k=3, group_by="product")
    order = index.search(rows[liked[0]], COUNT).ids[0]
    firsts = dict.fromkeys(names[order[order != liked[0]]].tolist())
    assert grouped.groups[0].tolist() == list(firsts)[:3]
    # Of examples on a sphere, the query is on it.
    for one in (rows, random_rows(COUNT, seed=5)):
        one /= np.linalg.norm(one, axis=1, keepdims=True)
    index.upsert(rows, products % 3, np.arange(COUNT), {"product": names})
    found = index.search(like=liked, unlike=unliked, k=1)
    mean = 3 * rows[liked].mean(axis=0) - 2 * rows[unliked].mean(axis=0)
    gap = rows[found.ids[0, 0]] - mean / np.linalg.norm(mean)
    assert found.distances[0, 0] == pytest.approx(np.linalg.norm(gap), abs=1e-5)
