"""``tiercel.plan``: what would run for a product and why; and running what a plan chose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tiercel.api import matmul
from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.options import checked_options, checked_switch, is_count
from tiercel.planner.problem import DTYPES, GPU_DTYPES, Problem
from tiercel.planner.running import runs_plans


def plan(
    M: int,
    N: int,
    K: int,
    *,
    dtype: Any = "float32",
    layout_a: str = "row",
    layout_b: str = "row",
    static_b: bool = False,
    epilogue: str | None = None,
    accuracy: str | float | None = None,
    workspace: int | str | None = None,
    scheme: Any = None,
    threads: int | None = None,
    device: Any = "cpu",
) -> Any:
    """The plan for C (M, N) = A (M, K) · B (K, N): what would run here and every alternative.

    ``layout_*``: "row" or "col". ``static_b``: B is packed once (`pack`). The other options are
    those of `matmul`. ``device``: "cpu"; "cuda", this machine's GPU or, without one, a GPU that a
    profile is shipped for; the name of such a GPU; or a ``torch.device``. Nothing is multiplied;
    the machine is measured if it has not been. Calling the plan, ``plan(a, b)``, multiplies by what
    it chose.

    Raises ``TiercelValueError`` for sizes below 1 and unknown options, ``TiercelTypeError`` for a
    dtype that is not accelerated.
    """
    name, device = _name(dtype), str(device)  # torch.device("cuda") is "cuda"
    known = DTYPES if device == "cpu" else GPU_DTYPES
    if name not in known:
        raise TiercelTypeError(f"dtype={dtype!r} is not accelerated; allowed: {', '.join(known)}")
    for size in (M, N, K):
        if not is_count(size) or size < 1:
            kind = TiercelValueError if is_count(size) else TiercelTypeError
            raise kind(f"sizes are M={M!r}, N={N!r}, K={K!r}; allowed: whole numbers >= 1")
    for layout in (layout_a, layout_b):
        if layout not in ("row", "col", "strided"):
            raise TiercelValueError(f"layout {layout!r} is not known; allowed: 'row', 'col'")
    options = checked_options(epilogue, accuracy, workspace, scheme, threads)
    if options.is_traced:
        raise TiercelTypeError(
            f"plans know named epilogues only, not {options.epilogue}; leave it out: the product "
            "is planned without it, and it is computed from the product"
        )
    problem = Problem(
        M=int(M), N=int(N), K=int(K), dtype=name, layout_a=layout_a, layout_b=layout_b,
        epilogue=options.epilogue, accuracy=options.accuracy, workspace=options.workspace,
        scheme=options.scheme, threads=options.threads or 1,
        static_b=checked_switch("static_b", static_b),
    )  # fmt: skip
    if device != "cpu":
        return _gpu_plan(problem, device)
    from tiercel.runtime import plan_for
    from tiercel.targets.cpu.threads import allowed

    return plan_for(replace(problem, threads=options.threads or allowed()))


def _name(dtype: Any) -> str:
    """What the planner calls a dtype of NumPy or of PyTorch, or what either calls so."""
    if dtype is not None and str(dtype) not in GPU_DTYPES:
        try:
            return np.dtype(dtype).name
        except TypeError:
            pass
    return str(dtype).removeprefix("torch.")


@runs_plans
def _by_plan(plan: Any, a: Any, b: Any, out: Any, bias: Any) -> Any:
    """``epilogue(a @ b + bias)`` by what a plan chose, see ``Plan``."""
    p, name = plan.problem, plan.chosen.algorithm.partition(" (")[0]
    for operand, x, sizes in (("a", a, (p.M, p.K)), ("b", b, (p.K, p.N))):
        shape, dtype = tuple(np.shape(x)), str(getattr(x, "dtype", type(x).__name__))
        if shape != sizes:
            raise TiercelValueError(
                f"the plan is for {operand} of shape {sizes}, not {shape}; make one for these sizes"
            )
        if dtype.removeprefix("torch.") != p.array_dtype:
            raise TiercelTypeError(
                f"the plan is for {p.array_dtype}, {operand} has {dtype}; make one for that dtype"
            )
    from tiercel.planner.gpu import GpuPlan

    on_gpu = isinstance(plan, GpuPlan)
    if on_gpu != str(getattr(a, "device", "cpu")).startswith("cuda"):
        raise TiercelTypeError(
            f"the plan is for {plan.place}, and a is elsewhere; make one with the other device="
        )
    asked = p.scheme if getattr(p.scheme, "name", None) == name else name
    return matmul(
        a, b, out, epilogue=p.epilogue, bias=bias, accuracy=p.accuracy, workspace=p.workspace,
        scheme=asked, threads=None if on_gpu else p.threads,
    )  # fmt: skip


def _gpu_plan(problem: Problem, device: str) -> Any:
    """The plan for this machine's GPU ("cuda") or for one that a profile is shipped for."""
    from tiercel.planner import gpu

    machine = None
    kind, _, index = device.partition(":")
    if kind == "cuda" and (index.isdecimal() or not index):
        try:
            from tiercel.frontends.torch.cuda.machine import here

            machine = here(problem.array_dtype, int(index) if index else None)
        except ModuleNotFoundError as missing:
            if missing.name != "torch":
                raise
        device = gpu.known_names()[0]
    return gpu.make_plan(problem, machine or gpu.required(device))
