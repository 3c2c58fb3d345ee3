"""Type alias for tensors."""

from typing import Any, TypeAlias

Tensor: TypeAlias = Any
"""A backend tensor or variable, a symbolic Keras tensor, or an array.

No static type covers all of them; docstrings state shapes.
"""
