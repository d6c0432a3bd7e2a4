"""Operators of ours in a compiler's graph that torch is faster for, replaced by torch's own.

A compiler makes its graph below autograd, where the shapes that stay the same are known. There, a
product that no plan of ours gains on becomes torch's: the compiler fuses and calls that directly.
A graph for any number of rows keeps the operator if some number of rows gains.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from tiercel.frontends.torch.engine import Product, Request, engine_for
from tiercel.frontends.torch.ops.option_text import decode, packed_for
from tiercel.frontends.torch.routing.route import insisted

#: Rows that stand for all in a graph whose number of rows is not known.
ANY_ROWS = (256, 1024, 4096, 16384, 65536)


def lowering(
    run: Callable[..., torch.Tensor],
    gains: Callable[..., bool],
    torchs: Callable[..., torch.Tensor],
) -> Callable[..., torch.Tensor]:
    """The rule for an operator in graphs: ``run`` where ``gains`` says so, ``torchs`` otherwise."""

    def rule(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> torch.Tensor:
        kept = gains(*args)
        with mode:
            return run(*args) if kept else torchs(*args)

    return rule


def linear_gains(x: torch.Tensor, w: torch.Tensor, bias: Any, options: str) -> bool:
    """Whether the operator should stay for x (..., K) and w (N, K)."""
    rows = prod(x.shape[:-1])

    def product(rows: int) -> Product:
        return Product.of_rows(rows, w, bias is not None)

    return _some_gain(product, rows, (*w.shape, *w.stride()), x, options)


def weight_grad_gains(g: torch.Tensor, x: torch.Tensor, options: str) -> bool:
    """Whether the operator should stay for g (..., N) and x (..., K)."""
    N, K = g.shape[-1], x.shape[-1]

    def product(rows: int) -> Product:
        return Product(N, rows, K, g.dtype, (1, N), (K, 1))

    return _some_gain(product, prod(g.shape[:-1]), (N, K), x, options)


def matmul_gains(a: torch.Tensor, b: torch.Tensor, bias: Any, options: str) -> bool:
    """Whether the operator should stay for two matrices or two stacks."""
    sizes = (*a.shape, *a.stride(), *b.shape, *b.stride())
    if not _known(sizes):
        return True
    engine, work = engine_for(a.device.type), prod(a.shape) * b.shape[-1]
    if engine is None or a.dtype not in engine.LEAST_WORK or work == 0:
        return False
    if work < engine.LEAST_WORK[a.dtype] and not insisted(decode(options)):
        return False
    return engine.plan(Request(a, b, bias, decode(options))) is not None


def _some_gain(
    product: Callable[[int], Product], rows: Any, sizes: tuple[Any, ...], x: Any, text: str
) -> bool:
    options, engine = decode(text), engine_for(x.device.type)
    if insisted(options):
        return True
    if engine is None or x.dtype not in engine.LEAST_WORK or engine.why_not(x.dtype):
        return False
    if not _known(sizes):
        return True
    for possible in (rows,) if _known((rows,)) else ANY_ROWS:
        candidate = product(possible)
        work = candidate.M * candidate.K * candidate.N
        if work and work >= engine.LEAST_WORK[x.dtype]:
            plan = engine.predict(candidate, options, packed_for(text))
            if plan.chosen.algorithm != "vendor":
                return True
    return False


def _known(sizes: tuple[Any, ...]) -> bool:
    return all(isinstance(size, int) for size in sizes)
