"""``verify=True`` for tensors: each product is probed, and replaced where it is not good enough.

On a CPU the probe is NumPy's and its verdict is waited for: the product is computed again with one
level less, and so on. On a GPU nothing is waited for. The probe's verdict stays on the device,
where the classical product replaces a result that failed; the host learns of it with some later
call of the same kind, and begins that one with one level less. So a GPU's results are always good
enough when they are used, also in a CUDA graph, and a failure costs one slow call.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from tiercel.frontends.torch.engine import Engine, Request
from tiercel.frontends.torch.epilogues.named import with_epilogue
from tiercel.frontends.torch.probe import exceeded, smallest, tolerance
from tiercel.frontends.torch.tensors.memory import kept_on_host
from tiercel.planner.accuracy import bound
from tiercel.planner.plan import Plan

log = logging.getLogger("tiercel")

#: Kinds of calls on GPUs that are kept; the oldest is forgotten first.
MOST_KINDS = 4096


@dataclass(eq=False)
class _Kind:
    """How products of one kind fare on a GPU.

    ``verdict``: pinned memory that the device writes the last probe's outcome to; ``ran``: what
    that probe was of; ``begins``: the algorithm to begin with, if not the planned one.
    """

    verdict: torch.Tensor
    ran: str
    begins: str | None = None


_kinds: dict[Any, _Kind] = {}


def run(engine: Engine, request: Request, plan: Plan, out: torch.Tensor) -> None:
    """``epilogue(a @ b + bias)`` into ``out`` by ``plan`` or, where that is wrong, a safer one.

    Epilogues are applied to the probed product; 16-bit operands of a CPU are multiplied in float32.
    Raises ``TiercelRuntimeError`` on a CPU where the caller named the scheme and it is wrong.
    """
    bare = _bare(request)
    if bare is request:
        _run_bare(engine, request, plan, out)
        return
    wide = out.new_empty(out.shape, dtype=bare.a.dtype)
    planned = engine.plan(bare)
    if planned is None:
        _torchs(bare, wide)
    else:
        _run_bare(engine, bare, planned, wide)
    out.copy_(with_epilogue(wide, request.options.epilogue))


def forget() -> None:
    """Let every kind of call begin with its plan's choice again."""
    from tiercel.frontends.numpy import verify

    _kinds.clear()
    verify.forget()


def _bare(request: Request) -> Request:
    """The request without an epilogue and, on a CPU, in a dtype that its result is not rounded to.

    The same request if it is like that.
    """
    narrow = request.a.is_cpu and request.a.dtype.itemsize == 2
    if request.options.epilogue is None and not narrow:
        return request
    options = request.options.with_epilogue(None)
    if not narrow:
        return replace(request, options=options)
    bias = None if request.bias is None else request.bias.float()
    return Request(request.a.float(), request.b.float(), bias, options)


def _run_bare(engine: Engine, request: Request, plan: Plan, out: torch.Tensor) -> None:
    if request.a.is_cpu:
        for one, part in _products(request, out):
            _on_cpu(engine, one, plan, part)
    else:
        _on_gpu(engine, request, plan, out)


def _products(request: Request, out: torch.Tensor) -> Iterator[tuple[Request, torch.Tensor]]:
    """Each product of a stack."""
    if request.a.dim() == 2:
        yield request, out
        return
    for a, b, c in zip(request.a, request.b, out, strict=True):
        yield replace(request, a=a, b=b), c


def _on_cpu(engine: Engine, request: Request, plan: Plan, out: torch.Tensor) -> None:
    from tiercel.frontends.numpy import product, verify
    from tiercel.frontends.torch.tensors.memory import as_array

    a, b, c = (as_array(x) for x in (request.a, request.b, out))
    bias = None if request.bias is None else as_array(request.bias)
    asked = product.Request(request.options, bias)
    following: Plan | None = verify.remembered(plan)
    while following is not None:
        _multiply(engine, request, following, plan, out)
        if product.is_vendor(following):
            return
        following = verify.next_plan(following, a, b, c, asked)


def _on_gpu(engine: Engine, request: Request, plan: Plan, out: torch.Tensor) -> None:
    key = (request.a.device, plan.problem)
    kind = _kinds.get(key)
    begins = _learnt(kind, plan) if kind is not None else plan
    if begins.chosen.algorithm == "classical" and plan.problem.scheme is None:
        begins = begins.choosing("vendor")  # the own kernel gains less than its probe would cost
    _multiply(engine, request, begins, plan, out)
    if begins.chosen.algorithm == "vendor":
        return
    growth = bound(plan.problem.accuracy)
    if torch.cuda.is_current_stream_capturing():
        _replace_if_wrong(request, out, growth, None)
        return
    if kind is None:
        kind = _kept(key, begins.chosen.algorithm)
    kind.ran = begins.chosen.algorithm
    _replace_if_wrong(request, out, growth, kind.verdict)


def _replace_if_wrong(
    request: Request, out: torch.Tensor, growth: float, verdict: torch.Tensor | None
) -> None:
    """Let the device replace a wrong result, and make ``verdict`` true, a bool of the host's."""
    from tiercel.targets.gpu import freivalds
    from tiercel.targets.gpu.redo import redo_where

    a, b, bias = request.a.detach(), request.b.detach(), request.bias
    vector = None if bias is None else bias.detach()
    with torch.cuda.device_of(a):
        if freivalds.fits(a, b, out, vector):
            limits = tolerance(a.dtype, growth), smallest(a, b)
            freivalds.replace_where_wrong(a, b, out, vector, *limits, verdict)
            return
        wrong = exceeded(a, b, out, vector, growth)
        for one, part in _products(request, out):
            redo_where(wrong, one.a.detach(), one.b.detach(), part, vector)
        if verdict is not None:
            verdict.copy_(wrong, non_blocking=True)


def _kept(key: Any, algorithm: str) -> _Kind:
    if len(_kinds) >= MOST_KINDS:
        del _kinds[next(iter(_kinds))]
    kind = _kinds[key] = _Kind(kept_on_host((), torch.bool), algorithm)
    return kind


def _learnt(kind: _Kind, plan: Plan) -> Plan:
    """What to begin with, after the last verdict that has arrived."""
    if kind.verdict.item() and plan.problem.scheme is None:
        safer = plan.choosing(kind.ran).one_level_down()
        kind.begins = safer.chosen.algorithm
        log.warning(
            "verify: %s exceeds accuracy=%r; the classical product replaced it; such calls now run "
            "%s (%s)", kind.ran, plan.problem.accuracy, kind.begins, plan.problem,
        )  # fmt: skip
    elif kind.verdict.item():
        log.warning("verify: %s exceeds accuracy=%r; the classical product replaced it (%s)",
                    kind.ran, plan.problem.accuracy, plan.problem)  # fmt: skip
    kind.verdict.zero_()
    return plan if kind.begins is None else plan.choosing(kind.begins)


def _multiply(
    engine: Engine, request: Request, plan: Plan, planned: Plan, out: torch.Tensor
) -> None:
    """Run ``plan``; what b was packed for is only good for the plan that was made for it."""
    if plan.chosen.algorithm == "vendor":
        _torchs(request, out)
    elif plan.chosen.algorithm == planned.chosen.algorithm:
        engine.run(plan, request, out)
    else:
        engine.run(plan, replace(request, packed=None), out)


def _torchs(request: Request, out: torch.Tensor) -> None:
    """torch's own product, without the epilogue."""
    a, b, bias = request.a.detach(), request.b.detach(), request.bias
    torch.matmul(a, b, out=out)
    if bias is not None:
        out.add_(bias.detach())
