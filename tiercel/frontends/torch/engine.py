"""One product, or a stack of them, planned and run on NumPy views of the tensors' memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from tiercel.errors import TiercelRuntimeError
from tiercel.frontends.numpy.layout import layout
from tiercel.frontends.torch.epilogue import with_epilogue
from tiercel.options import Options
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem
from tiercel.runtime import execute, plan_for
from tiercel.targets.cpu.threads import allowed

#: Multiplications of each product of a stack below which torch's batched routine, which loops in
#: compiled code, is left alone: 0.3 ms of one core in float32.
LEAST_OF_A_STACK = 240**3


@dataclass(frozen=True, slots=True)
class Request:
    """What is multiplied and how: a and b are (M, K) and (K, N), or (B, M, K) and (B, K, N).

    One dtype for a, b and bias (N,). ``packed`` is b in packed form (``frontends/numpy/packed``).
    """

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor | None
    options: Options
    packed: Any = None

    def plan(self) -> Plan | None:
        """The plan of each product; None where it is best left to torch."""
        a, b, options = self.a, self.b, self.options
        M, K, N = *a.shape[-2:], b.shape[-1]
        if a.dim() == 3 and M * K * N < LEAST_OF_A_STACK and options.scheme is None:
            return None
        if a.is_complex() and self.bias is not None:
            return None  # the kernels add real numbers
        plan = _plan(
            str(a.dtype).removeprefix("torch."), (M, K), a.stride()[-2:], (K, N), b.stride()[-2:],
            a.element_size(), options, self.bias is not None,
            options.threads or min(allowed(), torch.get_num_threads()),
            None if self.packed is None else self.packed.algorithm,
        )  # fmt: skip
        return None if plan.chosen.algorithm == "vendor" else plan


@lru_cache(maxsize=4096)
def _plan(
    dtype: str, shape_a: tuple[int, int], strides_a: tuple[int, int],
    shape_b: tuple[int, int], strides_b: tuple[int, int], size: int,
    options: Options, bias: bool, threads: int, packed_for: str | None,
) -> Plan:  # fmt: skip
    return plan_for(
        Problem(
            M=shape_a[0], N=shape_b[1], K=shape_a[1], dtype=dtype,
            layout_a=layout(shape_a, (strides_a[0] * size, strides_a[1] * size), size),
            layout_b=layout(shape_b, (strides_b[0] * size, strides_b[1] * size), size),
            epilogue=options.epilogue, bias=bias, accuracy=options.accuracy,
            workspace=options.workspace, scheme=options.scheme or packed_for, threads=threads,
            static_b=packed_for is not None, must_use=options.scheme is not None,
        )
    )  # fmt: skip


def run(plan: Plan, request: Request, out: torch.Tensor | None = None) -> torch.Tensor:
    """``epilogue(a @ b + bias)``, into ``out`` (contiguous, apart from the operands) or a new one.

    Raises ``TiercelRuntimeError`` where the caller named a scheme and the data forbid it.
    """
    a, b = request.a.detach(), request.b.detach()
    c = a.new_empty((*a.shape[:-1], b.shape[-1])) if out is None else out
    bias = None if request.bias is None else request.bias.detach().resolve_neg()
    # The kernels take a bias in the dtype that they compute in.
    vector = None if bias is None else (bias.float() if bias.itemsize == 2 else bias).numpy()
    for x, y, z in [(a, b, c)] if a.dim() == 2 else zip(a, b, c, strict=True):
        panels = as_array(y) if request.packed is None else request.packed.panels
        if execute(plan, as_array(x), panels, as_array(z), vector):
            continue
        if request.options.scheme is not None:
            raise TiercelRuntimeError(
                f"scheme={request.options.scheme!r} is not safe for these operands: they hold Inf "
                "or NaN, or rows or columns of very different scale; leave scheme=None to let such "
                "calls run the classical algorithm"
            )
        safe = plan.classical()
        if safe.chosen.algorithm == "vendor":
            product = x @ y if bias is None else torch.addmm(bias, x, y)
            z.copy_(with_epilogue(product, request.options.epilogue))
        else:
            execute(safe, as_array(x), as_array(y), as_array(z), vector)
    return c


def as_array(x: torch.Tensor) -> np.ndarray:
    """x's own memory as an array, copied only to resolve a lazy conjugation or negation.

    bfloat16 comes as int16: NumPy has no such dtype, and kernels read addresses and strides.
    """
    x = x.resolve_conj().resolve_neg()
    return (x.view(torch.int16) if x.dtype is torch.bfloat16 else x).numpy()
