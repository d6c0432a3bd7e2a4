"""Calls like one that a plan of ours has run: they go to that plan at once.

Judging operands, finding the plan and preparing its kernels anew takes most of the host's time for
a call on a GPU, and depends on what ``shortcut`` knows a product by. What that does not hold (lazy
views, modes, gradients, torch's switches) is asked here. Only for engines whose plans are
``STEADY``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tiercel.frontends.torch.engine import Engine, Request, engine_for
from tiercel.frontends.torch.products import ran, worth_following
from tiercel.frontends.torch.routing import shortcut
from tiercel.frontends.torch.routing.operands import are_plain, followed, watched
from tiercel.frontends.torch.tensors.out import writable_in_place
from tiercel.frontends.torch.tensors.precision import in_tf32
from tiercel.options import Options
from tiercel.planner.plan import Plan

#: From a, b, bias and options to the product of two matrices or stacks; None if they do not fit.
RequestOf = Callable[[Any, Any, Any, Options], Request | None]


@dataclass(frozen=True, slots=True)
class Known:
    """How a product ran: by ``plan``, with b packed for ``algorithm`` (None: not packed).

    ``kinds``: what the dispatcher sees in the operands, b's device, and all of a bias;
    ``request_of`` makes the engine's request of them, ``shape`` is the result's. ``direct``: the
    engine's shorter way. ``followed``: also where autograd follows it; ``derivatives``: how those
    of a layer ran, see ``differentiated``.
    """

    engine: Engine
    plan: Plan
    algorithm: str | None
    kinds: Any
    request_of: RequestOf
    shape: tuple[int, ...]
    direct: Callable[..., torch.Tensor | None] | None
    followed: bool = True
    derivatives: dict[Any, Any] = field(default_factory=dict)


def kinds(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> Any:
    """See ``Known``."""
    return *_kinds(a, bias), torch._C._dispatch_keys(b).raw_repr(), b.get_device()


def _kinds(a: torch.Tensor, bias: torch.Tensor | None) -> tuple[Any, ...]:
    of_bias = None if bias is None else (bias.shape, bias.stride(), bias.dtype, bias.device)
    return torch._C._dispatch_keys(a).raw_repr(), of_bias


def run(
    known: Known, request_of: RequestOf, a: Any, b: Any, bias: Any, options: Options,
    out: torch.Tensor | None = None,
) -> torch.Tensor | None:  # fmt: skip
    """The product of a and b as it ran before; None where this call has to be looked at.

    ``out``: to be written, of the result's shape and type.
    """
    if known.request_of is not request_of:  # xᵀy, x y and x yᵀ of the same squares
        return None
    if bias is not None and type(bias) not in (torch.Tensor, torch.nn.Parameter):
        return None
    if watched() or followed(a, b, bias) or kinds(a, b, bias) != known.kinds:
        return None
    if known.engine.why_not(a.dtype):
        return None
    if out is not None:
        return _into(known, a, b, bias, out)
    if known.direct is not None:
        result = known.direct(a, b, bias)
        if result is not None:
            return result
    request = request_of(a, b, bias, options)
    if request is None:
        return None
    if request.calls:
        result = run_kept(request.calls, a, b, bias, options, request.tracked)
        if result is not None:
            return result
    algorithm = None if request.packed is None else request.packed.algorithm
    if algorithm != known.algorithm:
        return None
    result = ran(known.plan, request, known.shape)
    keep(request, (a, b, bias), result)
    return result


def _into(
    known: Known, a: torch.Tensor, b: torch.Tensor, bias: Any, out: torch.Tensor
) -> torch.Tensor | None:
    """The product by the shorter way, if there is one, into ``out``, if it can be written so."""
    if known.direct is None or not are_plain(out) or out.device != a.device:
        return None
    if not writable_in_place(out, a, b, bias):
        return None
    result = known.direct(a, b, bias, out)
    if result is not None:
        torch.autograd.graph.increment_version(out)
    return result


def run_kept(
    calls: dict[Any, Any], a: Any, b: Any, bias: Any, options: Options, tracked: bool = True
) -> Any:
    """The same with a b whose calls are kept where it is: the product, or ``TORCHS``, or None.

    Whoever keeps them knows that b is still the same.
    """
    if type(a) is not torch.Tensor or torch._C._is_tracing() or watched() or followed(a, bias):
        return None
    if bias is not None and type(bias) not in (torch.Tensor, torch.nn.Parameter):
        return None
    known = calls.get(_key(a, bias, options, tracked))
    if known is None or torch._C._is_any_autocast_enabled():
        return None
    _, engine, seen, direct = known
    if _kinds(a, bias) != seen or engine.why_not(a.dtype):
        return None
    return shortcut.TORCHS if direct is None else direct(a, b, bias)


def keep(request: Request, given: tuple[Any, ...], result: torch.Tensor | None) -> None:
    """Let ``run_kept`` find calls like this one, whose result a plan has made or left to torch.

    ``given``: a, b and bias as the caller gave them.
    """
    (a, _, bias), calls, options = given, request.calls, request.options
    engine = engine_for(a.device.type)
    if calls is None or engine is None or not engine.STEADY:
        return
    if options.verify or options.scheme is not None:
        return
    direct = None
    if result is not None:
        plan = engine.plan(request)
        direct = plan and engine.direct(plan, request, given, result)
        if direct is None:
            return
    if len(calls) >= shortcut.MOST_KEYS:
        calls.clear()
    # With the options, which the key has by address.
    kept = options, engine, _kinds(a, bias), direct
    calls[_key(a, bias, options, request.tracked)] = kept


def _key(a: torch.Tensor, bias: Any, options: Options, tracked: bool) -> Any:
    where = a.dtype, a.get_device(), in_tf32(a)
    return id(options), tracked, bias is None, a.shape, a.stride(), *where


def remember(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    columns_of: int,
    request: Request,
    request_of: RequestOf,
    result: torch.Tensor,
) -> None:
    """Let calls like this one, which a plan has just run, find it.

    Not where the caller insists or wants to see a probe.
    """
    options, engine = request.options, engine_for(a.device.type)
    if engine is None or not engine.STEADY or a.dtype is not request.a.dtype:
        return
    if options.verify or options.scheme is not None or options.batch_invariant:
        return
    plan = engine.plan(request)
    if plan is None:
        return
    given, direct, algorithm = (a, b, bias), None, None
    keep(request, given, result)
    if request.packed is None:
        direct = engine.direct(plan, request, given, result)
    else:  # what is known of a product does not keep a weight packed
        algorithm = request.packed.algorithm
    known = Known(
        engine,
        plan,
        algorithm,
        kinds(a, b, bias),
        request_of,
        tuple(result.shape),
        direct,
        worth_following(engine, plan),
    )
    shortcut.keep(known, a, b, bias, columns_of, options)
