"""Measures the portable GPU target against the vendor's library, interleaved and sustained.

Usage: ``python benchmarks/h200_portable.py --out benchmarks/results/h200-portable.json``

For each case every number of levels has a few interleaved rounds against ``torch.mm``; the fastest
one is then measured sustained (each side alone for 0.3 s, in turn) and for its error. Operands are
normal random numbers, rotated among enough sets to exceed the L2 cache. TF32 is off, the guard is
on. Interleaved turns take 20 ms or one call and begin with an idle GPU, so that the time Python
takes to launch the first kernels counts; in sustained blocks it hides behind the GPU's work.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import click
import torch
import triton

from tiercel.bench.timing import paired_ratios, spread
from tiercel.schemes import Scheme, get
from tiercel.targets.gpu import pack, product, recipe_for, workspace_bytes

L2_BYTES = 60 << 20
SUSTAINED_SECONDS = 0.3
REPEATS = 3
SAMPLED_ROWS = 16


@dataclass(frozen=True)
class Case:
    """C (M, N) = A (M, K) · B (K, N) in one dtype; ``levels`` are tried."""

    dtype: str
    M: int
    N: int
    K: int
    levels: tuple[int, ...]

    @property
    def flop(self) -> float:
        """Operations of the classical product."""
        return (8 if self.dtype.startswith("complex") else 2) * self.M * self.N * self.K


def cases() -> Iterator[Case]:
    """Squares, and the projections of large language models."""
    squares = {
        "float32": {2048: (1, 2), 4096: (1, 2, 3), 8192: (1, 2, 3), 16384: (2, 3)},
        "float64": {2048: (1, 2), 4096: (1, 2), 8192: (1, 2, 3), 16384: (2, 3)},
        "complex64": {2048: (1, 2), 4096: (1, 2), 8192: (1, 2)},
        "complex128": {2048: (1,), 4096: (1, 2), 8192: (1, 2)},
        "bfloat16": {4096: (1,), 8192: (1, 2), 16384: (1, 2)},
    }
    for dtype, sizes in squares.items():
        for size, levels in sizes.items():
            yield Case(dtype, size, size, size, levels)
    for M, N, K in ((8192, 28672, 8192), (8192, 8192, 28672)):
        yield Case("float32", M, N, K, (2, 3))
        yield Case("bfloat16", M, N, K, (1, 2))


def elapsed(calls: Sequence[Callable[[], object]]) -> float:
    """Milliseconds per call, of calls issued one after the other."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for call in calls:
        call()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / len(calls)


