"""What callbacks refuse."""

from keras_gsp import callbacks
from tests.refusals._rows import out_of_range


def alternating(pool=(), **arguments):
    return callbacks.ChanceConstrainedProgramming(pool, **arguments)


ROWS = [
    *out_of_range(
        alternating,
        {
            "pool_size": [0],
            "patience": [0],
            "validation_freq": [0],
            "warmup_epochs": [-1],
            "pool": [None, "newest", 3],
        },
    ),
    (alternating, (iter([1]),), "no iterator.*pool=<list_iterator"),
]
