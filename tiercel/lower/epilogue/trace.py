"""`epilogue` traces a Python function once; an `Epilogue` is what it did."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, overload

import numpy as np

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.lower.epilogue.graph import (
    ACC,
    Node,
    Output,
    Reduction,
    as_node,
    node_of,
    operand,
    topological,
)
from tiercel.lower.epilogue.instance import Array, Instance, bind, with_defaults
from tiercel.lower.epilogue.kinds import KINDS, Kind, Shape
from tiercel.lower.epilogue.known import key_of, remember
from tiercel.lower.epilogue.reference import NUMPY, evaluate, instance_for
from tiercel.lower.epilogue.simplify import rebuilt, simplified
from tiercel.lower.epilogue.text import describe

#: Name of the output of a function that returns one value instead of a dictionary.
ONLY = "out"


@dataclass(frozen=True, eq=False, repr=False)
class Epilogue:
    """A traced function of the accumulator and operands; made by `epilogue`.

    Called inside another epilogue it becomes part of it; called on an array (..., M, N) it
    computes its outputs with NumPy in the array's dtype (float64 for integers). ``print`` shows
    the expressions. ``parameters`` are the operands in order, ``defaults`` those that may be left
    out, ``pinned`` kinds that are declared rather than told from shapes, ``single`` that the
    function returned one value and no dictionary, ``key`` a text that is the same for all epilogues
    that compute the same (`known`).
    """

    name: str
    accumulator: str
    parameters: tuple[str, ...]
    outputs: Mapping[str, Output]
    defaults: Mapping[str, float]
    pinned: Mapping[str, Kind]
    single: bool
    key: str
    doc: str = ""

    def __call__(self, acc: Any, /, **operands: Any) -> Any:
        """Outputs of an array, or traced values within another epilogue."""
        if any(isinstance(x, Node | Reduction) for x in (acc, *operands.values())):
            results = self._inlined(acc, operands)
        else:
            acc = np.asarray(acc)
            dtype = acc.dtype if acc.dtype.kind == "f" else np.dtype(np.float64)
            results = self.evaluate(acc, operands, dtype)
        return results[ONLY] if self.single else results

    def evaluate(
        self,
        acc: Any,
        operands: Mapping[str, Any],
        dtype: Any = np.float64,
        functions: Mapping[str, Callable[..., Any]] = NUMPY,
    ) -> dict[str, Any]:
        """Every output by name, computed in ``dtype``: float64 is the reference of all lowerings.

        acc is (..., M, N). Reductions are complete: (..., M, 1) or (..., 1, N).
        """
        acc = np.asarray(acc)
        if acc.ndim < 2:
            raise TiercelValueError(
                f"the accumulator has shape {acc.shape}; allowed: (..., M, N), two axes or more"
            )
        return evaluate(instance_for(self, acc, operands), acc, operands, dtype, functions)

    def given(self, /, **operands: Any) -> Given:
        """The epilogue with its operands, to be passed to a product: ``matmul(a, b, epilogue=)``.

        Raises ``TiercelValueError`` for operands that are missing or unknown.
        """
        with_defaults(self, {name: Array(None) for name in operands})
        return Given(self, operands)

    def bind(
        self,
        acc: Shape,
        operands: Mapping[str, Array],
        outputs: Mapping[str, Array] | None = None,
        dtype: str = "float32",
    ) -> Instance:
        """The instance for a product of shape ``acc``; see ``instance.bind``."""
        return bind(self, acc, operands, outputs, dtype)

    @cached_property
    def vjp(self) -> Epilogue:
        """The derivative as another epilogue: gradients of the accumulator and every operand.

        See ``derivative.derivative`` for its operands, outputs and conventions.
        """
        from tiercel.lower.epilogue.derivative import derivative

        return derivative(self)

    def derivative(self, *wrt: str, recompute: bool = False) -> Epilogue:
        """The derivative for some of the accumulator and operands only; `vjp` has the rest."""
        from tiercel.lower.epilogue.derivative import derivative

        return derivative(self, wrt or None, recompute)

    @cached_property
    def repeated(self) -> Mapping[str, Node]:
        """Operands that are repeated along the columns -> the node that repeats them."""
        nodes = topological([node_of(out) for out in self.outputs.values()])
        return {x.args[0].value: x for x in nodes if x.op == "repeat"}

    def explain(self, instance: Instance | None = None) -> str:
        """What is computed, one line per shared value and output; kinds too with an instance."""
        return describe(self, instance)

    def __str__(self) -> str:
        return describe(self)

    def __repr__(self) -> str:
        return f"<epilogue {self.name}({', '.join([self.accumulator, *self.parameters])})>"

    def _inlined(self, acc: Any, operands: Mapping[str, Any]) -> dict[str, Output]:
        given: dict[str, Any] = {**self.defaults, **operands}
        if set(given) != set(self.parameters):
            raise TiercelValueError(
                f"{self.name} was called with {', '.join(given) or 'no operands'}; allowed: "
                f"{', '.join(self.parameters) or 'none'}"
            )
        nodes = topological([node_of(out) for out in self.outputs.values()])
        known = {x: as_node(acc) for x in nodes if x.op == "acc"}
        known |= {x: as_node(given[x.value]) for x in nodes if x.op == "operand"}
        return rebuilt(self.outputs, lambda x: x, known)


@dataclass(frozen=True, eq=False)  # compared by identity, as the arrays it holds
class Given:
    """An epilogue and the arrays for its operands; made by `Epilogue.given`."""

    epilogue: Epilogue
    operands: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<epilogue {self.epilogue.name} with {', '.join(self.operands) or 'no operands'}>"


@overload
def epilogue(function: Callable[..., Any], /) -> Epilogue: ...
@overload
def epilogue(**kinds: Kind) -> Callable[[Callable[..., Any]], Epilogue]: ...
def epilogue(function: Callable[..., Any] | None = None, /, **kinds: Kind) -> Any:
    """Decorator: what follows a product, written as a function of one element of it.

    The first parameter is the accumulator (..., M, N), the others are operands; a default value
    makes one an optional number. The function is called once, with traced values: Python control
    flow runs then, and only operations on values are recorded. It returns one value, or a
    dictionary of outputs: values (stored as tiles) and reductions.

    What an operand is follows from the shape that is passed: (M, N) a tile, (1, N) or (N,) a row,
    (M, 1) a column, a number or one element a scalar, (B, 1, 1) a value per matrix. ``kinds``
    declares it instead: ``@epilogue(bias="row")``.

    Raises ``TiercelTypeError`` or ``TiercelValueError`` for functions that cannot be traced.

    >>> from tiercel.epilogues import gelu
    >>> @epilogue(bias="row")
    ... def scaled_gelu(acc, bias, scale=1.0):
    ...     return gelu(acc * scale + bias)
    >>> print(scaled_gelu)
    scaled_gelu(acc, bias, scale=1)
      t0 = acc * scale + bias
      out = t0 * normal_cdf(t0)
    >>> scaled_gelu(np.zeros((1, 2)), bias=np.array([0.0, 1.0])).round(4).tolist()
    [[0.0, 0.8413]]
    """
    if function is None:
        return lambda function: _traced(function, kinds)
    return _traced(function, kinds)


def _traced(function: Callable[..., Any], kinds: Mapping[str, Kind]) -> Epilogue:
    name = getattr(function, "__name__", "epilogue").strip("<>")
    accumulator, parameters, defaults = _signature(function, name)
    for parameter, kind in kinds.items():
        if parameter not in parameters or kind not in KINDS:
            raise TiercelValueError(
                f"{parameter}={kind!r} declares no operand of {name}; allowed: one of "
                f"{', '.join(parameters) or 'no operands'} = {', '.join(map(repr, KINDS))}"
            )
    returned = function(ACC, **{x: operand(x) for x in parameters})
    return assembled(
        name, accumulator, parameters, returned, defaults, kinds, inspect.getdoc(function) or ""
    )


def assembled(
    name: str,
    accumulator: str,
    parameters: tuple[str, ...],
    returned: Any,
    defaults: Mapping[str, float] | None = None,
    pinned: Mapping[str, Kind] | None = None,
    doc: str = "",
) -> Epilogue:
    """An epilogue of what a traced function returned."""
    single = not isinstance(returned, Mapping)
    outputs = {ONLY: returned} if single else dict(returned)
    if not outputs:
        raise TiercelValueError(f"{name} returned no output; allowed: one value, or at least one")
    for key, value in outputs.items():
        if not (isinstance(key, str) and key.isidentifier()) or key in (accumulator, *parameters):
            raise TiercelValueError(
                f"{name} named an output {key!r}; allowed: Python identifiers that name neither "
                "the accumulator nor an operand"
            )
        outputs[key] = value if isinstance(value, Reduction) else as_node(value)
    defaults, pinned, outputs = defaults or {}, pinned or {}, simplified(outputs)
    key = key_of(name, parameters, outputs, defaults, pinned)
    made = Epilogue(name, accumulator, parameters, outputs, defaults, pinned, single, key, doc)
    _check_repeats(made)
    remember(made)
    return made


def _signature(
    function: Callable[..., Any], name: str
) -> tuple[str, tuple[str, ...], dict[str, float]]:
    found = list(inspect.signature(function).parameters.values())
    if not found or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found):
        raise TiercelTypeError(
            f"{name} must name its parameters: the accumulator, then the operands; *args and "
            "**kwargs are not allowed"
        )
    accumulator, *rest = found
    defaults = {}
    for p in rest:
        if p.default is not p.empty:
            if not isinstance(p.default, Real) or isinstance(p.default, bool):
                raise TiercelTypeError(
                    f"{name} has {p.name}={p.default!r}; allowed as a default: a number"
                )
            defaults[p.name] = float(p.default)
    return accumulator.name, tuple(p.name for p in rest), defaults


def _check_repeats(made: Epilogue) -> None:
    nodes = topological([node_of(out) for out in made.outputs.values()])
    for table in (x for x in nodes if x.op == "operand"):
        users = [x for x in nodes if any(arg is table for arg in x.read)]
        if any(x.op == "repeat" for x in users) and len(users) > 1:
            raise TiercelValueError(
                f"{made.name} uses operand {table.value!r} repeated and in another way, or along "
                "two values; allowed: one repeat_columns for an operand and no other use of it"
            )
    for x in nodes:
        if x.op == "repeat" and x.args[0].op != "operand":
            raise TiercelTypeError(
                f"{made.name} repeats {x.args[0]!r}; allowed: a parameter of the epilogue itself"
            )