def measure(case: Case, scheme: Scheme) -> dict[str, Any]:
    """One entry of the results."""
    dtype = getattr(torch, case.dtype)
    bytes_of_set = (case.M + case.N) * case.K * dtype.itemsize
    sets = max(1, -(-2 * L2_BYTES // bytes_of_set))
    operands = [
        (
            torch.randn(case.M, case.K, dtype=dtype, device="cuda"),
            torch.randn(case.K, case.N, dtype=dtype, device="cuda"),
        )
        for _ in range(sets)
    ]
    out = torch.empty(case.M, case.N, dtype=dtype, device="cuda")
    turn = cycle(operands)

    def vendor() -> None:
        a, b = next(turn)
        torch.mm(a, b, out=out)

    def ours(levels: int) -> Callable[[], None]:
        def call() -> None:
            a, b = next(turn)
            product(a, b, scheme, levels, out=out)

        return call

    players = {"vendor": vendor} | {f"levels={x}": ours(x) for x in case.levels}
    for call in players.values():
        call()
    torch.cuda.synchronize()
    calls = max(1, int(20 / max(elapsed([vendor]), 0.05)))  # a turn of 20 ms
    times: dict[str, list[float]] = {name: [] for name in players}
    order = random.Random(0)
    for _ in range(REPEATS if case.flop > 4e12 else 5):
        for name in order.sample(sorted(players), len(players)):
            times[name].append(elapsed([players[name]] * calls))
    ratios = {
        name: spread([v / t for v, t in zip(times["vendor"], values, strict=True)])
        for name, values in times.items()
    }
    best = max(case.levels, key=lambda x: ratios[f"levels={x}"].median)
    sustained = sustain(vendor, players[f"levels={best}"])
    static = sustain_packed(vendor, operands, out, scheme, best)
    milliseconds = {name: spread(values).median for name, values in times.items()}
    recipe = recipe_for([scheme] * best, case.M, case.N, case.K, case.dtype)
    a, b = operands[0]
    return {
        **asdict(case),
        "interleaved": {name: asdict(x) for name, x in ratios.items() if name != "vendor"},
        "milliseconds": milliseconds,
        "best": best,
        "recipe": str(recipe),
        "tflops": {name: case.flop / ms / 1e9 for name, ms in milliseconds.items()},
        "sustained": sustained,
        "sustained_packed_b": static,
        "workspace_bytes": workspace_bytes(case.M, case.N, case.K, case.dtype, recipe),
        "error": errors(a, b, out, scheme, best),
        "clock_mhz_power_w": smi("clocks.sm,power.draw"),
    }


def sustain(
    vendor: Callable[[], None], ours: Callable[[], None], repeats: int = REPEATS
) -> dict[str, float]:
    """Median ratio and milliseconds of blocks in which each side runs alone."""
    calls = [max(1, int(1e3 * SUSTAINED_SECONDS / elapsed([x] * 3))) for x in (vendor, ours)]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for side, call in enumerate((vendor, ours)):
            times[side].append(elapsed([call] * calls[side]))
    return {
        "ratio": paired_ratios(*times).median,
        "vendor_ms": spread(times[0]).median,
        "ms": spread(times[1]).median,
    }


def sustain_packed(
    vendor: Callable[[], None],
    operands: list[tuple[torch.Tensor, torch.Tensor]],
    out: torch.Tensor,
    scheme: Scheme,
    levels: int,
) -> dict[str, float]:
    """As ``sustain``, with the right operands packed before."""
    turn = cycle([(a, pack(b, scheme, levels)) for a, b in operands])

    def ours() -> None:
        a, packed = next(turn)
        product(a, packed, scheme, levels, out=out)

    ours()
    return sustain(vendor, ours, repeats=2)


def errors(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, scheme: Scheme, levels: int
) -> dict[str, float]:
    """‖C − reference‖ / ‖reference‖ on some rows, against float64.

    Nothing for float64 and complex128, which ``tests/gpu`` judges against longer arithmetic.
    """
    wide = torch.complex128 if a.is_complex() else torch.float64
    if a.dtype == wide:
        return {}
    rows = torch.arange(0, len(a), len(a) // SAMPLED_ROWS, device=a.device)
    reference = a[rows].to(wide) @ b.to(wide)

    def distance(c: torch.Tensor) -> float:
        return ((c[rows].to(wide) - reference).norm() / reference.norm()).item()

    product(a, b, scheme, levels, out=out)
    found = {"tiercel": distance(out)}
    torch.mm(a, b, out=out)
    return {**found, "vendor": distance(out)}


def smi(fields: str) -> str:
    """What the driver says now."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="JSON file to write.")
@click.option("--scheme", default="strassen", show_default=True, help="A name of the catalogue.")
@click.option("--dtype", multiple=True, help="Only these dtypes.")
def main(out: Path, scheme: str, dtype: tuple[str, ...]) -> None:
    """Run all cases, write the results after each, print a line for each."""
    torch.backends.cuda.matmul.allow_tf32 = False
    record: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/h200_portable.py", *sys.argv[1:]]),
        "device": torch.cuda.get_device_name(),
        "driver_clocks_power": smi("driver_version,clocks.max.sm,power.limit"),
        "versions": {
            "torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda,
        },
        "scheme": scheme,
        "results": [],
    }  # fmt: skip
    for case in cases():
        if dtype and case.dtype not in dtype:
            continue
        result = measure(case, get(scheme))
        torch.cuda.empty_cache()
        record["results"].append(result)
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        inter = " ".join(f"{k[7:]}:{v['median']:.3f}" for k, v in result["interleaved"].items())
        ratio = {k: result[k]["ratio"] for k in ("sustained", "sustained_packed_b")}
        best = f"levels={result['best']}"
        click.echo(
            f"{case.dtype:10} {case.M}x{case.N}x{case.K}: vendor "
            f"{result['tflops']['vendor']:.1f} ours {result['tflops'][best]:.1f} TFLOP/s; "
            f"interleaved {inter}; sustained {ratio['sustained']:.3f}, packed "
            f"{ratio['sustained_packed_b']:.3f}; error {result['error']}; "
            f"{result['clock_mhz_power_w']}"
        )


if __name__ == "__main__":
    main()
