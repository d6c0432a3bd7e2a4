"""Measures float8 and TF32 products against cuBLAS (through torch), interleaved and sustained.

Usage: ``python benchmarks/h200_fp8_tf32.py --out benchmarks/results/h200-fp8-tf32.json``

float8: ``torch._scaled_mm`` in the same accumulation mode and with the same scales; where it has
none of single columns, with those of 128 columns ("vendor_scales"). TF32: each layout of the
operands, by the classical kernel and by what ``tiercel.matmul`` chooses. Method and reading as in
``h200_gemm.py``; errors are those of 64 rows against float64.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import torch
from h200_gemm import compared, provenance

import tiercel
from tiercel.targets.hopper import gemm, gemm_scaled

Case = Callable[[int, float], dict[str, Any]]
E4M3 = torch.float8_e4m3fn


def float8(kind: str, fast: bool) -> Case:
    """``kind`` of scales: one number, rows, or blocks (see ``tiercel.scaled_matmul``)."""

    def case(n: int, turn: float) -> dict[str, Any]:
        a, b = (torch.randn(n, n, device="cuda").to(E4M3) for _ in range(2))
        out, depth = torch.empty(n, n, device="cuda", dtype=torch.bfloat16), n // 128
        scale_a, scale_b = {
            "number": lambda: (torch.rand((), device="cuda"), torch.rand((), device="cuda")),
            "rows": lambda: (torch.rand(n, 1, device="cuda"), torch.rand(1, n, device="cuda")),
            "blocks": lambda: (
                torch.rand(depth, n, device="cuda").t(), torch.rand(depth, depth, device="cuda").t()
            ),
            "column blocks": lambda: (
                torch.rand(depth, n, device="cuda").t(), torch.rand(depth, n, device="cuda")
            ),
        }[kind]()  # fmt: skip

        theirs = kind, scale_b

        def vendor() -> torch.Tensor:
            return torch._scaled_mm(  # pyright: ignore[reportPrivateImportUsage]
                a, b.t(), scale_a, theirs[1], out_dtype=out.dtype, use_fast_accum=fast
            )

        def ours() -> torch.Tensor:
            return gemm_scaled(a, b.t(), scale_a, scale_b, out=out, fast_accumulation=fast)

        left, right = scale_a[:64] if scale_a.dim() else scale_a, scale_b
        if "blocks" in kind:
            left, right = left.repeat_interleave(128, 1), right.repeat_interleave(128, 0)
            right = right if right.shape[1] == n else right.repeat_interleave(128, 1)
            wanted = (a[:64].double() * left) @ (b.t().double() * right)
        else:
            wanted = a[:64].double() @ b.t().double() * left * right
        errors = {"gemm": error(ours(), wanted)}
        try:
            errors["vendor"] = error(vendor(), wanted)
        except (RuntimeError, ValueError):
            theirs = "blocks", torch.rand(depth, depth, device="cuda").t()
        entry = compared((n, n, n), 2 * n**3, {"vendor": vendor, "gemm": ours}, turn)
        return {"scales": kind, "vendor_scales": theirs[0], "fast": fast, "errors": errors, **entry}

    return case


def tf32(a_transposed: bool, b_transposed: bool) -> Case:
    """``transposed``: contiguous along M (of A), along K (of B)."""

    def case(n: int, turn: float) -> dict[str, Any]:
        a, b, out = (torch.randn(n, n, device="cuda") for _ in range(3))
        a, b = a.t() if a_transposed else a, b.t() if b_transposed else b

        def vendor() -> torch.Tensor:
            return torch.mm(a, b, out=out)

        def ours() -> torch.Tensor:
            return gemm(a, b, out=out, tf32=True)

        def planned() -> torch.Tensor:
            return tiercel.matmul(a, b, out=out)

        wanted = a[:64].double() @ b.double()
        players = {"vendor": vendor, "gemm": ours, "matmul": planned}
        errors = {name: error(play(), wanted) for name, play in players.items()}
        plan = tiercel.last_plan()
        assert plan is not None, "it has just run"
        layout = f"{'nt'[a_transposed]}{'nt'[b_transposed]}"
        facts = {"layout": layout, "matmul": plan.chosen.algorithm, "errors": errors}
        return {**facts, **compared((n, n, n), 2 * n**3, players, turn)}

    return case


def error(x: torch.Tensor, wanted: torch.Tensor) -> float:
    """Of the first 64 rows, in the Frobenius norm."""
    return ((x[:64].double() - wanted).norm() / wanted.norm()).item()


SETS: dict[str, tuple[list[Case], list[int]]] = {
    "float8": (
        [
            float8("number", True), float8("number", False), float8("rows", True),
            float8("rows", False), float8("blocks", False), float8("column blocks", False),
        ],
        [4096, 8192],
    ),
    "tf32": ([tf32(a, b) for a in (False, True) for b in (True, False)], [4096, 8192, 16384]),
}  # fmt: skip


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--sets", default="float8,tf32", help="what to measure, in this order")
@click.option("--sizes", default="4096,8192,16384", help="which of the set's sizes")
@click.option("--limit", default=120.0, help="seconds after which no further case is started")
@click.option("--turn", default=0.15, help="seconds that a product is repeated, sustained")
def main(out: Path, sets: str, sizes: str, limit: float, turn: float) -> None:
    """Measure, print and write."""
    begin = time.perf_counter()
    torch.backends.cuda.matmul.allow_tf32 = True
    result: dict[str, Any] = {**provenance(), "turn": turn}
    for name in sets.split(","):
        cases, known = SETS[name]
        result[name] = []
        for n in (n for n in known if str(n) in sizes.split(",")):
            for case in cases:
                if time.perf_counter() - begin > limit:
                    break
                result[name].append(case(n, turn))
                click.echo(f"  {[v for k, v in result[name][-1].items() if k != 'players'][:3]}")
                torch.cuda.empty_cache()
                out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
