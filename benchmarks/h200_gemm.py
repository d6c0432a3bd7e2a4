"""Measures the Hopper kernels against cuBLAS (through torch), interleaved and sustained.

Usage: ``python benchmarks/h200_gemm.py --out benchmarks/results/h200-gemm.json``

Interleaved: one launch of each player in random order, median of the ratios of each round. A kernel
that sleeps precedes each launch, so that the host's time does not count: it is measured by itself.
Sustained: each player alone for a turn (``turn`` in the results), medians of turns in the order
A B C C B A. Power sets the clock, so the two differ; both are reported, with clocks and power.
Operands are normal random numbers in sets that exceed L2 together.
Small products are replayed from CUDA graphs of 20 calls.
"""

from __future__ import annotations

import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch

from tiercel.targets.hopper import gemm
from tiercel.targets.hopper.products import heuristic

Player = Callable[[], object]

PLAIN = [
    (4096, 4096, 4096), (8192, 8192, 8192), (16384, 16384, 16384), (8192, 28672, 4096),
    (8192, 8192, 28672), (2048, 8192, 8192), (4096, 4096, 14336), (8192, 57344, 8192),
]  # fmt: skip
SMALL = [
    (M, N, K)
    for M in (16, 64, 128, 256, 512)
    for N, K in ((4096, 4096), (14336, 4096), (4096, 8192))
]
SECONDS, ROUNDS, SETS_BYTES = 0.25, 2, 200 << 20
SLEEP = 200_000  # cycles, more than 100 µs: several times what the host takes for a launch


