"""What operations refuse."""

import numpy as np

from keras_gsp.ops import greedy_k_center, partial_transport
from keras_gsp.ops.covering import covering_radius

POOL, COSTS = np.zeros((5, 2)), np.ones((2, 3))


def transport(costs=COSTS, ratio=0.5, sharpness=5.0):
    return partial_transport(
        costs, transport_ratio=ratio, inverse_temperature=sharpness
    )


ROWS = [
    *(
        (greedy_k_center, (POOL, POOL[:1], count), f"num_centers={count}")
        for count in (0, -1, 6)
    ),
    (greedy_k_center, (POOL, np.zeros((1, 3)), 1), "Received: 2 and 3"),
    (covering_radius, (POOL, POOL[:0]), "at least one center"),
    *(
        (transport, {"ratio": ratio}, r"in \(0, 1\].*Received")
        for ratio in (0.0, -0.1, 1.5, float("nan"))
    ),
    *(
        (transport, {"sharpness": value}, "`inverse_temperature` must be")
        for value in (0.0, -1.0, float("inf"), float("nan"))
    ),
    (transport, (COSTS[0],), r"shape \(3,\)"),
]
