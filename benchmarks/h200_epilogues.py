"""Measures products with fused epilogues against cuBLAS with PyTorch's compiled kernels.

Usage: ``python benchmarks/h200_epilogues.py --out benchmarks/results/h200-epilogues.json``

The products of a Llama-3 block (8B and 70B), 2048 and 8192 tokens. Players: ``split``, cuBLAS and
then a ``torch.compile``d element-wise kernel; ``whole``, ``torch.compile`` of both together;
``packed``, ``tiercel.linear`` with a packed weight, which plans one of two: ``fused``, the
classical kernel, or ``scheme``, Winograd's scheme, A combined and judged in the same launch. Ratios
are over the faster of the first two: interleaved (one call each in random order, the host being
ahead), and of these three sustained: medians of turns of 0.1 s, in every order of the three, since
who follows an element-wise kernel finds a cooler chip. Two players say what an
epilogue that costs nothing would reach: ``product``, cuBLAS alone, and ``plain``, the product alone
by tiercel. What has to be compiled is compiled before, by one process for each product.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
import torch._dynamo.config
import torch.nn.functional as F
from epilogue_cases import Case, cases, normal
from h200_gemm import Player, provenance, timed, turn_of

import tiercel
from tiercel.targets.hopper import Tile, gemm, gemm_epilogue
from tiercel.targets.hopper.epilogues.fused import fused_epilogue
from tiercel.targets.hopper.products.heuristic import CANDIDATES

SCHEME = "winograd"
SETS_BYTES = 200 << 20
TURN = 0.1  # seconds
PEERS = ("split", "whole")
STEADY = (*PEERS, "packed")  # players with sustained turns
MOST_SETS = 8  # of operands, which take turns
PAUSE = 600_000  # cycles: 0.3 ms, more than any player's host needs
LARGE = [*CANDIDATES[:4], Tile(128, 192, 4, "pingpong", 2), Tile(192, 128, 4, "pingpong", 2)]


def turns(call: Callable[[int], object], sets: int) -> Player:
    """A player of one call, on the next set of operands each time."""
    turn = 0

    def play() -> None:
        nonlocal turn
        turn = (turn + 1) % sets
        call(turn)

    return play


def interleaved(players: dict[str, Player], rounds: int) -> dict[str, float]:
    """Median milliseconds of one call, in random order, each behind a pause of the device in which
    the host prepares everything.
    """
    times: dict[str, list[float]] = {name: [] for name in players}
    order = random.Random(0)
    for round_ in range(rounds + 2):
        for name in order.sample(sorted(players), len(players)):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(PAUSE)
            start.record()
            players[name]()
            stop.record()
            stop.synchronize()
            if round_ >= 2:
                times[name].append(start.elapsed_time(stop))
    return {name: statistics.median(found) for name, found in times.items()}


def sustained(players: dict[str, Player], seconds: float) -> dict[str, dict[str, float]]:
    """Milliseconds of a call, clock and power: medians of turns in every order of the players.

    In one order and its reverse, twice, the same kernel was at 0.943 and, by turns in random order,
    at 1.075 (`residual_rms`, 8192 × 4096 × 4096).
    """
    calls = {name: max(3, int(seconds * 1e3 / timed(play, 3))) for name, play in players.items()}
    turns: dict[str, list[tuple[float, float, float]]] = {name: [] for name in players}
    turn_of(players["split"], calls["split"])  # the first one finds a chip at rest
    for order in itertools.permutations(players):
        for name in order:
            turns[name].append(turn_of(players[name], calls[name]))
    fields = "ms", "clock_mhz", "watts"
    medians = {name: map(statistics.median, zip(*x, strict=True)) for name, x in turns.items()}
    return {name: dict(zip(fields, found, strict=True)) for name, found in medians.items()}


def players(
    case: Case, M: int, tiles: list[Tile | None], whole: bool, scheme_too: bool
) -> dict[str, Player]:
    """Name → one product with its epilogue."""
    size = 2 * (M * case.K + case.K * case.N + M * case.N)
    sets = max(2, min(MOST_SETS, SETS_BYTES // size + 1))
    arrays = [
        (normal(M, case.K), normal(case.N, case.K) / case.K**0.5, case.operands(M))
        for _ in range(sets)
    ]
    split = torch.compile(case.split, dynamic=False)

    def together(x: torch.Tensor, w: torch.Tensor, **operands: Any) -> Any:
        y = F.linear(x, w)
        return case.split(y[:, : case.columns], **operands), y if case.columns else None

    together = torch.compile(together, dynamic=False)

    def by_split(i: int) -> Any:
        x, w, operands = arrays[i]
        y = F.linear(x, w)
        return y, split(y[:, : case.columns], **operands)

    def by_whole(i: int) -> Any:
        x, w, operands = arrays[i]
        return together(x, w, **operands)

    def fused(tile: Tile | None) -> Callable[[int], Any]:
        def call(i: int) -> Any:
            x, w, operands = arrays[i]
            return gemm_epilogue(x, w.t(), case.epilogue, operands | case.settings, config=tile)

        return call

    weights = [tiercel.pack(w.t(), scheme=SCHEME) for _, w, _ in arrays]

    def scheme(i: int) -> Any:
        x, _, operands = arrays[i]
        made = weights[i].form.panels.static
        return fused_epilogue(
            x, made.operand, case.epilogue, operands | case.settings, judge=made.judge
        )

    def packed(i: int) -> Any:
        x, _, operands = arrays[i]
        given: dict[str, Any] = operands | case.settings
        return tiercel.linear(x, weights[i], epilogue=case.epilogue, **given)

    def product(i: int) -> Any:
        return F.linear(*arrays[i][:2])

    def plain(i: int) -> Any:
        return gemm(arrays[i][0], arrays[i][1].t())

    made = {"split": turns(by_split, sets)}
    if whole:
        made["whole"] = turns(by_whole, sets)
    for tile in tiles:
        name = "fused" if tile is None else f"{tile.schedule[0]}{tile.m}x{tile.n}"
        made[name] = turns(fused(tile), sets)
    if scheme_too:
        made["scheme"] = turns(scheme, sets)
    made["packed"] = turns(packed, sets)
    return made | {"product": turns(product, sets), "plain": turns(plain, sets)}


def launches(case: Case, M: int) -> dict[str, list[str]]:
    """Names of the kernels that one call launches: classical, and by the scheme."""
    x, w, operands = normal(M, case.K), normal(case.N, case.K), case.operands(M) | case.settings
    made = tiercel.pack(w.t(), scheme=SCHEME).form.panels.static
    calls = {
        "fused": lambda: gemm_epilogue(x, w.t(), case.epilogue, operands),
        "scheme": lambda: fused_epilogue(
            x, made.operand, case.epilogue, operands, judge=made.judge
        ),
    }
    found = {}
    for name, call in calls.items():
        call()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            call()
            torch.cuda.synchronize()
        events = [x.name for x in profile.events() or () if "CUDA" in str(x.device_type)]
        found[name] = [x for x in events if "mem" not in x.lower()]
    return found


def measure(
    case: Case, M: int, tiles: list[Tile | None], whole: bool, scheme_too: bool, turn: float
) -> dict[str, Any]:
    """Ratios over the fastest of PyTorch's players, above 1 where faster."""
    made = players(case, M, tiles, whole, scheme_too)
    for play in made.values():
        for _ in range(MOST_SETS):  # each packed weight has launches of its own
            play()
    middle = interleaved(made, rounds=9)
    steady = sustained({name: made[name] for name in STEADY if name in made}, turn)
    peers = [name for name in PEERS if name in made]
    fastest = {"interleaved": min(middle[name] for name in peers),
               "sustained": min(steady[name]["ms"] for name in peers)}  # fmt: skip
    entry: dict[str, Any] = {
        "epilogue": case.name,
        "shape": (M, case.N, case.K),
        "peer_ms": {"interleaved": {name: middle[name] for name in peers},
                    "sustained": {name: steady[name]["ms"] for name in peers}},
        "ratios": {
            name: {"interleaved": fastest["interleaved"] / ms}
            | ({"sustained": fastest["sustained"] / steady[name]["ms"],
                "clock_mhz": steady[name]["clock_mhz"], "watts": steady[name]["watts"]}
               if name in steady else {})
            for name, ms in middle.items()
        },
    }  # fmt: skip
    line = "  ".join(
        name + "/".join(f" {x[kind]:.3f}" for kind in fastest if kind in x)
        for name, x in entry["ratios"].items()
        if name != "split"
    )
    click.echo(f"{case.name:14}{entry['shape']} {middle['split']:.3f} ms  {line}")
    return entry


