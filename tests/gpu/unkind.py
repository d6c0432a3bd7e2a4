"""Data that a scheme must leave to the classical product, and what is then right."""

import torch

KINDS = "nan", "inf", "tiny", "uneven"


def spoil(x: torch.Tensor, kind: str) -> None:
    """Turn a normal bfloat16 matrix into one of the KINDS, in place."""
    if kind in ("nan", "inf"):
        x[5, 7] = float(kind)
    elif kind == "tiny":
        x *= 1e-7
    else:
        x *= torch.logspace(-4, 2, len(x), device=x.device)[:, None].bfloat16()


def assert_classical(found: torch.Tensor, vendors: torch.Tensor) -> None:
    """The vendor's pattern of NaN and Inf, and every finite row as near as rounding leaves it."""
    assert torch.equal(found.isnan(), vendors.isnan())
    assert torch.equal(found.isinf(), vendors.isinf())
    rows = vendors.isfinite().all(1)
    apart = (found[rows].float() - vendors[rows].float()).norm(dim=1)
    assert (apart <= 5e-3 * vendors[rows].float().norm(dim=1)).all()
