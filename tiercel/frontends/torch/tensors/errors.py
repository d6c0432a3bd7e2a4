"""Errors about tensors are also ``RuntimeError``, which torch itself raises for such arguments."""

from tiercel.errors import TiercelTypeError, TiercelValueError


class TensorValueError(TiercelValueError, RuntimeError):
    """A tensor of a shape that cannot be used."""


class TensorTypeError(TiercelTypeError, RuntimeError):
    """A tensor of a dtype, or an argument of a type, that cannot be used."""