def compile_all(models: list[str], sizes: list[int], options: list[str]) -> None:
    """Everything that a later process needs, in the caches of this machine."""
    command = [sys.executable, __file__, *options, "--rows", ",".join(map(str, sizes))]
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    running = [
        subprocess.Popen(
            [*command, "--models", model, "--compile-only", str(i)],
            stdout=subprocess.DEVNULL,
            env=environment,
        )
        for model in models
        for i in range(len(cases(model)))
    ]
    for process in running:
        process.wait()


def summary(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Geometric mean and least ratio of each player that is in all entries."""
    names = [x for x in entries[0]["ratios"] if all(x in y["ratios"] for y in entries)]
    found: dict[str, dict[str, Any]] = {}
    for kind in ("interleaved", "sustained"):
        of = {
            x: [y["ratios"][x][kind] for y in entries]
            for x in names
            if x not in PEERS and kind in entries[0]["ratios"][x]
        }
        found[kind] = {
            x: {"mean": statistics.geometric_mean(ratios), "least": min(ratios)}
            for x, ratios in of.items()
        }
    return found


@click.command()
@click.option("--out", type=click.Path(path_type=Path))
@click.option("--models", default="8B,70B", show_default=True)
@click.option("--rows", default="2048,8192", show_default=True)
@click.option("--only", help="Epilogues to measure, all by default.")
@click.option("--sweep", is_flag=True, help="Every large tile instead of the one chosen.")
@click.option("--no-whole", is_flag=True, help="Leave the player whole out.")
@click.option("--schemes", is_flag=True, help="The player scheme, too, planned or not.")
@click.option("--keep", is_flag=True, help="Of an earlier file, keep what is not measured anew.")
@click.option("--compiled", is_flag=True, help="Do not compile first: caches are full.")
@click.option("--compile-only", type=int, hidden=True)
@click.option("--turn", default=TURN, show_default=True, help="Seconds of a sustained turn.")
@click.option("--limit", default=100.0, help="Seconds after which no further case is started.")
def main(
    out: Path | None,
    models: str,
    rows: str,
    only: str | None,
    sweep: bool,
    no_whole: bool,
    schemes: bool,
    keep: bool,
    compiled: bool,
    compile_only: int | None,
    turn: float,
    limit: float,
) -> None:
    """Measure, print and write."""
    folder = Path(tempfile.gettempdir()) / "inductor-of-epilogues"  # shared with the compilations
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder))
    begin = time.perf_counter()
    torch._dynamo.config.recompile_limit = 64  # each case is another size of the same functions
    sizes, names = [int(M) for M in rows.split(",")], models.split(",")
    tiles: list[Tile | None] = [*LARGE] if sweep else [None]
    if compile_only is not None:
        for M in sizes:
            case = cases(names[0])[compile_only]
            for play in players(case, M, tiles, not no_whole, schemes).values():
                play()
            torch.cuda.empty_cache()
        return
    options = ["--sweep"] * sweep + ["--no-whole"] * no_whole + ["--schemes"] * schemes
    if not compiled:
        compile_all(names, sizes, options)
        click.echo(f"compiled in {time.perf_counter() - begin:.0f} s")
    result: dict[str, Any] = {**provenance(), "cases": []}
    if keep and out is not None and out.exists():
        result["cases"] = json.loads(out.read_text(encoding="utf-8"))["cases"]
    for M, model in itertools.product(sizes, names):
        for case in cases(model):
            if only and case.name not in only.split(","):
                continue
            if time.perf_counter() - begin > limit:
                click.echo(f"no time for {case.name} of {model}, {M} rows")
                continue
            entry = {"model": model, **measure(case, M, tiles, not no_whole, schemes, turn)}
            of = entry["model"], entry["epilogue"], list(entry["shape"])
            result["cases"] = [
                x for x in result["cases"] if (x["model"], x["epilogue"], list(x["shape"])) != of
            ] + [entry]
            if not sweep:
                result["fused"] = summary(result["cases"])
            torch.cuda.empty_cache()
            if out is not None:
                out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    click.echo(json.dumps(result.get("fused")))
    result["launches"] = {case.name: launches(case, min(sizes)) for case in cases(names[-1])}
    for name, launched in result["launches"].items():
        assert all(kernels == ["gemm"] for kernels in launched.values()), (name, launched)
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
