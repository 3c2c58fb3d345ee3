"""What a signature calls a tensor."""

from typing import Any, TypeAlias

Tensor: TypeAlias = Any
"""A tensor or variable of the backend, a symbolic Keras tensor, or an array.

No type covers them all; shapes stand in the docstrings.
"""
