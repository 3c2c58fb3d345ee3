"""Counters and scores that live in variables."""

from keras import ops


def scalar(variable):
    """Returns the value of a scalar variable as an int or a float.

    `int(variable)` fails for a variable that `MirroredStrategy` has copied to
    every replica.
    """
    return ops.convert_to_numpy(variable).item()
