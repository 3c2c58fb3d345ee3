"""What losses refuse."""

import numpy as np

from keras_gsp import losses
from tests.refusals._rows import out_of_range

OUT_OF_RANGE = {
    "ArcFaceLoss": {"margin": [28.6, -0.1], "temperature": [0.0]},
    "CircleLoss": {"margin": [0.0, 1.0], "temperature": [0.0]},
    "ContrastiveLoss": {"positive_margin": [-0.1], "negative_margin": [np.nan]},
    "CosFaceLoss": {"margin": [-0.1], "temperature": [-1.0]},
    "CosineContrastiveLoss": {"margin": [-0.5]},
    "MarginLoss": {"margin": [-0.1], "beta": [0.0]},
    "MultiSimilarityLoss": {"alpha": [0], "beta": [-1], "mining_margin": [-1]},
    "NTXentLoss": {"temperature": [-1.0]},
    "NormalizedSoftmaxLoss": {"temperature": [0]},
    "ProxyAnchorLoss": {"margin": [-0.1], "alpha": [0]},
    "ProxyNCALoss": {"temperature": [0]},
    "RecallAtKLoss": {"temperature": [0.0], "k": [(), 3]},
    "SmoothAPLoss": {"temperature": [0.0], "miner": ["semi_hard"]},
    "SoftTripleLoss": {"scale": [-1], "gamma": [-1], "margin": [-1]},
    "SupConLoss": {
        "temperature": [0.0],
        "ignore_class": [0.5],
        "normalization": ["l1"],
        "miner": ["hard", 3],
        "seed": [0.5],
    },
    "TripletLoss": {"margin": [-1]},
    "ZeroShotLoss": {"ridge": [0], "scale": [0]},
}


def supcon(labels):
    return losses.SupConLoss()(labels, np.ones((7, 4)))


def between(labels, rows, excluded=None):
    return losses.ContrastiveLoss().between(
        [0, 1], np.ones((2, 3)), labels, rows, excluded=excluded
    )


ROWS = [
    row
    for name, refused in OUT_OF_RANGE.items()
    for row in out_of_range(getattr(losses, name), refused)
]
ROWS += [
    (losses.RecallAtKLoss, ((1, 0),), "`k` must be .*Received: k=0"),
    (supcon, (np.ones(3),), "same length. Received: 3 and 7"),
    (supcon, (np.ones((7, 7), int),), r"\(batch,\) or .*\(7, 7\)"),
    (between, ([0, 1], np.ones((2, 3, 1))), r"Received: shape \(2, 3, 1"),
    (between, ([0], np.ones((2, 3))), "`reference_labels` and"),
    (between, ([0, 1], np.ones((2, 4))), "same size. Received: 3 and 4"),
    (
        between,
        ([0, 1], np.ones((2, 3)), np.ones((2, 3), bool)),
        "`excluded` must have shape",
    ),
]
