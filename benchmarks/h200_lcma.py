"""Measures schemes inside the Hopper kernel against cuBLAS (through torch).

Usage: ``python benchmarks/h200_lcma.py --out benchmarks/results/h200-lcma.json``

Measured as ``h200_gemm.py`` does, interleaved and sustained, on normal numbers. Players beside the
vendor: ``plain``, the classical kernel; and by scheme ``kernel``, with all planes there already;
``packed``, B's planes combined before, A's in the call; ``guarded``, the same with the guard;
``divided``, the same of as many rows as the planner leaves to the scheme, the others by cuBLAS;
``dynamic``, both combined in the call, with the guard, by ``tiercel.matmul(a, b, out=out)``, whose
plan it is; ``row-major``, the same of a B that is not contiguous along K. A way of combining that
is not the default one follows the name. Planes of other types are combined without the guard
but in ``dynamic``.

float8 (e4m3, without scales, normal numbers of deviation 60) is compared with ``torch._scaled_mm``
in its fast mode, which is the kernel's; TF32 with ``torch.mm``. Errors are those against float64 of
the operands as they are, in the Frobenius norm.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from h200_gemm import Operands, Player, compared, provenance

import tiercel
from tiercel import schemes
from tiercel.frontends.torch.cuda import fused
from tiercel.lower.accumulator import accumulate
from tiercel.lower.accumulator.combining import Combining
from tiercel.planner.gpu import make_plan
from tiercel.planner.gpu.machine import required
from tiercel.planner.problem import Problem
from tiercel.targets.hopper import gemm
from tiercel.targets.hopper.fused.launches import FusedLaunch
from tiercel.targets.hopper.fused.packed import pack
from tiercel.targets.hopper.fused.product import prepare
from tiercel.targets.hopper.fused.workspace import FRESH
from tiercel.targets.hopper.launching.driver import clear_words

WINOGRAD, LEAN, LONG, TWICE = "winograd", "lean-4x2x4", "lean-4x4x2", "winograd2"
BEFORE = Combining()
#: Shape, and by scheme what is measured beside the vendor and the classical kernel.
CASES: list[tuple[tuple[int, int, int], dict[str, list[str]]]] = [
    ((8192, 8192, 8192), {
        WINOGRAD: ["kernel", "packed", "guarded", "dynamic", "row-major"],
        LEAN: ["guarded"],
    }),
    ((16384, 16384, 16384), {
        LEAN: ["kernel", "guarded"], WINOGRAD: ["guarded", "dynamic"], TWICE: ["guarded"],
    }),
    ((8192, 8192, 28672), {WINOGRAD: ["kernel", "guarded", "dynamic"], LONG: ["guarded"]}),
    ((16384, 53248, 16384), {LEAN: ["guarded"], WINOGRAD: ["guarded", "dynamic"]}),
    ((8192, 28672, 8192), {WINOGRAD: ["kernel", "guarded", "dynamic"], LEAN: ["divided"]}),
    ((4096, 4096, 4096), {WINOGRAD: ["kernel", "packed", "guarded"]}),
]  # fmt: skip
WAYS = {"before": BEFORE, "beside": Combining("beside", split=2)}
OTHER_TYPES = [
    (16384, torch.float8_e4m3fn, ["accurate", WINOGRAD]),
    (8192, torch.float32, [WINOGRAD, LEAN]),
    (16384, torch.float32, [WINOGRAD, LEAN]),
]
SECONDS, ROUNDS = 0.4, 4  # of turns in which a player runs alone


def fused_player(
    operands: Operands, work: list[FusedLaunch], run: Callable[[FusedLaunch, int], None]
) -> Player:
    """Ready launches, one for each set of operands."""
    return operands.player(lambda i: run(work[i], torch.cuda.current_stream().cuda_stream))


def product_only(work: FusedLaunch, stream: int) -> None:
    """Without the planes."""
    clear_words(work.workspace.flags.data_ptr(), FRESH, stream)
    work.multiply.run(stream)


def measured(shape: tuple[int, int, int], schemes_and_uses: dict[str, list[str]]) -> dict[str, Any]:
    """All uses of some schemes on one shape."""
    operands = Operands(*shape)
    players = {"vendor": operands.player(operands.vendor), "plain": operands.player(operands.ours)}
    kept = []
    for name, uses in schemes_and_uses.items():
        packs = [fused.pack(b, name).panels.static for _, b, _ in operands.sets]
        kept.append(packs)
        for use in uses:
            players[f"{name}: {use}"] = scheme_player(operands, name, use, packs)
    entry = compared(shape, operands.flop, players, SECONDS, ROUNDS)
    entry["errors"] = {name: error(operands, play) for name, play in players.items()}
    return entry


def scheme_player(operands: Operands, name: str, use: str, packs: list[Any]) -> Player:
    """``use`` of a scheme; ``packs``: of the right operands."""
    kind, _, way = use.partition(", ")
    if kind in ("dynamic", "row-major"):
        right = [b.contiguous() if kind == "row-major" else b for _, b, _ in operands.sets]

        def multiply(i: int, scheme: str | None = None) -> None:
            a, _, out = operands.sets[i]
            tiercel.matmul(a, right[i], out=out, scheme=scheme)

        multiply(0)
        plan = tiercel.last_plan()
        if plan is not None and plan.chosen.algorithm == name:
            return operands.player(multiply)
        # A scheme that a caller names is looked at anew each time: 0.3 ms of the host.
        return operands.player(lambda i: multiply(i, name))
    how = BEFORE if kind == "kernel" else WAYS.get(way)
    guarded, rows = kind in ("guarded", "divided"), None
    if kind == "divided":
        rows = planned_rows(operands, name)
    work = [
        prepare(a[:rows], x.operand, out[:rows], combining=how, judge=x.judge if guarded else None)
        for (a, _, out), x in zip(operands.sets, packs, strict=True)
    ]
    for each in work:
        each.run(torch.cuda.current_stream().cuda_stream)
    if rows is None:
        return fused_player(operands, work, product_only if kind == "kernel" else FusedLaunch.run)

    def divided(i: int) -> None:
        a, b, out = operands.sets[i]
        work[i].run(torch.cuda.current_stream().cuda_stream)
        torch.mm(a[rows:], b, out=out[rows:])

    return operands.player(divided)


def planned_rows(operands: Operands, name: str) -> int:
    """Rows that the planner leaves to a scheme where B is packed."""
    a, b, _ = operands.sets[0]
    (M, K), N = a.shape, b.shape[1]
    problem = Problem(M, N, K, "bfloat16", "row", "col", static_b=True)
    plan = make_plan(problem, required(torch.cuda.get_device_name()))
    return M - next(x.fringe for x in plan.candidates if x.algorithm == name)


def error(operands: Operands, play: Player) -> float:
    """Relative to float64, on 64 rows, in the Frobenius norm."""
    operands.turn = len(operands.sets) - 1
    play()
    a, b, out = operands.sets[0]
    wanted = a[:64].double() @ b.double()
    return ((out[:64].double() - wanted).norm() / wanted.norm()).item()


class OtherOperands(Operands):
    """Two sets of float8 operands, or of float32 ones that are multiplied as TF32."""

    def __init__(self, n: int, dtype: torch.dtype) -> None:
        self.flop, self.turn = 2 * n**3, 0
        self.float8 = dtype.itemsize == 1
        self.one = torch.ones((), device="cuda")
        scale, result = (60, torch.bfloat16) if self.float8 else (1, dtype)

        def normal() -> torch.Tensor:
            return (scale * torch.randn(n, n, device="cuda")).to(dtype)

        self.sets = [
            (normal(), normal().t(), torch.empty(n, n, device="cuda", dtype=result))
            for _ in range(2)
        ]

    def vendor(self, i: int) -> None:
        a, b, out = self.sets[i]
        if self.float8:
            torch._scaled_mm(
                a, b, self.one, self.one, out_dtype=out.dtype, use_fast_accum=True, out=out
            )
        else:
            torch.mm(a, b, out=out)

    def ours(self, i: int) -> None:
        a, b, out = self.sets[i]
        gemm(a, b, out=out, tf32=not self.float8)

    def planned(self, i: int) -> None:
        a, b, out = self.sets[i]
        tiercel.matmul(a, b, out=out)


def other_type(n: int, dtype: torch.dtype, names: list[str]) -> dict[str, Any]:
    """The kernel alone, and B packed, of some schemes; of TF32 also what ``matmul`` chooses."""
    operands = OtherOperands(n, dtype)
    players = {"vendor": operands.player(operands.vendor), "plain": operands.player(operands.ours)}
    for name in names:
        program = accumulate(schemes.get(name))
        packs = [pack(b, program) for _, b, _ in operands.sets]
        # Only a kernel that does not combine itself can be repeated without clearing all flags.
        for use, how, run in (
            ("kernel", BEFORE, product_only),
            ("packed", None, FusedLaunch.run),
        ):
            work = [
                prepare(a, x, out, combining=how)
                for (a, _, out), x in zip(operands.sets, packs, strict=True)
            ]
            for each in work:
                each.run(torch.cuda.current_stream().cuda_stream)
            players[f"{name}: {use}"] = fused_player(operands, work, run)
    if not operands.float8:
        operands.planned(0)
        plan = tiercel.last_plan()
        assert plan is not None, "it has just run"
        players[f"{plan.chosen.algorithm}: dynamic"] = operands.player(operands.planned)
    errors = {name: error(operands, play) for name, play in players.items()}
    entry = compared((n, n, n), operands.flop, players, SECONDS)
    return {"dtype": str(dtype).removeprefix("torch."), "errors": errors, **entry}


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--limit", default=70.0, help="seconds after which no further case is started")
@click.option("--after", default=0, help="cases that another run has measured")
def main(out: Path, limit: float, after: int) -> None:
    """Measure, print and write."""
    begin = time.perf_counter()
    result: dict[str, Any] = {**provenance(), "shapes": [], "other types": []}
    torch.backends.cuda.matmul.allow_tf32 = True
    work: list[tuple[str, Callable[[], dict[str, Any]]]] = [
        *(("shapes", partial(measured, *case)) for case in CASES),
        *(("other types", partial(other_type, *case)) for case in OTHER_TYPES),
    ]
    for name, measure in work[after:]:
        if time.perf_counter() - begin > limit:
            break
        result[name].append(measure())
        torch.cuda.empty_cache()
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
