"""What operations refuse."""

import numpy as np

from keras_gsp.ops import (
    class_disjoint_halves,
    greedy_k_center,
    partial_transport,
)
from keras_gsp.ops.halves import given_or_drawn_halves

POOL, COSTS = np.zeros((5, 2)), np.ones((2, 3))


def transport(costs=COSTS, ratio=0.5, sharpness=5.0):
    return partial_transport(
        costs, transport_ratio=ratio, inverse_temperature=sharpness
    )


ROWS = [
    (greedy_k_center, (POOL, POOL[:1], 0), "num_centers=0"),
    (greedy_k_center, (POOL, POOL[:1], 6), "num_centers=6"),
    (greedy_k_center, (POOL, np.zeros((1, 3)), 1), "same size.*2 and 3"),
    (transport, {"ratio": float("nan")}, r"in \(0, 1\].*Received"),
    (transport, {"sharpness": float("inf")}, "`inverse_temperature` must be"),
    (transport, (COSTS[0],), r"shape \(3,\)"),
    (class_disjoint_halves, ([4, 4], 0), "two classes.*labels=.4"),
    (class_disjoint_halves, (np.ones((2, 3)), 0), r"shape \(2, 3\)"),
    *(
        (given_or_drawn_halves, (np.array([0, 1]), halves, 0), message)
        for halves, message in (
            (np.array([0, 1]), "must be boolean"),
            (np.ones(3, bool), "`first_half`"),
            (np.ones((2, 1), bool), "`first_half`.*Received"),
        )
    ),
]
