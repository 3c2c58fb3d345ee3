"""What operations refuse."""

import numpy as np

from keras_gsp import layers
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
    *(
        (greedy_k_center, (POOL, POOL[:1], count), f"num_centers={count}")
        for count in (0, 6)
    ),
    (
        greedy_k_center,
        (POOL, np.zeros((1, 3)), 1),
        "same size. Received: 2 and 3",
    ),
    *(
        (transport, {"ratio": ratio}, r"in \(0, 1\].*Received")
        for ratio in (0.0, 1.5, float("nan"))
    ),
    *(
        (transport, {"sharpness": value}, "`inverse_temperature` must be")
        for value in (0.0, float("inf"))
    ),
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
    (
        layers.EmbeddingMemory(4),
        (np.ones((2, 3), "float32"), [1, 2**32 + 1]),
        "32 bits.*4294967297",
    ),
    (layers.ClassEmbeddings(3, 2), (["a", "b"],), "be numbers.*strings"),
]
