"""retrieval_scores against explicit loops over queries and ranks."""

import warnings

import keras
import numpy as np
import pytest

from keras_gsp.metrics import rankings
from keras_gsp.metrics.retrieval import retrieval_scores
from keras_gsp.ops import neighbors

NAMES = ["precision_at_1", "precision_at_r", "map_at_r"]


def slow_rows(embeddings, labels, *, ks=(), **given):
    """The definitions, one query and one rank at a time, in float64."""
    is_own = "gallery_embeddings" not in given
    embeddings = np.asarray(embeddings, "float64")
    others = np.asarray(given.get("gallery_embeddings", embeddings), "float64")
    gallery_labels = given.get("gallery_labels", labels)
    queries, rows = [], []
    for i in range(len(embeddings)):
        is_hit = [labels[i] == other for other in gallery_labels]
        items = [j for j in range(len(others)) if not (is_own and i == j)]
        distance = np.square(embeddings[i] - others).sum(-1)
        items.sort(key=lambda j: (distance[j], j))
        hits = [is_hit[j] for j in items]
        if not any(hits):
            continue
        row = slow_scores(hits, ks)

        depth = max(1, sum(hits), *ks)
        near, right, wrong = (
            {tuple(others[j]) for j in some}
            for some in (
                items[:depth],
                [j for j in items if is_hit[j]],
                [j for j in items if not is_hit[j]],
            )
        )
        row["tied_queries"] = bool(near & right & wrong)
        queries.append(i)
        rows.append(row)
    return queries, rows


def slow_scores(hits, ks):
    """The scores of one ranking, true where a neighbor is right."""
    positives = sum(hits)
    gains = [
        sum(hits[: rank + 1]) / (rank + 1) if hits[rank] else 0.0
        for rank in range(len(hits))
    ]
    row = {
        "precision_at_1": hits[0],
        "precision_at_r": sum(hits[:positives]) / positives,
        "map_at_r": sum(gains[:positives]) / positives,
    }
    row |= {f"recall_at_{k}": any(hits[:k]) for k in ks}
    return row


def scores_of_loops(points, labels, *, recall_at=(1, 2), **options):
    """The scores, whose numbers are all those of the loops."""
    scores = retrieval_scores(points, labels, recall_at=recall_at, **options)
    queries, rows = slow_rows(points, labels, ks=recall_at, **options)
    for name in scores.keys() - {"num_queries", "num_dropped"}:
        expected = np.mean([row[name] for row in rows])
        assert scores[name] == pytest.approx(expected, abs=1e-12), name
    assert {*NAMES, *(f"recall_at_{k}" for k in recall_at)} <= scores.keys()
    assert scores["num_queries"] == len(queries)
    assert scores["num_dropped"] == len(points) - len(queries)
    return scores


# How a ranking is made depends on sizes; these reach each way with few items.
WAYS = {
    "on the host": {"rankings.DEEP_SHARE": 1},
    "on an accelerator": {
        "rankings.DEEP_SHARE": 1,
        "neighbors.has_accelerator": lambda: True,
        "neighbors.DEVICE_LEAST_WORK": 0,
    },
    "sorted": {"rankings.DEEP_SHARE": 10**6},
}


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    for name, value in WAYS[request.param].items():
        room, name = name.split(".")
        module = {"rankings": rankings, "neighbors": neighbors}[room]
        monkeypatch.setattr(module, name, value)
    return request.param


def random_set(seed, count=60, classes=9, size=5, noise=0.7):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    centers = rng.normal(size=(classes, size))
    points = centers[labels] + noise * rng.normal(size=(count, size))
    return points.astype("float32"), labels


def in_gallery(count, classes=7, seed=9):
    points, labels = random_set(seed, count=count, classes=classes)
    return {"gallery_embeddings": points, "gallery_labels": labels}


@pytest.mark.parametrize("block", [None, 1, 7])
def test_every_way_to_rank_equals_the_loops(way, block, monkeypatch):
    if block is not None:
        monkeypatch.setattr(rankings, "SEARCHED_QUERIES", block)
        monkeypatch.setattr(rankings, "BLOCK_NUMBERS", block * 60)
    for seed, classes in enumerate((1, 2, 9, 40)):
        given = random_set(seed, classes=classes)
        scores_of_loops(*given, recall_at=(1, 3, 200))
        scores_of_loops(*given, recall_at=())
    gallery = in_gallery(50)
    assert scores_of_loops(*given, **gallery)["num_dropped"] > 0


