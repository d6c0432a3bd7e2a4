"""Every error that tiercel raises on purpose.

One family, so that ``except tiercel.TiercelError`` catches all of it, and each member is also the
built-in exception that NumPy or PyTorch would have raised, so that existing handlers keep working.
"""


class TiercelError(Exception):
    """Base class of all errors raised by tiercel."""


class TiercelValueError(TiercelError, ValueError):
    """A shape, an option or a budget that cannot be satisfied."""


class TiercelTypeError(TiercelError, TypeError):
    """An argument of a type or dtype that is not accepted."""


class TiercelRuntimeError(TiercelError, RuntimeError):
    """Something that the machine cannot do: a missing target, driver or compiler."""
