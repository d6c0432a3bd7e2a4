"""The options of a product: what a caller may ask for, checked once and hashable.

The arrays and the bias vector are not options: they change from call to call, these do not.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral, Real
from typing import Any

import numpy as np

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.targets.vendor import EPILOGUES

ACCURACY_CLASSES = ("classical", "standard", "fast")

#: Kernels that may be asked for by name.
TARGETS = ("hopper",)

#: Suffix of a workspace string -> bytes. Binary and decimal units mean what IEC 80000-13 says.
_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9,
    "kib": 2**10, "mib": 2**20, "gib": 2**30,
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """Checked options of one product; equal options make equal plans.

    ``epilogue`` is the name of an elementwise function, a ``Given`` (a traced epilogue with its
    operands) or None. ``accuracy`` is a class name or a bound on the error growth over the
    classical product. ``workspace`` counts bytes, None means no cap. ``scheme`` is None (the
    planner chooses), a name or a ``Scheme``. ``threads`` is None (as many as the process may use)
    or a positive count. ``batch_invariant``: a row of the result has the same bits whatever the
    other rows are. ``verify``: products are probed afterwards. ``target``: the kernels that must
    run, None where the planner may choose.
    """

    epilogue: Any = None
    accuracy: str | float = "standard"
    workspace: int | None = None
    scheme: Any = None
    threads: int | None = None
    batch_invariant: bool = False
    verify: bool = False
    target: str | None = None

    @property
    def is_traced(self) -> bool:
        """Whether the epilogue is a traced one, with its operands."""
        return self.epilogue is not None and not isinstance(self.epilogue, str)

    def with_epilogue(self, epilogue: Any) -> Options:
        """These options with another epilogue, None for none."""
        # Not by `dataclasses.replace`, which torch.compile cannot follow before PyTorch 2.7.
        return Options(
            epilogue, self.accuracy, self.workspace, self.scheme, self.threads,
            self.batch_invariant, self.verify, self.target,
        )  # fmt: skip

    def with_accuracy(self, accuracy: str | float) -> Options:
        """These options with another accuracy."""
        return Options(
            self.epilogue, accuracy, self.workspace, self.scheme, self.threads,
            self.batch_invariant, self.verify, self.target,
        )  # fmt: skip


DEFAULT = Options()


def checked_options(
    epilogue: Any = None,
    accuracy: str | float | None = None,
    workspace: int | str | None = None,
    scheme: Any = None,
    threads: int | None = None,
    batch_invariant: bool = False,
    verify: bool = False,
    target: str | None = None,
) -> Options:
    """Options from what the caller typed.

    Raises ``TiercelValueError`` or ``TiercelTypeError`` naming the option, what came and what is
    allowed.

    >>> checked_options(workspace="256MiB", accuracy=3).workspace
    268435456
    >>> checked_options(epilogue="tanh")
    Traceback (most recent call last):
      ...
    tiercel.errors.TiercelValueError: epilogue='tanh' is not known; allowed: \
'relu', 'gelu', 'gelu_tanh', 'silu', a traced epilogue (tiercel.epilogue), or None
    """
    if (given := _given(epilogue)) is not None:
        # Not through the cache, which would keep the operands' memory.
        plain = checked_options(
            None, accuracy, workspace, scheme, threads, batch_invariant, verify, target
        )
        return plain.with_epilogue(given)
    values = epilogue, accuracy, workspace, scheme, threads, batch_invariant, verify, target
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    if compiler is not None and compiler.is_compiling():
        return _checked(*values)  # torch's compiler follows no cache, and says so in a warning
    try:
        return _cached(*values)
    except TypeError:
        # An unhashable value cannot be looked up; checking it directly names the culprit.
        return _checked(*values)


def _checked(
    epilogue, accuracy, workspace, scheme, threads, batch_invariant, verify, target
) -> Options:
    return Options(
        epilogue=_epilogue(epilogue),
        accuracy=_accuracy(accuracy),
        workspace=_workspace(workspace),
        scheme=_scheme(scheme),
        threads=_threads(threads),
        batch_invariant=checked_switch("batch_invariant", batch_invariant),
        verify=checked_switch("verify", verify),
        target=_target(target),
    )


# typed: True == 1 in a cache key, but only 1 is a number of threads.
_cached = lru_cache(maxsize=256, typed=True)(_checked)


def _given(epilogue: Any) -> Any:
    """A traced epilogue with its operands; None for everything else."""
    if epilogue is None or isinstance(epilogue, str):
        return None
    from tiercel.lower.epilogue import Epilogue, Given

    if isinstance(epilogue, Epilogue):
        return epilogue.given()
    return epilogue if isinstance(epilogue, Given) else None


def _epilogue(name: Any) -> str | None:
    if name is None or (isinstance(name, str) and name in EPILOGUES):
        return name
    allowed = ", ".join(map(repr, EPILOGUES))
    raise _error_for(name, str)(
        f"epilogue={name!r} is not known; allowed: {allowed}, a traced epilogue "
        "(tiercel.epilogue), or None"
    )


def _accuracy(value: Any) -> str | float:
    if value is None:
        return DEFAULT.accuracy
    if isinstance(value, str) and value in ACCURACY_CLASSES:
        return value
    if isinstance(value, Real) and not isinstance(value, bool) and 1 <= float(value) < math.inf:
        return float(value)
    allowed = ", ".join(map(repr, ACCURACY_CLASSES))
    raise _error_for(value, (str, Real))(
        f"accuracy={value!r} is not known; allowed: {allowed}, or a bound >= 1 on the growth of "
        "the error over the classical product"
    )


def _workspace(value: Any) -> int | None:
    if value is None:
        return None
    if is_count(value) and value >= 0:
        return int(value)
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", value.lower())
        if match and match[2] in _UNITS:
            return int(float(match[1]) * _UNITS[match[2]])
    raise _error_for(value, (str, Integral))(
        f"workspace={value!r} is not a size; allowed: bytes as an int >= 0, or a string such as "
        "'256MiB' or '1.5GB'"
    )


def _scheme(value: Any) -> Any:
    if value is None or (isinstance(value, str) and value):
        return value
    from tiercel.schemes import Scheme

    if isinstance(value, Scheme):
        return value
    raise _error_for(value, str)(
        f"scheme={value!r} names nothing; allowed: None, the name of a scheme, 'classical', "
        "'vendor', or a tiercel.schemes.Scheme"
    )


def _target(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and value in TARGETS):
        return value
    raise _error_for(value, str)(
        f"target={value!r} is not known; allowed: {', '.join(map(repr, TARGETS))}, or None for "
        "whatever is fastest"
    )


def _threads(value: Any) -> int | None:
    if value is None:
        return None
    if is_count(value) and value >= 1:
        return int(value)
    raise _error_for(value, Integral)(
        f"threads={value!r} is not a thread count; allowed: an int >= 1, or None for all allowed"
    )


def checked_switch(name: str, value: Any) -> bool:
    """True or False, Python's or NumPy's; raises ``TiercelTypeError`` for everything else."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise TiercelTypeError(f"{name}={value!r} is not a switch; allowed: True or False")


def is_count(value: Any) -> bool:
    """Whether it is a whole number, Python's or NumPy's."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _error_for(value: Any, kinds: Any) -> type[TiercelTypeError] | type[TiercelValueError]:
    """A value of an accepted type is a bad value; anything else is a bad type."""
    accepted = isinstance(value, kinds) and not isinstance(value, bool)
    return TiercelValueError if accepted else TiercelTypeError
