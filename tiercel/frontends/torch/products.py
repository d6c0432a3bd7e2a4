"""Products by a plan of ours: requests made of tensors, run by their device's engine."""

from __future__ import annotations

import torch

from tiercel.frontends.torch import verify
from tiercel.frontends.torch.engine import Engine, Request, engine_for
from tiercel.frontends.torch.models.frozen import packed_form
from tiercel.options import Options
from tiercel.planner.plan import Plan


def linear_request(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, options: Options,
    *, tracked: bool = False,
) -> Request | None:  # fmt: skip
    """x (..., K) times w.T, w (N, K), as one product of rows; None for what torch must refuse."""
    if w.dim() != 2 or x.shape[-1] != w.shape[1] or not _fits(x, bias, w.shape[0]):
        return None
    packed, calls = packed_form(w, options)
    return Request(x.reshape(-1, x.shape[-1]), w.t(), bias, options, packed, tracked, calls)


def eager_request(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, options: Options
) -> Request | None:
    """``linear_request`` of a call whose operands torch's operators have written."""
    return linear_request(x, w, bias, options, tracked=True)


def matmul_request(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, options: Options
) -> Request | None:
    """Two matrices or two stacks (``tensors/fold.py``); None for what torch must refuse."""
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        return None
    return Request(a, b, bias, options) if _fits(a, bias, b.shape[-1]) else None


def weight_grad_request(
    g: torch.Tensor, x: torch.Tensor, bias: None, options: Options
) -> Request | None:
    """g (..., N) and x (..., K) as the one product gᵀ x; None for what torch must refuse."""
    if g.shape[:-1] != x.shape[:-1]:
        return None
    rows, columns = g.reshape(-1, g.shape[-1]), x.reshape(-1, x.shape[-1])
    return Request(rows.t(), columns, None, options)


def _fits(a: torch.Tensor, bias: torch.Tensor | None, N: int) -> bool:
    return bias is None or (bias.shape == (N,) and bias.dtype is a.dtype)


def gains(request: Request) -> bool:
    """Whether a plan of ours is predicted to be faster than torch, or was asked for."""
    return _engine(request).plan(request) is not None


def gains_followed(request: Request) -> bool:
    """The same of a layer that autograd follows."""
    engine = _engine(request)
    plan = engine.plan(request)
    return plan is not None and worth_following(engine, plan)


def worth_following(engine: Engine, plan: Plan) -> bool:
    """Whether a layer's product is long enough for what autograd takes of the host."""
    return engine.LEAST_FOLLOWED == 0 or plan.chosen.seconds >= engine.LEAST_FOLLOWED


def computed(
    request: Request, shape: tuple[int, ...], out: torch.Tensor | None = None
) -> torch.Tensor | None:
    """The result in ``shape``, written to ``out`` if given; None where it is best left to torch.

    ``out`` is contiguous and of that shape.
    """
    plan = _engine(request).plan(request)
    return None if plan is None else ran(plan, request, shape, out)


def ran(
    plan: Plan, request: Request, shape: tuple[int, ...], out: torch.Tensor | None = None
) -> torch.Tensor:
    """The result in ``shape`` by a plan, written to ``out`` if given, see ``computed``."""
    # Made in its final shape: a view could not be changed in place where autograd follows it.
    result = request.a.new_empty(shape) if out is None else out
    matrix = result.view(*request.a.shape[:-1], request.b.shape[-1])
    engine = _engine(request)
    if request.options.verify:
        verify.run(engine, request, plan, matrix)
    else:
        engine.run(plan, request, matrix)
    if out is not None:
        torch.autograd.graph.increment_version(out)  # as torch counts what it changes in place
    return result


def _engine(request: Request) -> Engine:
    engine = engine_for(request.a.device.type)
    assert engine is not None, "operands.why_torch has been asked"
    return engine
