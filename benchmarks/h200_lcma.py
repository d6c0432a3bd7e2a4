"""Measures schemes inside the Hopper kernel against cuBLAS (through torch).

Usage: ``python benchmarks/h200_lcma.py --out benchmarks/results/h200-lcma.json``

Measured as ``h200_gemm.py`` does, interleaved and sustained, on normal numbers. Players beside the
vendor: ``plain``, the classical kernel; ``packed``, B's planes combined before, A's in the call;
``guarded``, the same with the guard that the public functions use; ``dynamic``, both operands
combined in the call.
"""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from h200_gemm import Operands, Player, compared, provenance

from tiercel import schemes
from tiercel.frontends.torch import cuda_fused
from tiercel.lower.accumulator import AccumulatorProgram, accumulate
from tiercel.targets.hopper.fused_product import FusedLaunch, prepare
from tiercel.targets.hopper.packed import pack

SHAPES = [
    (8192, 8192, 8192), (16384, 16384, 16384), (8192, 28672, 8192), (8192, 8192, 28672),
    (16384, 53248, 16384), (4096, 4096, 4096),
]  # fmt: skip
#: Grid and rank of other schemes, whose accuracy is reported along with their speed.
OTHERS = ("strassen", "accurate", "lean-2x2x3", "lean-2x4x4")


def program_of(name: str) -> AccumulatorProgram:
    """As the kernel can run it."""
    return accumulate(schemes.get(name))


def fused_player(operands: Operands, work: list[FusedLaunch]) -> Player:
    """Ready launches, one for each set of operands."""
    return operands.player(lambda i: work[i].run(torch.cuda.current_stream().cuda_stream))


def measured(shape: tuple[int, int, int]) -> dict[str, Any]:
    """Winograd's scheme in all its uses."""
    operands, name = Operands(*shape), "winograd"
    players = {"vendor": operands.player(operands.vendor), "plain": operands.player(operands.ours)}
    packs = [cuda_fused.pack(b, name).panels.static for _, b, _ in operands.sets]
    for player, judged in (("packed", False), ("guarded", True)):
        work = [
            prepare(a, static.operand, out, judge=static.judge if judged else None)
            for (a, _, out), static in zip(operands.sets, packs, strict=True)
        ]
        players[player] = fused_player(operands, work)
    work = [prepare(a, b, out, program=program_of(name)) for a, b, out in operands.sets]
    players["dynamic"] = fused_player(operands, work)
    entry = compared(shape, operands.flop, players)
    entry["errors"] = {name: error(operands, play) for name, play in players.items()}
    return entry


def other(name: str, shape: tuple[int, int, int]) -> dict[str, Any]:
    """A scheme with B packed and A combined before the product."""
    program, operands = program_of(name), Operands(*shape)
    work = [prepare(a, pack(b, program), out) for a, b, out in operands.sets]
    players = {"vendor": operands.player(operands.vendor), name: fused_player(operands, work)}
    entry = compared(shape, operands.flop, players)
    entry["errors"] = {name: error(operands, play) for name, play in players.items()}
    return {"scheme": name, "products": program.multiplies, **entry}


def error(operands: Operands, play: Player) -> float:
    """Relative to float64, on 64 rows, in the Frobenius norm."""
    operands.turn = len(operands.sets) - 1
    play()
    a, b, out = operands.sets[0]
    wanted = a[:64].double() @ b.double()
    return ((out[:64].double() - wanted).norm() / wanted.norm()).item()


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--limit", default=90.0, help="seconds after which no further case is started")
def main(out: Path, limit: float) -> None:
    """Measure, print and write."""
    begin = time.perf_counter()
    result: dict[str, Any] = {
        **provenance(),
        "shapes": [],
        "schemes": [],
    }
    work = [("shapes", partial(measured, shape)) for shape in SHAPES]
    work += [("schemes", partial(other, name, SHAPES[0])) for name in OTHERS]
    for part, measure in work:
        if time.perf_counter() - begin > limit:
            break
        result[part].append(measure())
        torch.cuda.empty_cache()
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
