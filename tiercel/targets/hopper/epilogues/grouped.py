"""A traced epilogue after a grouped product: one output, through shared memory."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tiercel.errors import TiercelValueError
from tiercel.lower.epilogue import Array, Epilogue, Instance, bind
from tiercel.lower.epilogue.cuda.params import pack_params
from tiercel.targets.hopper import source
from tiercel.targets.hopper.config import Config
from tiercel.targets.hopper.epilogues.epilogue import Staged, epilogue_text, staged_outputs
from tiercel.targets.hopper.epilogues.plan import array_of
from tiercel.targets.hopper.launching.compile import cubin
from tiercel.targets.hopper.launching.kernel import Kernel

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Bound:
    """An epilogue of ``groups`` products of N columns that share the rows of one output."""

    instance: Instance
    staged: Staged
    N: int
    values: Mapping[str, Any]

    @property
    def columns(self) -> int:
        """Of the output: N, or N/2."""
        return self.N >> self.staged.shrink

    def params(self, tile_columns: int) -> bytes:
        """``Traced::Params`` of ``kernels/traced.cuh``."""
        return struct.pack("<Qi4x", 0, tile_columns) + pack_params(
            self.instance, self.N, self.values
        )


def bound(
    epilogue: Epilogue,
    operands: Mapping[str, torch.Tensor | float],
    shape: tuple[int, int, int],
    dtype: str,
) -> Bound:
    """Bind operands to a product of ``shape`` (G, M, N), M rows being those of all groups.

    Operands (M, N), (M, 1) and (N,) are as in any product of these sizes; (G, 1, N) and (G, 1, 1)
    have a value for each group. Raises :class:`TiercelValueError` for other operands, and unless
    the epilogue has one output, of N or N/2 columns.
    """
    groups, M, N = shape
    for name, x in operands.items():
        if not isinstance(x, (int, float)) and x.dim() == 3 and x.shape[1] != 1:
            raise TiercelValueError(
                f"operand {name} has shape {tuple(x.shape)}; allowed in a grouped product: "
                f"({M}, {N}), ({M}, 1), ({N},), ({groups}, 1, {N}), ({groups}, 1, 1) or a number"
            )
    arrays = {name: array_of(x) for name, x in operands.items()}
    instance = bind(epilogue, shape, arrays, dtype=dtype)
    staged = staged_outputs(instance, N)
    if instance.partials or len(instance.outputs) != 1 or staged is None:
        raise TiercelValueError(
            f"epilogue {epilogue.name} makes {', '.join(epilogue.outputs)}; a grouped product "
            "stores one output, of N or N/2 columns and rows of a multiple of 16 bytes"
        )
    values: dict[str, Array | float] = {
        name: float(x) if isinstance(x, (int, float)) else arrays[name]
        for name, x in operands.items()
    }
    return Bound(instance, staged, N, values)


_columns: dict[Any, int] = {}
MOST_KEPT = 4096


def columns_of(
    epilogue: Epilogue,
    operands: Mapping[str, torch.Tensor | float],
    shape: tuple[int, int, int],
    dtype: torch.dtype,
) -> int:
    """Columns of the output of an epilogue; kept, since binding one takes 0.5 ms."""
    kinds = (None if isinstance(x, (int, float)) else (x.shape, x.dtype) for x in operands.values())
    key = (epilogue, shape, dtype, *operands, *kinds)
    if key not in _columns:
        if len(_columns) >= MOST_KEPT:
            _columns.clear()
        _columns[key] = bound(epilogue, operands, shape, str(dtype).removeprefix("torch.")).columns
    return _columns[key]


@lru_cache(maxsize=256)
def kernel(config: Config, instance: Instance, staged: Staged, device: int) -> Kernel:
    """The compiled kernel, loaded on a device."""
    name = f"{instance.epilogue.name}-{config.name}"
    text = epilogue_text(instance, staged)
    code = cubin(source.text(config, source.plain_program(config.operand), text), name)
    return Kernel(code, device, config.shared_bytes)
