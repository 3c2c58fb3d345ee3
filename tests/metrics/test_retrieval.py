"""retrieval_scores against explicit loops over queries and ranks."""

import warnings

import keras
import numpy as np
import pytest

from keras_gsp.metrics import rankings
from keras_gsp.metrics.retrieval import retrieval_scores
from keras_gsp.ops import neighbors
from tests.retrieval.index.test_columns import Detached

NAMES = ["precision_at_1", "precision_at_r", "map_at_r"]


def slow_rows(embeddings, labels, *, ks=(), is_complete=False, **given):
    """The definitions, one query and one rank at a time, in float64."""
    is_own = "gallery_embeddings" not in given
    side = "query" if is_own else "gallery"
    groups = given.get("query_groups"), given.get(f"{side}_groups")
    others, gallery_labels = photographs(
        given.get("gallery_embeddings", embeddings),
        given.get("gallery_labels", labels),
        given.get(f"{side}_items"),
    )
    query_items = given.get("query_items")
    embeddings, labels = photographs(embeddings, labels, query_items)
    distractors = np.asarray(given.get("distractor_embeddings", ()), "float64")
    others = [*others, *distractors[:, None]]
    queries, rows = [], []
    for i in range(len(embeddings)):
        is_hit = [is_one_class(labels[i], other) for other in gallery_labels]
        is_hit += [False] * len(distractors)
        items = [j for j in range(len(others)) if not (is_own and i == j)]
        if groups[0] is not None:
            own = groups[0][i]
            items = [
                j for j in items if not (is_hit[j] and groups[1][j] == own)
            ]
        distance = {
            j: np.square(embeddings[i][:, None] - others[j]).sum(-1).min()
            for j in items
        }
        items.sort(key=lambda j: (distance[j], j))
        hits = [is_hit[j] for j in items]
        if not any(hits):
            continue
        row = slow_scores(hits, ks)

        def place(j, distance=distance):
            is_row = query_items is None
            return tuple(others[j].ravel()) if is_row else distance[j]

        depth = len(items) if is_complete else max(1, sum(hits), *ks)
        near, right, wrong = (
            {place(j) for j in some}
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


def is_one_class(labels, others):
    """Whether two items share a class, or one of several."""
    both = labels == others if np.ndim(labels) == 0 else labels & others
    return bool(np.any(both))


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
        "mean_average_precision": sum(gains) / positives,
    }
    row |= {f"recall_at_{k}": any(hits[:k]) for k in ks}
    row |= {f"map_at_{k}": sum(gains[:k]) / min(k, positives) for k in ks}
    return row


def photographs(embeddings, labels, items):
    """The rows of each thing, in order of appearance, and its label."""
    rows = np.asarray(embeddings, "float64")
    items = list(range(len(rows))) if items is None else list(items)
    things = list(dict.fromkeys(items))
    own = [np.array([one == item for item in items]) for one in things]
    return [rows[one] for one in own], [labels[one.argmax()] for one in own]


def scores_of_loops(points, labels, *, recall_at=(1, 2), **options):
    """The scores, whose numbers are all those of the loops."""
    extra = ("map_at", "average_precision")
    scores = retrieval_scores(points, labels, recall_at=recall_at, **options)
    given = {k: v for k, v in options.items() if k not in extra}
    ks = {*recall_at, *options.get("map_at", ())}
    given["is_complete"] = options.get("average_precision", False)
    queries, rows = slow_rows(points, labels, ks=ks, **given)
    for name in scores.keys() - {"num_queries", "num_dropped"}:
        expected = np.mean([row[name] for row in rows])
        assert scores[name] == pytest.approx(expected, abs=1e-12), name
    assert {*NAMES, *(f"recall_at_{k}" for k in recall_at)} <= scores.keys()
    assert scores["num_queries"] == len(queries)
    count = len(set(options.get("query_items", range(len(points)))))
    assert scores["num_dropped"] == count - len(queries)
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
        scores_of_loops(*given, recall_at=(1, 3, 200), map_at=(1, 4))
        scores_of_loops(*given, recall_at=())
    gallery = in_gallery(50)
    assert scores_of_loops(*given, **gallery)["num_dropped"] > 0


