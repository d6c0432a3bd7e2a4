"""Measures grouped products (mixture of experts) against ``torch._grouped_mm``.

Usage: ``python benchmarks/h200_grouped.py --out benchmarks/results/h200-grouped.json``

Even groups, and uneven ones whose shares are uniform on the simplex (Dirichlet, all parameters 1).
Weights lie as in ``torch.nn.Linear``, (G, N, K). Operands rotate in sets that exceed L2 together.
Calls are replayed from CUDA graphs, so that no host is measured; interleaved and sustained as in
``h200_gemm.py``. GB/s count each operand and the result once.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch
from h200_gemm import SETS_BYTES, Player, interleaved, provenance, sustained

import tiercel


class Case(NamedTuple):
    """``groups`` experts, ``M`` rows for all of them together."""

    groups: int
    M: int
    N: int
    K: int
    even: bool


SIZES = [
    (8, 4096, 4096, 2048), (8, 16384, 4096, 7168), (8, 16384, 7168, 2048),
    (16, 8192, 4096, 4096), (32, 8192, 2048, 7168), (64, 4096, 4096, 2048),
    (64, 8192, 2048, 4096), (64, 16384, 2048, 4096), (64, 16384, 4096, 2048),
]  # fmt: skip
CASES = [Case(*sizes, even) for sizes in SIZES for even in (True, False)]


def ends_of(case: Case) -> torch.Tensor:
    """Row behind the last of each group."""
    shares = torch.full((case.groups,), 1.0 / case.groups)
    if not case.even:
        shares = torch.distributions.Dirichlet(torch.ones(case.groups)).sample()
    ends = (shares.double().cumsum(0) * case.M).round()
    return ends.clamp(max=case.M).int().cuda()


class Operands:
    """Rotating sets of A (M, K), weights (G, N, K) used as (G, K, N), and offsets."""

    def __init__(self, case: Case) -> None:
        groups, M, N, K, _ = case
        self.bytes = 2 * (M * K + groups * K * N + M * N)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

        self.sets = [
            (normal(M, K), normal(groups, N, K).mT, ends_of(case))
            for _ in range(max(2, min(6, SETS_BYTES // self.bytes + 1)))
        ]

    def player(self, call: Callable[..., torch.Tensor]) -> Player:
        """Replays one call for each set."""
        for operands in self.sets:
            call(*operands)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for operands in self.sets:
                call(*operands)
        return graph.replay


def vendor(a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """PyTorch's grouped kernel."""
    return torch._grouped_mm(a, b, offs=ends)  # pyright: ignore[reportPrivateImportUsage]


def measured(case: Case, steady: bool) -> dict[str, Any]:
    """Ratios over PyTorch, above 1 where tiercel is faster; ``steady``: sustained as well."""
    operands = Operands(case)
    ours, theirs = (call(*operands.sets[0]) for call in (tiercel.grouped_matmul, vendor))
    torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02 * case.K**0.5)
    players = {
        "vendor": operands.player(vendor),
        "tiercel": operands.player(tiercel.grouped_matmul),
    }
    times = interleaved(players)
    single = statistics.median(
        [v / t for v, t in zip(times["vendor"], times["tiercel"], strict=True)]
    )
    milliseconds = statistics.median(times["vendor"]) / len(operands.sets)
    entry: dict[str, Any] = {
        **case._asdict(),
        "vendor_tflops": 2 * case.M * case.N * case.K / milliseconds / 1e9,
        "vendor_gb_per_s": operands.bytes / milliseconds / 1e6,
        "interleaved": single,
    }
    if steady:
        alone = sustained(players)
        entry["sustained"] = alone["vendor"]["ms"] / alone["tiercel"]["ms"]
    click.echo("  ".join(f"{k} {x:.3f}" if isinstance(x, float) else f"{k} {x}"
                         for k, x in entry.items()))  # fmt: skip
    return entry


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--limit", default=60.0, help="seconds after which no further case is started")
@click.option("--steady", default=16, help="how many of the first cases are also sustained")
def main(out: Path, limit: float, steady: int) -> None:
    """Measure, print and write."""
    torch.manual_seed(0)
    begin = time.perf_counter()
    result: dict[str, Any] = {
        **provenance(),
        "cases": [],
    }
    for i, case in enumerate(CASES):
        if time.perf_counter() - begin > limit:
            break
        result["cases"].append(measured(case, i < steady))
        torch.cuda.empty_cache()
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
