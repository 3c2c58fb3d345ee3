"""retrieval_scores against explicit loops over queries and ranks."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.metrics import rankings
from keras_gsp.metrics.retrieval import retrieval_scores

NAMES = ["precision_at_1", "precision_at_r", "map_at_r"]


def slow_rows(
    embeddings,
    labels,
    gallery=None,
    gallery_labels=None,
    ks=(),
    *,
    groups=None,
    gallery_groups=None,
    is_own=None,
):
    """The definitions, one query and one rank at a time, in float64."""
    embeddings = np.asarray(embeddings, "float64")
    is_own = gallery is None if is_own is None else is_own
    others = embeddings if gallery is None else np.asarray(gallery, "float64")
    if gallery is None:
        gallery_labels, gallery_groups = labels, groups
    queries, rows = [], []
    for i in range(len(embeddings)):
        is_hit = (
            [
                np.any(np.logical_and(labels[i], other))
                for other in (gallery_labels)
            ]
            if np.ndim(labels) == 2
            else [x == labels[i] for x in gallery_labels]
        )
        items = [j for j in range(len(others)) if not (is_own and i == j)]
        if groups is not None:
            items = [
                j
                for j in items
                if not (is_hit[j] and gallery_groups[j] == groups[i])
            ]
        distance = {j: np.sum((embeddings[i] - others[j]) ** 2) for j in items}
        items.sort(key=lambda j: (distance[j], j))
        hits = [is_hit[j] for j in items]
        positives = sum(hits)
        if positives == 0:
            continue
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
        row |= {f"map_at_{k}": sum(gains[:k]) / min(k, positives) for k in ks}
        row["mean_average_precision"] = sum(gains) / positives
        queries.append(i)
        rows.append(row)
    return queries, rows


def slow_scores(embeddings, *arguments, all_measures=False, **options):
    """Means of the definitions; without the mAPs unless asked for."""
    queries, rows = slow_rows(embeddings, *arguments, **options)
    names = [
        name
        for name in rows[0]
        if all_measures or name in NAMES or name.startswith("recall")
    ]
    scores = {name: np.mean([row[name] for row in rows]) for name in names}
    counts = len(queries), len(embeddings) - len(queries)
    return scores | dict(
        zip(("num_queries", "num_dropped"), counts, strict=True)
    )


# How a ranking is made depends on sizes; these reach each way with few items.
WAYS = {
    "exact bounds": {"SAMPLE_ITEMS": 10**6, "DEEP_SHARE": 1},
    "guessed bounds": {"SAMPLE_ITEMS": 16, "DEEP_SHARE": 1},
    "many equals": {"SAMPLE_ITEMS": 16, "DEEP_SHARE": 1, "CROWD": -5000},
    "sorted": {"DEEP_SHARE": 10**6},
}


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    for name, value in WAYS[request.param].items():
        monkeypatch.setattr(rankings, name, value)
    return request.param


def random_set(seed, count=60, classes=9, size=5, noise=0.7):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    centers = rng.normal(size=(classes, size))
    points = centers[labels] + noise * rng.normal(size=(count, size))
    return points.astype("float32"), labels


def assert_equal_scores(scores, expected):
    assert scores.keys() == expected.keys()
    for name, value in expected.items():
        assert scores[name] == pytest.approx(value, abs=1e-12), name


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("block_size", [None, 1, 7, 1000])
def test_equals_the_loops_over_queries_and_ranks(seed, block_size):
    points, labels = random_set(seed, classes=[1, 2, 9, 40][seed])
    scores = retrieval_scores(
        points, labels, recall_at=(1, 3, 200), block_size=block_size
    )
    assert_equal_scores(scores, slow_scores(points, labels, ks=(1, 3, 200)))


@pytest.mark.parametrize("seed", range(3))
def test_equals_the_loops_with_a_separate_gallery(seed):
    points, labels = random_set(seed, count=30)
    gallery, gallery_labels = random_set(seed + 9, count=50, classes=7)
    scores = retrieval_scores(
        points,
        labels,
        gallery_embeddings=gallery,
        gallery_labels=gallery_labels,
        recall_at=(2, 5),
        block_size=8,
    )
    expected = slow_scores(points, labels, gallery, gallery_labels, (2, 5))
    assert_equal_scores(scores, expected)
    assert scores["num_dropped"] > 0


@pytest.mark.parametrize("seed", range(2))
def test_every_way_to_rank_equals_the_loops(way, seed):
    points, labels = random_set(seed, count=130, classes=[12, 60][seed])
    scores = retrieval_scores(points, labels, recall_at=(1, 4), map_at=(1, 4))
    expected = slow_scores(points, labels, ks=(1, 4), all_measures=True)
    del expected["mean_average_precision"]
    assert_equal_scores(scores, expected)


def test_every_way_to_rank_orders_equals_by_position(way):
    rng = np.random.default_rng(0)
    points = rng.integers(-2, 3, size=(120, 2)).astype("float32")
    labels = rng.integers(9, size=120)
    scores = retrieval_scores(points, labels, recall_at=(2,))
    assert_equal_scores(scores, slow_scores(points, labels, ks=(2,)))


@pytest.mark.parametrize("rank", [1, 2])
def test_a_query_with_too_few_candidates_is_searched_again(rank, monkeypatch):
    def bounds(self, rows):
        nearness = self.left[rows] @ self.sample.T
        return rankings._nth_largest(nearness, rank) - self.slack

    monkeypatch.setattr(rankings, "SAMPLE_ITEMS", 16)
    monkeypatch.setattr(rankings, "DEEP_SHARE", 1)
    monkeypatch.setattr(rankings._Search, "_sampled_bounds", bounds)
    points, labels = random_set(0, count=130, classes=12)
    scores = retrieval_scores(points, labels, recall_at=(8,))
    assert_equal_scores(scores, slow_scores(points, labels, ks=(8,)))


def test_queries_with_many_equal_items_are_sorted_whole(monkeypatch):
    counts = []
    complete = rankings._Search.complete

    def counted(self, queries):
        counts.append(len(queries))
        return complete(self, queries)

    monkeypatch.setattr(rankings._Search, "complete", counted)
    monkeypatch.setattr(rankings, "SAMPLE_ITEMS", 16)
    monkeypatch.setattr(rankings, "CROWD", -200)
    points, labels = random_set(0, count=240, classes=60, size=2)
    points[::2] = points[0]
    scores = retrieval_scores(points, labels, recall_at=())
    assert_equal_scores(scores, slow_scores(points, labels))
    assert sum(counts) >= 120


@pytest.mark.parametrize("has_gallery", [True, False])
def test_items_of_the_query_and_its_camera_are_left_out(way, has_gallery):
    points, labels = random_set(0, count=110, classes=15)
    cameras = np.random.default_rng(1).integers(3, size=110)
    other, other_labels = random_set(5, count=120, classes=15)
    other_cameras = np.random.default_rng(2).integers(4, size=120)
    gallery, expected = {}, {}
    if has_gallery:
        gallery = {
            "gallery_embeddings": other,
            "gallery_labels": other_labels,
            "gallery_groups": [f"camera {c}" for c in other_cameras],
        }
        expected = {
            "gallery": other,
            "gallery_labels": other_labels,
            "gallery_groups": other_cameras,
        }
    scores = retrieval_scores(
        points,
        labels,
        query_groups=[f"camera {c}" for c in cameras],
        recall_at=(1, 5),
        **gallery,
    )
    expected = slow_scores(
        points, labels, groups=cameras, ks=(1, 5), **expected
    )
    assert_equal_scores(scores, expected)


def test_a_camera_of_its_own_for_each_item_changes_nothing():
    points, labels = random_set(2)
    expected = retrieval_scores(points, labels)
    found = retrieval_scores(points, labels, query_groups=np.arange(60))
    assert found == expected


def test_distractors_are_found_and_never_right(way):
    points, labels = random_set(0, count=70, classes=12)
    distractors = random_set(7, count=50)[0]
    everything = np.concatenate([points, distractors])
    scores = retrieval_scores(
        points, labels, distractor_embeddings=distractors, recall_at=(1, 3)
    )
    expected = slow_scores(
        points,
        labels,
        everything,
        np.concatenate([labels, np.full(50, -1)]),
        (1, 3),
        is_own=True,
    )
    assert_equal_scores(scores, expected)
    alone = retrieval_scores(points, labels, recall_at=(1, 3))
    assert scores["map_at_r"] < alone["map_at_r"]


def test_distractors_stand_behind_equal_gallery_items():
    scores = retrieval_scores(
        [[0.0]],
        [1],
        gallery_embeddings=[[1.0]],
        gallery_labels=[1],
        distractor_embeddings=[[-1.0], [1.0]],
    )
    assert scores["precision_at_1"] == 1.0


@pytest.mark.parametrize("has_gallery", [True, False])
def test_items_with_several_labels_share_one(way, has_gallery):
    points, _ = random_set(0, count=70)
    other, _ = random_set(1, count=90)
    rng = np.random.default_rng(0)
    labels = rng.uniform(size=(70, 11)) < 0.1
    other_labels = rng.uniform(size=(90, 11)) < 0.1
    gallery = {}
    if has_gallery:
        gallery = {"gallery_embeddings": other, "gallery_labels": other_labels}
    scores = retrieval_scores(points, labels, recall_at=(2,), **gallery)
    others = (other, other_labels) if has_gallery else (None, None)
    expected = slow_scores(points, labels, *others, (2,))
    assert_equal_scores(scores, expected)
    assert scores["num_dropped"] > 0


def test_one_of_several_labels_is_an_ordinary_label():
    points, labels = random_set(3)
    expected = retrieval_scores(points, labels, per_class=True)
    found = retrieval_scores(points, np.eye(9)[labels] > 0, per_class=True)
    assert found == expected


@pytest.mark.parametrize("block_size", [None, 7])
def test_average_precision_is_scikit_learns(block_size):
    metrics = pytest.importorskip("sklearn.metrics")
    points, labels = random_set(0, count=50)
    scores = retrieval_scores(
        points, labels, average_precision=True, block_size=block_size
    )
    found = []
    for i in range(50):
        others = np.arange(50) != i
        nearness = -np.linalg.norm(points[others] - points[i], axis=1)
        hits = labels[others] == labels[i]
        found.append(metrics.average_precision_score(hits, nearness))
    assert scores["mean_average_precision"] == pytest.approx(np.mean(found))


def test_average_precision_counts_ties_by_position():
    rng = np.random.default_rng(0)
    points = rng.integers(-2, 3, size=(60, 2)).astype("float32")
    labels = rng.integers(4, size=60)
    scores = retrieval_scores(
        points, labels, average_precision=True, map_at=(5, 500)
    )
    expected = slow_scores(
        points, labels, ks=(1, 2, 4, 5, 8, 500), all_measures=True
    )
    for name, value in scores.items():
        assert value == pytest.approx(expected[name], abs=1e-12), name
    assert scores["map_at_500"] == scores["mean_average_precision"]


def test_scores_of_each_class_are_those_of_its_queries():
    points, labels = random_set(0, count=60, classes=30)
    names = np.array([f"class {label}" for label in labels])
    whole = retrieval_scores(points, names, per_class=True, recall_at=(3,))
    classes = whole.pop("per_class")
    assert list(classes) == sorted(set(names))
    queries, rows = slow_rows(points, names, ks=(3,))
    for name, scores in classes.items():
        mine = [
            row
            for i, row in zip(queries, rows, strict=True)
            if names[i] == name
        ]
        assert scores["num_queries"] == len(mine)
        assert scores["num_dropped"] == np.sum(names == name) - len(mine)
        for measure in scores.keys() - {"num_queries", "num_dropped"}:
            expected = np.mean([row[measure] for row in mine])
            assert scores[measure] == pytest.approx(expected)
    total = sum(
        scores["map_at_r"] * scores["num_queries"]
        for scores in classes.values()
        if scores["num_queries"]
    )
    assert total / whole["num_queries"] == pytest.approx(whole["map_at_r"])


def test_precision_counts_to_i_and_not_to_r():
    # Ranking of query 0: wrong, right, wrong, right; R = 2.
    points = np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])
    scores = retrieval_scores(
        points[:1],
        [7],
        gallery_embeddings=points[1:],
        gallery_labels=[1, 7, 1, 7],
        recall_at=(1, 2),
    )
    assert scores["map_at_r"] == pytest.approx((1 / 2) / 2)
    assert scores["precision_at_r"] == pytest.approx(1 / 2)
    assert (scores["recall_at_1"], scores["recall_at_2"]) == (0.0, 1.0)


def test_a_query_is_removed_by_index_and_its_copies_stay():
    # 0, 1 and 2 are one point; the copy of another class is a real mistake.
    points = np.array([[1.0, 2.0]] * 3 + [[5.0, 5.0]] * 2)
    labels = [0, 1, 0, 1, 2]
    scores = retrieval_scores(points, labels, recall_at=(1, 2))
    assert_equal_scores(scores, slow_scores(points, labels, ks=(1, 2)))


@pytest.mark.parametrize("seed", range(3))
def test_ties_and_duplicates_are_ordered_by_index(seed):
    rng = np.random.default_rng(seed)
    points = rng.integers(-3, 4, size=(80, 2)).astype("float32")
    labels = rng.integers(4, size=80)
    for offset in (0.0, 4096.0):
        scores = retrieval_scores(points + offset, labels, block_size=13)
        expected = slow_scores(points, labels, ks=(1, 2, 4, 8))
        assert_equal_scores(scores, expected)


def test_identical_items_have_one_distance_whatever_their_column():
    rng = np.random.default_rng(0)
    distinct = rng.normal(size=(3, 97)).astype("float32")
    points = distinct[rng.integers(3, size=301)]
    labels = rng.integers(5, size=301)
    scores = retrieval_scores(points, labels, recall_at=())
    assert_equal_scores(scores, slow_scores(points, labels))


def test_a_common_offset_changes_nothing():
    points, labels = random_set(3)
    points = np.round(points * 256) / 256
    expected = retrieval_scores(points, labels)
    assert retrieval_scores(points + np.float32(1024), labels) == expected


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**80])
def test_tiny_and_huge_embeddings_rank_as_ordinary_ones(scale):
    points, labels = random_set(4)
    expected = retrieval_scores(points, labels)
    assert retrieval_scores(points * np.float32(scale), labels) == expected


def test_a_collapsed_encoder_ranks_by_index():
    labels = [0, 1, 0, 1]
    points = np.full((4, 3), 0.1, "float32")
    scores = retrieval_scores(points, labels, recall_at=())
    assert_equal_scores(scores, slow_scores(points, labels))


def test_lone_queries_are_dropped_and_counted():
    points, _ = random_set(0, count=5)
    scores = retrieval_scores(points, [0, 0, 1, 2, 3])
    assert (scores["num_queries"], scores["num_dropped"]) == (2, 3)


@pytest.mark.parametrize("block_size", [None, 3])
def test_scores_of_each_query_average_to_the_whole(block_size):
    points, labels = random_set(0, count=40, classes=25)
    whole = retrieval_scores(
        points, labels, per_query=True, block_size=block_size
    )
    rows = whole.pop("per_query")
    assert whole == retrieval_scores(points, labels, block_size=block_size)
    assert whole["num_dropped"] > 0
    for name, row in rows.items():
        assert np.isnan(row).sum() == whole["num_dropped"]
        assert np.nanmean(row) == pytest.approx(whole[name])
    _, all_rows = slow_rows(points, labels)
    for name in NAMES:
        found = rows[name][~np.isnan(rows[name])]
        expected = [row[name] for row in all_rows]
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_labels_may_be_strings_columns_tensors_or_huge_numbers():
    points, labels = random_set(1)
    expected = retrieval_scores(points, labels)
    names = np.array([f"class {label}" for label in labels])
    for same in (
        names,
        names.astype(object),
        names.astype("S"),
        labels[:, None],
        labels.astype("uint8"),
        labels.astype("float32"),
        keras.ops.convert_to_tensor(labels),
        labels + 2**53,
        labels.astype("uint64") + np.uint64(2**63),
    ):
        assert retrieval_scores(points, same) == expected


def test_bytes_and_text_are_the_same_labels():
    points, labels = random_set(1)
    names = np.array([f"é{label}" for label in labels])
    scores = retrieval_scores(
        points,
        np.char.encode(names, "utf-8"),
        gallery_embeddings=points,
        gallery_labels=names,
    )
    assert scores["precision_at_1"] == 1.0


def test_embeddings_may_be_tensors_lists_or_half_precision():
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


def test_scores_are_plain_python_numbers_under_the_public_name():
    points, labels = random_set(0)
    scores = gsp.metrics.retrieval_scores(points, labels, recall_at=(1, 1))
    assert list(scores) == NAMES + ["recall_at_1", "num_queries", "num_dropped"]
    kinds = [type(value) for value in scores.values()]
    assert kinds == [float] * 4 + [int] * 2
    assert scores["recall_at_1"] == scores["precision_at_1"]


def with_nan():
    points, _ = random_set(0, count=4)
    points[2, 1] = np.nan
    return points


POINTS, LABELS = random_set(0, count=4, classes=1)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((with_nan(), LABELS), {}, ValueError, "1 of 4 rows.*row 2"),
        ((POINTS[0], LABELS), {}, ValueError, r"shape \(5,\)"),
        ((POINTS[:0], LABELS[:0]), {}, ValueError, r"shape \(0, 5\)"),
        ((POINTS, LABELS[:3]), {}, ValueError, r"shape \(3,\)"),
        ((POINTS, np.eye(4)), {}, ValueError, r"shape \(4, 4\)"),
        ((POINTS, [0, 1, 2, 3]), {}, ValueError, "none with a positive"),
        ((POINTS, [0, 0, 0, np.nan]), {}, ValueError, "1 NaN of 4"),
        ((POINTS, [0, "a", None, 1]), {}, TypeError, "NoneType"),
        ((POINTS, np.ones(4, complex)), {}, TypeError, "complex128"),
        ((POINTS, LABELS), {"recall_at": (0,)}, ValueError, r"\(0,\)"),
        ((POINTS, LABELS), {"recall_at": (1.5,)}, ValueError, r"\(1.5,\)"),
        ((POINTS, LABELS), {"map_at": (0,)}, ValueError, r"map_at=\(0,\)"),
        (
            (POINTS, LABELS),
            {"query_groups": LABELS[:3]},
            ValueError,
            r"query_groups.*shape \(3,\)",
        ),
        (
            (POINTS, LABELS),
            {"query_groups": LABELS, "gallery_groups": LABELS},
            ValueError,
            "no gallery_embeddings",
        ),
        (
            (POINTS, LABELS),
            {
                "gallery_embeddings": POINTS,
                "gallery_labels": LABELS,
                "query_groups": LABELS,
            },
            ValueError,
            "no gallery_groups",
        ),
        (
            (POINTS, LABELS),
            {"distractor_embeddings": POINTS[:, :3]},
            ValueError,
            "the embeddings, 5. Received: 3",
        ),
        (
            (POINTS, np.ones((4, 3), bool)),
            {
                "gallery_embeddings": POINTS,
                "gallery_labels": np.ones((4, 2), bool),
            },
            ValueError,
            r"\(4, 3\) booleans.*\(4, 2\)",
        ),
        ((POINTS, LABELS), {"block_size": 0}, ValueError, "block_size=0"),
        ((POINTS, LABELS), {"block_size": 1.5}, ValueError, "block_size=1.5"),
        (
            (POINTS, LABELS),
            {"gallery_embeddings": POINTS},
            ValueError,
            "no gallery_labels",
        ),
        (
            (POINTS, LABELS),
            {"gallery_labels": LABELS},
            ValueError,
            "no gallery_embeddings",
        ),
        (
            (POINTS, LABELS),
            {"gallery_embeddings": POINTS[:, :3], "gallery_labels": LABELS},
            ValueError,
            "5 and 3",
        ),
        (
            (POINTS, LABELS),
            {"gallery_embeddings": POINTS, "gallery_labels": list("aaaa")},
            TypeError,
            "int64 and <U1",
        ),
        (
            (POINTS, LABELS),
            {"gallery_embeddings": POINTS, "gallery_labels": LABELS + 9},
            ValueError,
            "none with a positive",
        ),
    ],
)
def test_bad_input_is_refused(arguments, options, error, message):
    with pytest.raises(error, match=message):
        retrieval_scores(*arguments, **options)
