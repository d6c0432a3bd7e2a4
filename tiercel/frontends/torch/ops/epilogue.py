"""The operator ``tiercel::with_epilogue``: a product with a traced epilogue in a compiler's graph.

The graph holds the epilogue's key and its operands. Where autograd follows, and where the kernel
does not serve, the operator becomes the product and torch's operations, which the compiler fuses.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode

from tiercel.frontends.torch.epilogues.traced import by_kernel, evaluated, is_for_kernel
from tiercel.frontends.torch.ops import autograd
from tiercel.frontends.torch.ops.option_text import decode, encode
from tiercel.frontends.torch.routing.operands import transformed
from tiercel.frontends.torch.tensors.autocast import converted
from tiercel.lower.epilogue import Epilogue, Given
from tiercel.lower.epilogue.affine import affine
from tiercel.lower.epilogue.known import known
from tiercel.options import Options

#: ``names``: the operands, first those in ``tensors``, then those in ``numbers``.
SCHEMA = (
    "(Tensor a, Tensor b, Tensor? bias, str epilogue, str names, Tensor[] tensors, float[] numbers,"
    " str options) -> Tensor[]"
)
_TAGS = (torch.Tag.pt2_compliant_tag,)

#: Epilogues of graphs, which may outlive whatever else refers to them.
_held: dict[str, Epilogue] = {}

# What traces Python must not trace tracing. This is all that torch.compiler.assume_constant_result
# does, but calling it imports torch._dynamo and Triton, 1.5 s for everyone who never compiles.
affine._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]


def in_graph(
    given: Given, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, options: Options
) -> dict[str, torch.Tensor]:
    """The outputs of ``given`` for ``a @ b + bias`` as one node of a graph."""
    a, b, bias = converted(a), converted(b), None if bias is None else converted(bias)
    tensors = {x: y for x, y in given.operands.items() if isinstance(y, torch.Tensor)}
    numbers = {x: float(y) for x, y in given.operands.items() if x not in tensors}
    made = torch.ops.tiercel.with_epilogue(
        a, b, bias, given.epilogue.key, " ".join([*tensors, *numbers]),
        [*tensors.values()], [*numbers.values()], encode(options),
    )  # fmt: skip
    return dict(zip(given.epilogue.outputs, made, strict=True))


def _given(key: str, names: str, tensors: list[torch.Tensor], numbers: list[float]) -> Given:
    epilogue = _held.setdefault(key, known(key))
    return Given(epilogue, dict(zip(names.split(), [*tensors, *numbers], strict=True)))


def _kernel(
    a: torch.Tensor, b: torch.Tensor, bias: Any, key: str, names: str, tensors: list[torch.Tensor],
    numbers: list[float], options: str,
) -> list[torch.Tensor]:  # fmt: skip
    given = _given(key, names, tensors, numbers)
    made = by_kernel(given, a, b, bias, decode(options))
    if made is None:
        return _apart(a, b, bias, key, names, tensors, numbers, options)
    return [made[name] for name in given.epilogue.outputs]


def _apart(
    a: torch.Tensor, b: torch.Tensor, bias: Any, key: str, names: str, tensors: list[torch.Tensor],
    numbers: list[float], options: str,
) -> list[torch.Tensor]:  # fmt: skip
    """The product, then the epilogue in torch's operations."""
    given = _given(key, names, tensors, numbers)
    if b.dim() == 2:
        product = autograd.linear(a, b.mT, bias, options)
    else:
        product = torch.matmul(a, b)
        product = product if bias is None else product + bias
    seen: list[torch.Tensor] = [a, b, *tensors]
    for x in evaluated(given, product).values():
        # An operator's results are memory of their own; an epilogue may return an operand.
        seen.append(x.clone() if any(torch._C._is_alias_of(x, y) for y in seen) else x)
    return seen[2 + len(tensors) :]


def _followed(keys: Any, *arguments: Any) -> list[torch.Tensor]:
    """For the dispatcher's Autograd: differentiable operations where a derivative may be asked."""
    a, b, bias, _, _, tensors, *_ = arguments
    needed = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (a, b, bias, *tensors)
    )
    if needed or transformed() or forward_ad._current_level >= 0:
        return _apart(*arguments)
    operator = torch.ops.tiercel.with_epilogue.default
    return operator.redispatch(keys & torch._C._after_autograd_keyset, *arguments)


def _lowered(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """In a compiler's graph: the operator where the kernel serves, else what it stands for."""
    a, b, *_, options = args
    kept = is_for_kernel(a, b, decode(options))
    with mode:
        return torch.ops.tiercel.with_epilogue.run(*args) if kept else _apart(*args)


def register(library: torch.library.Library) -> None:
    """Define the operator; ``run`` is what a graph holds, see ``definitions.py``."""
    for overload in ("with_epilogue", "with_epilogue.run"):
        library.define(overload + SCHEMA, tags=_TAGS)
        library.impl(overload, _kernel, "CompositeExplicitAutograd")
        torch.library.register_fake(f"tiercel::{overload}", _apart, lib=library)
    library.impl("with_epilogue", _followed, "Autograd", with_keyset=True)
    torch.library.register_torch_dispatch(
        "tiercel::with_epilogue", ProxyTorchDispatchMode, _lowered, lib=library
    )