def test_every_way_to_rank_orders_equals_by_position(way):
    rng = np.random.default_rng(0)
    points = rng.integers(-2, 3, size=(120, 2)).astype("float32")
    labels = rng.integers(9, size=120)
    options = {"average_precision": True, "map_at": (5, 500)}
    scores = scores_of_loops(points, labels, **options)
    assert scores_of_loops(points, labels)["tied_queries"] > 0.5
    assert scores["map_at_500"] == scores["mean_average_precision"]
    for moved in (points + 4096, points * 2.0**60, points * 2.0**-60):
        found = retrieval_scores(moved, labels, recall_at=(1, 2), **options)
        assert found == pytest.approx(scores, abs=1e-12)


@pytest.mark.parametrize("has_gallery", [True, False])
def test_items_of_the_query_and_its_camera_are_left_out(way, has_gallery):
    given = random_set(0, count=110, classes=15)
    cameras = np.random.default_rng(1).integers(3, size=110)
    gallery = {"query_groups": [f"camera {c}" for c in cameras]}
    if has_gallery:
        cameras = np.random.default_rng(2).integers(4, size=120)
        gallery |= in_gallery(120, 15, seed=5)
        gallery["gallery_groups"] = [f"camera {c}" for c in cameras]
    scores_of_loops(*given, recall_at=(1, 5), average_precision=True, **gallery)


def test_distractors_are_never_right_and_stand_behind_equal_items(way):
    given = random_set(0, count=70, classes=12)
    distractors = random_set(7, count=50)[0]
    scores = scores_of_loops(*given, distractor_embeddings=distractors)
    assert scores["map_at_r"] < retrieval_scores(*given)["map_at_r"]
    options = gallery([[1.0]], [1], distractor_embeddings=[[-1.0], [1.0]])
    assert retrieval_scores([[0.0]], [1], **options)["precision_at_1"] == 1.0


@pytest.mark.parametrize("has_gallery", [True, False])
def test_things_of_several_photographs_are_scored_as_one(has_gallery):
    points, labels = random_set(0, count=60, classes=12)
    rng = np.random.default_rng(2)
    # Two photographs of a class show one thing or another.
    things = [f"{one} {rng.integers(3)}" for one in labels]
    options = {"query_items": things, "recall_at": (1, 4)}
    if has_gallery:
        options |= in_gallery(70, 12)
        own = options["gallery_labels"]
        options["gallery_items"] = 10 * own + rng.integers(3, size=70)
    scores = scores_of_loops(points, labels, **options)
    assert scores["num_queries"] <= len(set(things)) < 36
    distractors = random_set(7, count=9)[0]
    options |= {"average_precision": True, "map_at": (3,)}
    scores_of_loops(
        np.rint(points), labels, distractor_embeddings=distractors, **options
    )
    rows = retrieval_scores(points, labels, per_query=True, **options)
    assert len(rows["per_query"]["map_at_r"]) == len(set(things))
    alone = retrieval_scores(points, labels, query_items=range(60))
    assert alone == pytest.approx(retrieval_scores(points, labels))


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


@pytest.mark.parametrize("has_gallery", [True, False])
def test_items_with_several_labels_share_one(way, has_gallery):
    points, _ = random_set(0, count=70)
    rng = np.random.default_rng(0)
    labels = rng.uniform(size=(70, 11)) < 0.1
    gallery = {}
    if has_gallery:
        gallery = in_gallery(90, seed=1)
        gallery["gallery_labels"] = rng.uniform(size=(90, 11)) < 0.1
    scores = scores_of_loops(points, labels, **gallery)
    assert scores["num_dropped"] > 0
    points, labels = random_set(3)
    expected = retrieval_scores(points, labels, per_class=True)
    found = retrieval_scores(points, np.eye(9)[labels] > 0, per_class=True)
    assert found == expected


def test_scores_of_queries_and_classes_average_to_the_whole():
    points, labels = random_set(0, count=60, classes=30)
    names = np.array([f"class {label}" for label in labels])
    both = {"per_class": True, "per_query": True}
    whole = retrieval_scores(points, names, recall_at=(3,), **both)
    classes, rows = whole.pop("per_class"), whole.pop("per_query")
    assert whole == retrieval_scores(points, names, recall_at=(3,))
    assert whole["num_dropped"] > 0 and list(classes) == sorted(set(names))
    queries, expected = slow_rows(points, names, ks=(3,))
    for measure, found in rows.items():
        assert np.isnan(found).sum() == whole["num_dropped"]
        of_loops = [float(row[measure]) for row in expected]
        np.testing.assert_allclose(found[queries], of_loops, atol=1e-12)
    for name, scores in classes.items():
        mine = np.flatnonzero(names == name)
        assert scores["num_queries"] == np.isin(mine, queries).sum()
        assert scores["num_dropped"] == len(mine) - scores["num_queries"]
        for measure in rows if scores["num_queries"] else ():
            mean = np.nanmean(rows[measure][mine])
            assert scores[measure] == pytest.approx(mean)


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


