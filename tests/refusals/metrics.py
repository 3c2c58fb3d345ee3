"""What metrics refuse."""

import numpy as np

from keras_gsp import metrics

POINTS = np.random.default_rng(0).normal(size=(6, 5))
LABELS = np.array([0, 0, 1, 1, 2, 2])
BAD = np.where(np.arange(30).reshape(6, 5) == 12, np.nan, POINTS)
SCORES, CLASSES = np.linspace(0, 1, 6), np.arange(6)
GAP = np.where(CLASSES == 3, np.nan, 0.0)


def scores(**options):
    options = {"embeddings": POINTS, "labels": LABELS} | options
    metrics.retrieval_scores(**options)


def beside(embeddings=POINTS, labels=LABELS):
    scores(gallery_embeddings=embeddings, gallery_labels=labels)


def verify(embeddings=POINTS, labels=LABELS, **options):
    metrics.verification_scores(embeddings, labels, **options)


def reranked(gallery=None, **options):
    metrics.k_reciprocal(POINTS, gallery_embeddings=gallery, **options)


compare = metrics.paired_difference
ROWS = [
    (scores, {"embeddings": BAD}, "1 of 6 rows.*row 2"),
    (scores, {"embeddings": POINTS[0]}, r"shape \(5,\)"),
    (scores, {"labels": CLASSES}, "none with a positive"),
    (scores, {"recall_at": (0,)}, "recall_at=0"),
    (beside, {"labels": None}, "no gallery_labels"),
    (beside, (POINTS[:, :3],), "5 and 3"),
    (beside, {"labels": list("aaabbb")}, "int64 and <U1"),
    (verify, {"labels": 0 * LABELS}, "pair of two classes.*6 items"),
    (verify, {"labels": CLASSES}, "pair of one class.*6 items"),
    (verify, {"false_accept_rates": (1.5,)}, "false_accept_rates=1.5"),
    (reranked, {"num_neighbors": 0}, "num_neighbors=0"),
    (reranked, (0 * POINTS,), "6 rows of zeros"),
    (compare, (SCORES, SCORES[:5], CLASSES), r"\[6\] and \[5\]"),
    (compare, (SCORES, SCORES, [CLASSES] * 2), "2 for 1 seeds"),
    (compare, (SCORES, SCORES, 0 * CLASSES), "two classes.*Received: 1"),
    (compare, (SCORES, SCORES + GAP, CLASSES), "position 3 of seed 0"),
    (compare, (SCORES, SCORES - np.inf, CLASSES), "6 infinite"),
    (compare, (SCORES[None, None], SCORES, CLASSES), r"\(1, 6\)"),
]
