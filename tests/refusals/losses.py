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
        "label_kind": ["matrix"],
        "ignore_class": [0.5],
        "normalization": ["l1"],
        "miner": ["hard", 3],
        "seed": [0.5],
    },
    "TripletLoss": {"margin": [-1]},
    "ZeroShotLoss": {"ridge": [0], "scale": [0]},
}
ROWS = [
    row
    for name, refused in OUT_OF_RANGE.items()
    for row in out_of_range(getattr(losses, name), refused)
]
ROWS += [
    (losses.RecallAtKLoss, ((1, 0),), "`k` must be .*Received: k=0"),
]