def test_labels_and_embeddings_may_be_of_any_type():
    points, labels = random_set(1)
    expected = retrieval_scores(points, labels)
    names = np.array([f"é{label}" for label in labels])
    for same in (
        names,
        names.astype(object),
        np.char.encode(names, "utf-8"),
        labels[:, None],
        labels.astype("uint8"),
        labels.astype("float32"),
        keras.ops.convert_to_tensor(labels),
        Detached(labels),
        labels + 2**53,
        labels.astype("uint64") + np.uint64(2**63),
    ):
        assert retrieval_scores(points, same) == expected
    gallery = {"gallery_embeddings": points, "gallery_labels": names}
    scores = retrieval_scores(points, np.char.encode(names, "utf-8"), **gallery)
    assert scores["precision_at_1"] == 1.0  # bytes and text
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


def test_scores_are_plain_python_numbers():
    scores = retrieval_scores(*random_set(0), recall_at=(1, 1))
    counted = ["num_queries", "num_dropped"]
    assert list(scores) == [*NAMES, "recall_at_1", "tied_queries", *counted]
    kinds = [type(value) for value in scores.values()]
    assert kinds == [float] * 5 + [int] * 2


POINTS, LABELS = random_set(0, count=4, classes=1)
BAD = POINTS * [[1.0], [1.0], [np.nan], [1.0]]


def gallery(embeddings=POINTS, labels=LABELS, **options):
    both = {"gallery_embeddings": embeddings, "gallery_labels": labels}
    return both | options


MANY = np.ones((4, 3), bool)


def test_bad_arguments_are_refused():
    for options, message in [
        ({"embeddings": BAD}, "1 of 4 rows.*row 2"),
        ({"embeddings": POINTS[0]}, r"shape \(5,\)"),
        ({"embeddings": POINTS[:0]}, r"shape \(0, 5\)"),
        ({"labels": LABELS[:3]}, r"shape \(3,\)"),
        ({"labels": np.eye(4)}, r"shape \(4, 4\)"),
        ({"labels": [0, 1, 2, 3]}, "none with a positive"),
        ({"labels": [0, 0, 0, np.nan]}, "1 NaN of 4"),
        ({"labels": [0, "a", None, 1]}, "NoneType"),
        ({"labels": np.ones(4, complex)}, "complex128"),
        (gallery(labels=MANY[:, :2]) | {"labels": MANY}, r"\(4, 3\) booleans"),
        ({"recall_at": (0,)}, r"\(0,\)"),
        ({"recall_at": (1.5,)}, r"\(1.5,\)"),
        ({"map_at": (0,)}, r"map_at=\(0,\)"),
        ({"query_groups": [0]}, r"query_groups.*shape \(1,\)"),
        ({"gallery_groups": LABELS}, "no gallery_embeddings"),
        (gallery(query_groups=LABELS), "no gallery_groups"),
        ({"labels": [0, 0, 1, 0], "query_items": [*"aabb"]}, "two for 'b'"),
        ({"gallery_items": LABELS}, "no gallery_embeddings"),
        ({"query_items": LABELS, "query_groups": LABELS}, "both"),
        (gallery(labels=None), "no gallery_labels"),
        (gallery(None), "no gallery_embeddings"),
        (gallery(POINTS[:, :3]), "5 and 3"),
        (gallery(labels=list("aaaa")), "int64 and <U1"),
        (gallery(labels=LABELS + 9), "none with a positive"),
        ({"distractor_embeddings": POINTS[:, :3]}, "5. Received: 3"),
    ]:
        arguments = {"embeddings": POINTS, "labels": LABELS} | options
        with pytest.raises((TypeError, ValueError), match=message):
            retrieval_scores(**arguments)
