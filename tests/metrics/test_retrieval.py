"""retrieval_scores against explicit loops over queries and ranks."""

import keras
import numpy as np
import pytest

import keras_gsp as gsp
from keras_gsp.metrics.retrieval import retrieval_scores

NAMES = ["precision_at_1", "precision_at_r", "map_at_r"]


def slow_scores(embeddings, labels, gallery=None, gallery_labels=None, ks=()):
    """The definitions, one query and one rank at a time, in float64."""
    embeddings = np.asarray(embeddings, "float64")
    others = embeddings if gallery is None else np.asarray(gallery, "float64")
    other_labels = labels if gallery is None else gallery_labels
    rows, dropped = [], 0
    for i in range(len(embeddings)):
        items = [j for j in range(len(others)) if gallery is not None or j != i]
        distance = {j: np.sum((embeddings[i] - others[j]) ** 2) for j in items}
        items.sort(key=lambda j: (distance[j], j))
        hits = [other_labels[j] == labels[i] for j in items]
        positives = sum(hits)
        if positives == 0:
            dropped += 1
            continue
        average = 0.0
        for rank in range(1, positives + 1):
            if hits[rank - 1]:
                average += sum(hits[:rank]) / rank
        row = [hits[0], sum(hits[:positives]) / positives, average / positives]
        rows.append(row + [any(hits[:k]) for k in ks])
    names = NAMES + [f"recall_at_{k}" for k in ks]
    scores = dict(zip(names, np.mean(rows, axis=0), strict=True))
    return scores | {"num_queries": len(rows), "num_dropped": dropped}


def random_set(seed, count=60, classes=9, size=5, noise=0.7):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    centres = rng.normal(size=(classes, size))
    points = centres[labels] + noise * rng.normal(size=(count, size))
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
    for i in (0, 7, 20):
        lone = (
            slow_scores(
                points[i : i + 1],
                labels[i : i + 1],
                np.delete(points, i, axis=0),
                np.delete(labels, i),
            )
            if np.sum(labels == labels[i]) > 1
            else {}
        )
        for name in set(lone) & set(rows):
            assert rows[name][i] == pytest.approx(lone[name])


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
