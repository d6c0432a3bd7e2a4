"""Batch axes that one operand repeats, turned into rows or columns instead of into copies.

(B, M, K) times (K, N) is one product of B·M rows. In general each batch axis belongs to both
operands (a stack of products), to a alone (more rows) or to b alone (more columns).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch

#: Bytes of repeated operands that ``torch.matmul`` may write out before folding is worth more than
#: having exactly its order of operations.
MOST_REPEATED = 16 << 20


def folded(
    a: torch.Tensor, b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, Callable[[torch.Tensor], torch.Tensor]] | None:
    """``(a2, b2, unfold)`` with ``a @ b == unfold(a2 @ b2)``; None for shapes that do not fit.

    a (..., M, K) and b (..., K, N) become matrices, or stacks of as many matrices each. Views
    where the strides allow it.
    """
    if a.shape[-1] != b.shape[-2]:
        return None
    if a.dim() == b.dim() == 2:
        return a, b, _unchanged
    axes = max(a.dim(), b.dim()) - 2
    a = a[(None,) * (axes + 2 - a.dim())]
    b = b[(None,) * (axes + 2 - b.dim())]
    both, only_a, only_b = [], [], []
    for axis, (of_a, of_b) in enumerate(zip(a.shape[:-2], b.shape[:-2], strict=True)):
        if of_a == of_b:
            both.append(axis)
        elif of_b == 1:
            only_a.append(axis)
        elif of_a == 1:
            only_b.append(axis)
        else:
            return None
    stack, above, beside = (
        [max(a.shape[i], b.shape[i]) for i in group] for group in (both, only_a, only_b)
    )
    (M, K), N = a.shape[-2:], b.shape[-1]
    batch = [prod(stack)] if prod(stack) > 1 else []
    a2 = a.permute(*both, *only_b, *only_a, -2, -1).reshape(*batch, prod(above) * M, K)
    b2 = b.permute(*both, *only_a, -2, *only_b, -1).reshape(*batch, K, prod(beside) * N)

    def unfold(c: torch.Tensor) -> torch.Tensor:
        apart = c.reshape(*stack, *above, M, *beside, N)
        order = [*both, *only_a, axes, *only_b, axes + 1]
        return apart.permute(*(order.index(i) for i in range(axes + 2))).contiguous()

    return a2, b2, unfold


def _unchanged(c: torch.Tensor) -> torch.Tensor:
    return c


def repeats_much(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether ``torch.matmul`` would write out far more than the operands to broadcast them."""
    if a.is_nested or b.is_nested or a.dim() < 3 or b.dim() < 3 or a.shape[:-2] == b.shape[:-2]:
        return False
    try:
        batch = prod(torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    except RuntimeError:
        return False
    repeated = sum((batch - prod(x.shape[:-2])) * prod(x.shape[-2:]) for x in (a, b))
    return repeated * a.element_size() > MOST_REPEATED
