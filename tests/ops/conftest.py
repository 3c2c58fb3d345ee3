"""On PyTorch values are computed without a tape."""

from tests.gradients import values_without_a_tape  # noqa: F401