class Operands:
    """Rotating sets of A (M, K), a weight (N, K) used as B = weightᵀ, and an output."""

    def __init__(self, M: int, N: int, K: int) -> None:
        self.flop = 2 * M * N * K
        sets = max(2, min(12, SETS_BYTES // (2 * (M * K + K * N + M * N)) + 1))

        def normal(rows: int, columns: int) -> torch.Tensor:
            return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)

        self.sets = [(normal(M, K), normal(N, K).t(), normal(M, N)) for _ in range(sets)]
        self.turn = 0

    def player(self, call: Callable[[int], object]) -> Player:
        def play() -> None:
            self.turn = (self.turn + 1) % len(self.sets)
            call(self.turn)

        return play

    def vendor(self, i: int) -> None:
        a, b, out = self.sets[i]
        torch.mm(a, b, out=out)

    def ours(self, i: int) -> None:
        a, b, out = self.sets[i]
        gemm(a, b, out=out)


def timed(play: Player, calls: int) -> float:
    """Milliseconds per call, on the device."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(SLEEP)  # pyright: ignore[reportPrivateUsage]
    start.record()
    for _ in range(calls):
        play()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / calls


def interleaved(players: dict[str, Player], rounds: int = 12) -> dict[str, list[float]]:
    """Milliseconds of each round."""
    times: dict[str, list[float]] = {name: [] for name in players}
    order = random.Random(0)
    for round_ in range(rounds + 2):
        for name in order.sample(sorted(players), len(players)):
            milliseconds = timed(players[name], 1)
            if round_ >= 2:
                times[name].append(milliseconds)
    return times


def sustained(
    players: dict[str, Player], seconds: float = SECONDS, rounds: int = ROUNDS
) -> dict[str, dict[str, float]]:
    """Milliseconds per call, clock and power meanwhile: medians of turns of ``seconds``.

    The order is reversed each round (A B C C B A), so that a chip that warms up meets all alike.
    The first third of a turn does not count: the clock, which follows power only after tens of
    milliseconds, is still that of the player before. Nor does a turn before all others: who came
    first met a chip at rest, and ran at 1522 MHz and 513 W in the mean where others had 690.
    """
    calls = {name: max(3, int(seconds * 1e3 / timed(play, 3))) for name, play in players.items()}
    turns: dict[str, list[tuple[float, float, float]]] = {name: [] for name in players}
    last = list(players)[-1]
    turn_of(players[last], calls[last])
    for round_ in range(rounds):
        for name in list(players)[:: 1 if round_ % 2 == 0 else -1]:
            turns[name].append(turn_of(players[name], calls[name]))
    medians = {name: map(statistics.median, zip(*turns[name], strict=True)) for name in players}
    return {
        name: dict(zip(("ms", "clock_mhz", "watts"), found, strict=True))
        for name, found in medians.items()
    }


def turn_of(play: Player, calls: int) -> tuple[float, float, float]:
    """Milliseconds per call, clock in MHz, power in watts."""
    for _ in range(calls // 3):
        play()
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls - calls // 3):
        play()
    stop.record()
    start.synchronize()
    samples = []
    while not samples or not stop.query():
        samples.append((torch.cuda.clock_rate(), torch.cuda.power_draw() / 1e3))
        time.sleep(0.03)
    stop.synchronize()
    clock, power = (statistics.mean(x) for x in zip(*samples, strict=True))
    return start.elapsed_time(stop) / (calls - calls // 3), clock, power


def compared(
    shape: tuple[int, int, int], flop: int, players: dict[str, Player], seconds: float = SECONDS,
    rounds: int = ROUNDS,
) -> dict[str, Any]:  # fmt: skip
    """Ratios over the player "vendor", above 1 where faster."""
    for play in players.values():
        play()
    torch.cuda.synchronize()
    single, steady = interleaved(players), sustained(players, seconds, rounds)
    vendor = single["vendor"]
    entry: dict[str, Any] = {
        "shape": shape,
        "vendor_tflops": {
            "interleaved": flop / statistics.median(vendor) / 1e9,
            "sustained": flop / steady["vendor"]["ms"] / 1e9,
        },
        "players": {
            name: {
                "interleaved": statistics.median(
                    [v / t for v, t in zip(vendor, single[name], strict=True)]
                ),
                "sustained": steady["vendor"]["ms"] / steady[name]["ms"],
                "clock_mhz": steady[name]["clock_mhz"],
                "watts": steady[name]["watts"],
            }
            for name in players
        },
    }
    line = "  ".join(
        f"{name} {x['interleaved']:.3f}/{x['sustained']:.3f}"
        for name, x in entry["players"].items()
    )
    click.echo(f"{shape} vendor {entry['vendor_tflops']['sustained']:.0f}T  {line}")
    return entry


def plain(shape: tuple[int, int, int], turn: float) -> dict[str, Any]:
    """The classical product, tile by the heuristic; ``turn`` in seconds."""
    operands = Operands(*shape)
    players = {"vendor": operands.player(operands.vendor), "gemm": operands.player(operands.ours)}
    return compared(shape, operands.flop, players, turn)


def small(shape: tuple[int, int, int], _: float) -> dict[str, Any]:
    """From graphs: what the host does is measured elsewhere."""
    operands = Operands(*shape)
    graphs = {}
    for name, call in (("vendor", operands.vendor), ("gemm", operands.ours)):
        for i in range(len(operands.sets)):
            call(i)
        graphs[name] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[name]):
            for i in range(20):
                call(i % len(operands.sets))
    times = interleaved({name: graph.replay for name, graph in graphs.items()}, rounds=10)
    ratio = statistics.median([v / t for v, t in zip(times["vendor"], times["gemm"], strict=True)])
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    choice = heuristic.choose(*shape, 1, sms, k_major=True)
    microseconds = statistics.median(times["vendor"]) * 50
    click.echo(
        f"{shape} vendor {microseconds:.1f} us  gemm {ratio:.3f}  {choice.tile} /{choice.parts}"
    )
    return {"shape": shape, "vendor_us": microseconds, "gemm": ratio, "tile": str(choice.tile),
            "parts": choice.parts}  # fmt: skip


def host_overhead(blocks: int = 60, calls: int = 50) -> dict[str, float]:
    """Microseconds of the host for one warm call, and how many more ours takes: medians of short
    blocks in turn, so that whatever else the host does meets both alike.
    """
    a = torch.randn(256, 256, device="cuda", dtype=torch.bfloat16)
    players: dict[str, Callable[..., object]] = {"torch.matmul": torch.matmul, "gemm": gemm}
    times: dict[str, list[float]] = {name: [] for name in players}
    for block in range(blocks + 1):
        for name in sorted(players, reverse=block % 2 == 1):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                players[name](a, a)
            if block:
                times[name].append((time.perf_counter() - start) / calls * 1e6)
    pairs = zip(times["gemm"], times["torch.matmul"], strict=True)
    found = {name: statistics.median(taken) for name, taken in times.items()}
    found["more"] = statistics.median([ours - theirs for ours, theirs in pairs])
    click.echo(f"host {found}")
    return found


CASES: dict[str, tuple[list[Any], Callable[[Any, float], dict[str, Any]]]] = {
    "plain": (PLAIN, plain),
    "small": (SMALL, small),
}


def provenance() -> dict[str, Any]:
    """What a result has to name: the machine, the versions and the command."""
    return {
        "machine": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "command": " ".join(["python", *sys.argv]),
    }


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--sets", default="host,small,plain", help="what to measure, in this order")
@click.option("--limit", default=120.0, help="seconds after which no further case is started")
@click.option("--turn", default=0.4, help="seconds that a large product is repeated, sustained")
def main(out: Path, sets: str, limit: float, turn: float) -> None:
    """Measure, print and write."""
    begin = time.perf_counter()
    result: dict[str, Any] = {**provenance(), "turn": turn}
    for name in sets.split(","):
        if name == "host":
            result[name] = host_overhead()
        else:
            cases, measure = CASES[name]
            result[name] = []
            for shape in cases:
                if time.perf_counter() - begin > limit:
                    break
                result[name].append(measure(shape, turn))
                torch.cuda.empty_cache()
                out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
