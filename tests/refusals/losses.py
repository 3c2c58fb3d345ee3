"""What losses refuse."""

import numpy as np

from keras_gsp import losses
from tests.refusals._rows import every_argument, out_of_range, rows

FREE = "base", "dtype", "name", "reduction"


def supcon(labels):
    return losses.SupConLoss()(labels, np.ones((7, 4)))


def between(labels, rows, excluded=None):
    return losses.ContrastiveLoss().between(
        [0, 1], np.ones((2, 3)), labels, rows, excluded=excluded
    )


def histograms(rows=9):
    return np.random.default_rng(0).dirichlet(np.ones(5), size=rows)


def zero_shot(labels):
    loss = losses.ZeroShotLoss()
    return loss.compute(np.array(labels), histograms(), np.eye(7, 3))


def cross_batch(labels, rows=9):
    loss = losses.CrossBatchLoss(PAIR)
    return loss.compute(np.array(labels), histograms(), np.ones((rows, 3)))


PAIR = losses.ContrastiveLoss()
OTHERS = {
    "CrossBatchLoss": {"pair_loss": PAIR},
    "MatryoshkaLoss": {"loss": PAIR},
}
ROWS = [
    *every_argument(losses, OTHERS, FREE),
    *out_of_range(losses.ArcFaceLoss, {"margin": [28.6], "temperature": [0.0]}),
    *out_of_range(losses.ContrastiveLoss, {"negative_margin": [np.nan]}),
    *out_of_range(losses.MultiSimilarityLoss, {"mining_margin": [-1]}),
    *out_of_range(losses.RecallAtKLoss, {"k": [()]}),
    *out_of_range(
        losses.SupConLoss,
        {"ignore_class": [0.5, 2**31], "miner": ["hard"], "seed": [0.5]},
    ),
    (losses.RecallAtKLoss, ((1, 0),), "`k` must be .*Received: k=0"),
    (supcon, (np.ones(3),), "same length. Received: 3 and 7"),
    (supcon, (np.ones((7, 7), int),), r"\(None, 1\).*\(7, 7\)"),
    *rows(
        between,
        (([0, 1], np.ones((2, 3, 1))), r"Received: shape \(2, 3, 1"),
        (([0, 1], np.ones((2, 4))), "same size. Received: 3 and 4"),
        (([0, 1], np.ones((2, 3)), np.eye(2, 3) > 0), "`excluded` must have"),
    ),
    (PAIR, ([], np.ones((0, 3))), "`embeddings` must have at least one row"),
    *rows(
        losses.ProxyNCALoss(),
        (([], np.ones((0, 3, 1))), "` must have at least one row"),
        (([0] * 8, np.ones((8, 5))), r"Received: shape \(8, 5\)"),
    ),
    (losses.CenterRegularizer(), (np.ones((4, 5)),), r"shape \(4, 5\)"),
    *rows(
        zero_shot,
        (([0, 7] * 4 + [1],), r"in \[0, 7\).*labels="),
    ),
    *rows(
        cross_batch,
        (([3] * 9,), "at least two classes"),
        ((range(9), 8), "`histograms` and `targets`"),
    ),
    (losses.CrossBatchLoss, ("triplet",), "must be a pair loss"),
    (losses.ZeroShotLoss(), ([0, 1], np.eye(2)), r"MetricLearner\(regulari"),
    *rows(
        losses.MatryoshkaLoss,
        ((PAIR, (4, 4)), "`sizes` must"),
        ((losses.ZeroShotLoss(),), "`loss` must be a pair loss"),
    ),
    (losses.MatryoshkaLoss(PAIR), ([0, 1], np.eye(2, 8)), "embedding size, 8"),
    (
        losses.MatryoshkaLoss(losses.ProxyNCALoss()),
        ([0, 1], np.eye(2, 8)),
        "Train with `MetricLearner",
    ),
]
