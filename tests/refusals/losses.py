"""What losses refuse."""

import numpy as np

from keras_gsp import losses
from tests.refusals._rows import out_of_range, rows

OUT_OF_RANGE = {
    "ArcFaceLoss": {"margin": [28.6], "temperature": [0.0]},
    "CircleLoss": {"margin": [1.0], "temperature": [0.0]},
    "ContrastiveLoss": {"positive_margin": [-0.1], "negative_margin": [np.nan]},
    "CosFaceLoss": {"margin": [-0.1], "temperature": [-1.0]},
    "CosineContrastiveLoss": {"margin": [-0.5]},
    "MarginLoss": {"margin": [-0.1], "beta": [0.0]},
    "MultiSimilarityLoss": {"alpha": [0], "beta": [-1], "mining_margin": [-1]},
    "NTXentLoss": {"temperature": [-1.0]},
    "NormalizedSoftmaxLoss": {"temperature": [0]},
    "ProxyAnchorLoss": {"margin": [-0.1], "alpha": [0]},
    "ProxyNCALoss": {"temperature": [0]},
    "RecallAtKLoss": {"temperature": [0.0], "k": [()]},
    "SmoothAPLoss": {"temperature": [0.0], "miner": ["semi_hard"]},
    "SoftTripleLoss": {"scale": [-1], "gamma": [-1], "margin": [-1]},
    "SupConLoss": {
        "temperature": [0.0],
        "ignore_class": [0.5, 2**31],
        "normalization": ["l1"],
        "miner": ["hard"],
        "seed": [0.5],
    },
    "TripletLoss": {"margin": [-1]},
    "ZeroShotLoss": {"ridge": [0], "scale": [0], "seed": ["a"]},
}


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
ROWS = [
    row
    for name, refused in OUT_OF_RANGE.items()
    for row in out_of_range(getattr(losses, name), refused)
]
ROWS += [
    (losses.RecallAtKLoss, ((1, 0),), "`k` must be .*Received: k=0"),
    (supcon, (np.ones(3),), "same length. Received: 3 and 7"),
    (supcon, (np.ones((7, 7), int),), r"\(None, 1\).*\(7, 7\)"),
    *rows(
        between,
        (([0, 1], np.ones((2, 3, 1))), r"Received: shape \(2, 3, 1"),
        (([0], np.ones((2, 3))), "`reference_labels` and"),
        (([0, 1], np.ones((2, 4))), "same size. Received: 3 and 4"),
        (([0, 1], np.ones((2, 3)), np.eye(2, 3) > 0), "`excluded` must have"),
    ),
    (PAIR, ([], np.ones((0, 3))), "`embeddings` must have at least one row"),
    *rows(
        losses.ProxyNCALoss(),
        (([], np.ones((0, 3, 1))), "` must have at least one row"),
        (([0] * 8, np.ones((8, 5))), r"Received: shape \(8, 5\)"),
        (([0] * 3, np.ones((8, 5, 1))), "`labels` and `similarities`"),
    ),
    *out_of_range(losses.CenterRegularizer, {"weight": [-0.1]}),
    (losses.CenterRegularizer(), (np.ones((4, 5)),), r"shape \(4, 5\)"),
    *rows(
        zero_shot,
        (([0, 7] * 4 + [1],), r"in \[0, 7\).*labels="),
        ((["a"] * 9,), "must be numbers"),
        (([0, 1],), "`labels` and `histograms`"),
    ),
    *rows(
        cross_batch,
        (([3] * 9,), "at least two classes"),
        (([np.nan, *range(8)],), "must not be NaN"),
        (([0, 1],), "`labels` and `embeddings`|`labels` and"),
        ((range(9), 8), "`histograms` and `targets`"),
    ),
    (losses.CrossBatchLoss, ("triplet",), "must be a pair loss"),
    *out_of_range(
        losses.CrossBatchLoss, {"ridge": [0], "seed": [1.5]}, pair_loss=PAIR
    ),
    (losses.ZeroShotLoss(), ([0, 1], np.eye(2)), r"MetricLearner\(regulari"),
    *rows(
        losses.MatryoshkaLoss,
        ((PAIR, (4, 4)), "`sizes` must"),
        ((PAIR, (4, 0)), "`sizes` must"),
        ((losses.ZeroShotLoss(),), "`loss` must be a pair loss"),
    ),
    (losses.MatryoshkaLoss(PAIR), ([0, 1], np.eye(2, 8)), "embedding size, 8"),
    (
        losses.MatryoshkaLoss(losses.ProxyNCALoss()),
        ([0, 1], np.eye(2, 8)),
        "Train with `MetricLearner",
    ),
]
