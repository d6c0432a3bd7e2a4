"""Rules by which ``torch.distributed.tensor`` shards the operators: each rank plans its own part.

A rule lists, for one dimension of a device mesh, which placements of the operands give which
placement of the result without communication. Tensor parallelism needs these: a weight by rows
(``ColwiseParallel``) gives columns of the result, a weight by columns (``RowwiseParallel``) gives
sums that are still partial, the batch or the sequence may be split in any axis of rows.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from tiercel.frontends.torch.ops.option_text import decode

Rule = tuple[list[Any], list[Any]]

_DTENSOR = "torch.distributed.tensor"
_registered = False


def register_sharding_rules() -> None:
    """Give the rules to ``torch.distributed.tensor``, once; where it is not imported, nothing."""
    global _registered
    if _registered or _DTENSOR not in sys.modules:
        return
    from torch.distributed.tensor.experimental import register_sharding

    operators = torch.ops.tiercel
    register_sharding(operators.linear.default)(linear)
    register_sharding(operators.matmul.default)(matmul)
    register_sharding(operators.weight_grad.default)(weight_grad)
    _registered = True


def linear(x: Any, w: Any, bias: Any, options: str) -> list[Rule]:
    """x (..., K), w (N, K), bias (N,) or None -> (..., N)."""
    shard, partial, replicate = _placements()
    last = len(x.shape) - 1

    def rule(result: Any, of_x: Any, of_w: Any, of_bias: Any) -> Rule:
        return [result], [of_x, of_w, None if bias is None else of_bias, None]

    rules = [rule(replicate, replicate, replicate, replicate)]
    rules += [rule(shard(axis), shard(axis), replicate, replicate) for axis in range(last)]
    rules.append(rule(shard(last), replicate, shard(0), shard(0)))
    if decode(options).epilogue is None:  # which is not linear: sums must be complete before it
        rules.append(rule(partial, shard(last), shard(1), partial))
    return rules


def matmul(a: Any, b: Any, bias: Any, options: str) -> list[Rule]:
    """a (M, K), b (K, N) or stacks of as many of each, bias (N,) or None."""
    shard, partial, replicate = _placements()
    row, column = len(a.shape) - 2, len(a.shape) - 1

    def rule(result: Any, of_a: Any, of_b: Any, of_bias: Any) -> Rule:
        return [result], [of_a, of_b, None if bias is None else of_bias, None]

    rules = [
        rule(replicate, replicate, replicate, replicate),
        rule(shard(row), shard(row), replicate, replicate),
        rule(shard(column), replicate, shard(column), shard(0)),
    ]
    if decode(options).epilogue is None:
        rules.append(rule(partial, shard(column), shard(row), partial))
    if row > 0:
        rules.append(rule(shard(0), shard(0), shard(0), replicate))
    return rules


def weight_grad(g: Any, x: Any, options: str) -> list[Rule]:
    """g (..., N), x (..., K) -> (N, K), summed over all leading axes."""
    shard, partial, replicate = _placements()
    last = len(g.shape) - 1
    rules = [([replicate], [replicate, replicate, None])]
    rules += [([partial], [shard(axis), shard(axis), None]) for axis in range(last)]
    rules.append(([shard(0)], [shard(last), replicate, None]))
    rules.append(([shard(1)], [replicate, shard(last), None]))
    return rules


def _placements() -> tuple[Any, Any, Any]:
    from torch.distributed.tensor import Partial, Replicate, Shard

    return Shard, Partial(), Replicate()