def test_every_way_to_rank_orders_equals_by_position(way):
    rng = np.random.default_rng(0)
    points = rng.integers(-2, 3, size=(120, 2)).astype("float32")
    labels = rng.integers(9, size=120)
    scores = scores_of_loops(points, labels)
    assert scores["tied_queries"] > 0.5
    for moved in (points + 4096, points * 2.0**60, points * 2.0**-60):
        found = retrieval_scores(moved, labels, recall_at=(1, 2))
        assert found == pytest.approx(scores, abs=1e-12)


def test_queries_that_are_in_the_gallery_are_counted_in_a_warning():
    points, labels = random_set(0)
    others, more = random_set(1, count=20)
    both = gallery(np.vstack([others, points[:7]]), np.append(more, labels[:7]))
    with pytest.warns(UserWarning, match="7 of 60 queries are at distance 0"):
        retrieval_scores(points, labels, **both)
    # Embedded in another batch, or stored in half precision.
    both["gallery_embeddings"] = both["gallery_embeddings"].astype("float16")
    with pytest.warns(UserWarning, match="7 of 60 queries are at distance 0"):
        retrieval_scores(points, labels, **both)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        retrieval_scores(points, labels, **gallery(others, more))
        scores_of_loops(points, labels)


def test_scores_of_queries_average_to_the_whole():
    points, labels = random_set(0, count=60, classes=30)
    names = np.array([f"class {label}" for label in labels])
    whole = retrieval_scores(points, names, recall_at=(3,), per_query=True)
    rows = whole.pop("per_query")
    assert whole == retrieval_scores(points, names, recall_at=(3,))
    assert whole["num_dropped"] > 0
    queries, expected = slow_rows(points, names, ks=(3,))
    for measure, found in rows.items():
        assert np.isnan(found).sum() == whole["num_dropped"]
        of_loops = [float(row[measure]) for row in expected]
        np.testing.assert_allclose(found[queries], of_loops, atol=1e-12)


def test_queries_whose_class_the_gallery_lacks_are_warned_of():
    points, labels = random_set(0)
    others, more = random_set(1, count=200)
    part = gallery(others[more > 2], more[more > 2])
    with pytest.warns(UserWarning, match="of 60 queries have no item of their"):
        scores = retrieval_scores(points, labels, **part)
    assert scores["num_dropped"] == (labels <= 2).sum()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        retrieval_scores(points, labels, **gallery(others, more))
        # Alone in its class: nothing is lost, the count says so.
        retrieval_scores(points, np.append(labels[:-1], 99))


def test_a_query_is_removed_by_index_and_its_copies_stay():
    # 0, 1 and 2 are one point; the copy of another class is a real mistake.
    points = np.array([[1.0, 2.0]] * 3 + [[5.0, 5.0]] * 2)
    scores_of_loops(points, [0, 1, 0, 1, 2])
    collapsed = np.full((4, 3), 0.1, "float32")
    scores = scores_of_loops(collapsed, [0, 1, 0, 1])
    assert scores["tied_queries"] == 1.0
    # Also where all of the first items are of one class.
    collapsed, labels = np.full((60, 3), 0.1, "float32"), np.arange(60) // 5
    scores = scores_of_loops(collapsed, labels)
    assert scores["tied_queries"] == 1.0
    # Identical items have one distance, whatever their column.
    rng = np.random.default_rng(0)
    distinct = rng.normal(size=(3, 97)).astype("float32")
    points = distinct[rng.integers(3, size=101)]
    scores_of_loops(points, rng.integers(5, size=101))


def test_embeddings_may_be_of_any_type():
    points, labels = random_set(2, size=3)
    points = points.astype("float16").astype("float32")
    expected = retrieval_scores(points, labels)
    for same in (
        keras.ops.convert_to_tensor(points),
        points.tolist(),
        points.astype("float16"),
        points.astype("float64"),
        np.asfortranarray(points),
    ):
        assert retrieval_scores(same, labels) == expected


POINTS, LABELS = random_set(0, count=4, classes=1)


def gallery(embeddings=POINTS, labels=LABELS, **options):
    both = {"gallery_embeddings": embeddings, "gallery_labels": labels}
    return both | options
