"""The product that ``tiercel trace`` runs: random operands, a ready-made epilogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiercel.errors import TiercelRuntimeError, TiercelValueError
from tiercel.lower.epilogue import Epilogue, library
from tiercel.targets.hopper import available
from tiercel.targets.hopper.products import heuristic
from tiercel.targets.hopper.tracing.recording import Recording
from tiercel.targets.hopper.tracing.recording import load as load

if TYPE_CHECKING:
    import torch

HEAD = 128  # columns of an attention head, for rope


def run(
    M: int, N: int, K: int, dtype: str, schedule: str | None, epilogue: str | None
) -> Recording:
    """Record a product of normal random numbers, B a weight (N, K) that is used transposed.

    ``schedule``: "pingpong" or "cooperative", the best tile of which is taken; the best of all by
    default. Raises ``TiercelRuntimeError`` without a Hopper, ``TiercelValueError`` for an unknown
    epilogue.
    """
    fused = _epilogue(epilogue) if epilogue else None
    if reason := available():
        raise TiercelRuntimeError(
            f"tiercel trace runs on an H100 or H200: {reason.rstrip('.')}; a recording that was "
            "made elsewhere can be looked at with --load"
        )
    import torch

    from tiercel.targets.hopper.launching.occupancy import multiprocessors
    from tiercel.targets.hopper.tracing.trace import record

    def normal(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, device="cuda").to(getattr(torch, dtype))

    sms = multiprocessors(torch.cuda.current_device())
    tiles = [x for x in heuristic.CANDIDATES if schedule in (None, x.schedule)]
    choices = [heuristic.estimate(tile, 1, M, N, K, 1, sms) for tile in tiles]
    tile = min(choices, key=lambda choice: choice.cycles).tile
    operands = _operands(epilogue or "", M, N, normal)
    return record(
        normal(M, K), (normal(N, K) / K**0.5).t(), tile=tile, epilogue=fused, operands=operands
    )


def _epilogue(name: str) -> Epilogue:
    found = getattr(library, name, None)
    if not isinstance(found, Epilogue):
        known = [x for x, y in vars(library).items() if isinstance(y, Epilogue)]
        raise TiercelValueError(f"epilogue is {name!r}; allowed: {', '.join(sorted(known))}")
    return found


def _operands(name: str, M: int, N: int, normal: Any) -> dict[str, Any]:
    """Operands of the ready-made epilogues by name: rows, columns, tiles and numbers."""
    import torch

    def small(*shape: int) -> torch.Tensor:
        return torch.rand(shape, device="cuda")

    made: dict[str, dict[str, Any]] = {
        "bias": {"bias": normal(1, N)},
        "residual": {"residual": normal(M, N)},
        "scale": {"scale": 0.5},
        "dequantise": {"scale_a": small(M, 1), "scale_b": small(1, N)},
        "clamp": {"low": -1.0, "high": 1.0},
        "rope": {"cos": small(M, HEAD // 2), "sin": small(M, HEAD // 2)},
        "residual_rms": {"residual": normal(M, N), "gamma": normal(1, N)},
        "rms_apply": {"sum_of_squares": small(M, 1), "width": float(N)},
        "cross_entropy": {"target": torch.randint(N, (M, 1), device="cuda")},
    }
    return made.get(name, {})
