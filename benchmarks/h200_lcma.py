"""Measures schemes inside the Hopper kernel against cuBLAS (through torch).

Usage: ``python benchmarks/h200_lcma.py --out benchmarks/results/h200-lcma.json``

Measured as ``h200_gemm.py`` does, interleaved and sustained, on normal numbers. Players beside the
vendor: ``plain``, the classical kernel; ``kernel``, a scheme's with all planes there already;
``packed``, B's planes combined before, A's in the call; ``dynamic``, both combined in the call;
``guarded``, packed, with the guard that the public functions use. The way of combining follows the
name where it is not the default one.
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

from tiercel import schemes
from tiercel.frontends.torch import cuda_fused
from tiercel.lower.accumulator import AccumulatorProgram, accumulate
from tiercel.targets.hopper.fused_product import FusedLaunch, prepare
from tiercel.targets.hopper.fused_schedule import Combining
from tiercel.targets.hopper.packed import pack

SHAPES = [
    (8192, 8192, 8192), (16384, 16384, 16384), (4096, 4096, 4096), (8192, 8192, 28672),
    (8192, 28672, 8192), (16384, 53248, 16384),
]  # fmt: skip
#: Of a tile of two thread blocks; as many of them work at a time.
TILE, CLUSTERS = (256, 256), 66
#: Other schemes, whose accuracy is reported along with their speed.
OTHERS = ("lean-4x4x2", "lean-4x2x4", "winograd2", "strassen", "accurate", "lean-2x2x3")
SECONDS = 0.25  # that a player runs alone


def program_of(name: str) -> AccumulatorProgram:
    """As the kernel can run it."""
    return accumulate(schemes.get(name))


def ways(M: int, N: int) -> dict[str, Combining]:
    """Planes combined by a kernel before the product, by idle warps, or in a first turn."""
    found = {"before": Combining(), "beside": Combining("beside", split=2)}
    tiles = -(-M // 2 // TILE[0]) * -(-N // 2 // TILE[1])
    if spare := -tiles % CLUSTERS:
        found["first"] = Combining("first", min(spare, 32), split=2)
    return found


def fused_player(
    operands: Operands, work: list[FusedLaunch], run: Callable[[FusedLaunch, int], None]
) -> Player:
    """Ready launches, one for each set of operands."""
    return operands.player(lambda i: run(work[i], torch.cuda.current_stream().cuda_stream))


def product_only(work: FusedLaunch, stream: int) -> None:
    """Without what comes before and after."""
    work.multiply.run(stream)


def measured(shape: tuple[int, int, int]) -> dict[str, Any]:
    """Winograd's scheme in all its uses."""
    operands, name = Operands(*shape), "winograd"
    players = {"vendor": operands.player(operands.vendor), "plain": operands.player(operands.ours)}
    packs = [cuda_fused.pack(b, name).panels.static for _, b, _ in operands.sets]
    for way, combining in ways(*shape[:2]).items():
        packed = [
            prepare(a, static.operand, out, combining=combining)
            for (a, _, out), static in zip(operands.sets, packs, strict=True)
        ]
        players[f"packed, {way}"] = fused_player(operands, packed, FusedLaunch.run)
        if way == "before":
            players["kernel"] = fused_player(operands, packed, product_only)
        both = [
            prepare(a, b, out, program=program_of(name), combining=combining)
            for a, b, out in operands.sets
        ]
        players[f"dynamic, {way}"] = fused_player(operands, both, FusedLaunch.run)
    work = [
        prepare(a, static.operand, out, judge=static.judge)
        for (a, _, out), static in zip(operands.sets, packs, strict=True)
    ]
    players["guarded"] = fused_player(operands, work, FusedLaunch.run)
    entry = compared(shape, operands.flop, players, SECONDS)
    entry["errors"] = {name: error(operands, play) for name, play in players.items()}
    return entry


def other(name: str, shape: tuple[int, int, int]) -> dict[str, Any]:
    """A scheme with B packed and A combined before the product."""
    program, operands = program_of(name), Operands(*shape)
    work = [prepare(a, pack(b, program), out, combining=Combining()) for a, b, out in operands.sets]
    players = {
        "vendor": operands.player(operands.vendor),
        "packed": fused_player(operands, work, FusedLaunch.run),
        "kernel": fused_player(operands, work, product_only),
    }
    entry = compared(shape, operands.flop, players, SECONDS)
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
    work: list[tuple[str, Callable[[], dict[str, Any]]]] = []
    for shape in SHAPES[:2]:
        work.append(("shapes", partial(measured, shape)))
        work += [("schemes", partial(other, name, shape)) for name in OTHERS[:3]]
    work += [("shapes", partial(measured, shape)) for shape in SHAPES[2:]]
    work += [("schemes", partial(other, name, SHAPES[0])) for name in OTHERS[3:]]
    for part, measure in work:
        if time.perf_counter() - begin > limit:
            break
        result[part].append(measure())
        torch.cuda.empty_cache()
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
