"""What all products of one shape with one traced epilogue share: kernel, tile, arrays to make."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tiercel.lower.epilogue import Array, Epilogue, Instance, bind
from tiercel.lower.epilogue.cuda.params import addresses, pack_params, result_name
from tiercel.lower.epilogue.instance import Partial
from tiercel.targets.hopper import source
from tiercel.targets.hopper.config import ITEM_BYTES, Config, Tile
from tiercel.targets.hopper.epilogues import tile as epilogue_tile
from tiercel.targets.hopper.epilogues.epilogue import (
    COLUMN_BLOCK,
    Staged,
    epilogue_text,
    fits_neighbours,
    fitted,
    staged_outputs,
    with_eights,
    with_fours,
    with_operand,
)
from tiercel.targets.hopper.launching.compile import cubin
from tiercel.targets.hopper.launching.kernel import Kernel
from tiercel.targets.hopper.launching.launch import Launch
from tiercel.targets.hopper.launching.occupancy import multiprocessors
from tiercel.targets.hopper.operands.operand import Matrix, of_tensor, oriented
from tiercel.targets.hopper.products import classical
from tiercel.targets.hopper.products.classical import WARP_ROWS
from tiercel.targets.hopper.products.launch import describe, operand_boxes
from tiercel.targets.hopper.products.paced import keeps_pace
from tiercel.targets.hopper.products.stream_k import shared_launch

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]

BUNDLE = 32  # tiles whose partial results of a row are merged at once: ``kernels/reduced_rows.cuh``


@dataclass(frozen=True, eq=False)  # a key by identity
class EpiloguePlan:
    """A product (lead, M, K) by (lead, K, N), bound to an epilogue.

    ``outputs``, ``partials`` and ``results``: name → shape and dtype of the arrays that a call
    fills: the tiles, one partial result for each row (or column) and tile, and the finished rows.
    ``alternates`` as in ``product.launch_of``.
    """

    instance: Instance
    staged: Staged | None
    tile: Tile
    lead: Shape
    M: int
    N: int
    outputs: dict[str, tuple[Shape, str]]
    partials: dict[str, tuple[Shape, str]]
    results: dict[str, tuple[Shape, str]]
    alternates: bool = False

    @property
    def batches(self) -> int:
        return self.lead[0] if self.lead else 1

    @property
    def arrivals(self) -> int:
        """Counters that the kernel needs: for each 16 rows, of bundles of tiles and of bundles."""
        if not self.results:
            return 0
        return self.batches * counters(self.M, -(-self.N // self.tile.n))

    def argument(
        self, arrays: Mapping[str, torch.Tensor], operands: Mapping[str, torch.Tensor | float]
    ) -> bytes:
        """The epilogue's ``Params``; ``arrays`` and ``operands`` as in ``launch``."""
        values: dict[str, Array | float] = {
            name: float(x) if isinstance(x, (int, float)) else array_of(x)
            for name, x in operands.items()
        }
        values |= {name: array_of(arrays[name]) for name in (*self.outputs, *self.results)}
        values |= {x.name: _pairs(x, array_of(arrays[x.name])) for x in self.instance.partials}
        return pack_params(self.instance, self.N, values)

    def launch(
        self,
        a: Matrix,
        b: Matrix,
        arrays: Mapping[str, torch.Tensor],
        operands: Mapping[str, torch.Tensor | float],
        arrivals: int,
        alpha: float,
        device: int,
        trace: bytes = b"",
    ) -> Launch:
        """The kernel with its argument; ``arrays``: of ``outputs``, ``partials``, ``results``.

        ``trace``: where the kernel writes timestamps, see ``tracing/trace.py``.
        """
        # Without an output for TMA its descriptor is never used: any valid array will do.
        staged = self.staged
        d = of_tensor(arrays[staged.first.name], "out") if staged else oriented(a, "a")[0]
        config, blocks, params = describe(a, b, d, self.tile, device)
        maps = params.maps
        if staged is not None:
            span = staged.span(self.tile)
            tensors = [(x.name, arrays[x.name]) for x in staged.outputs]
            for name, x in operands.items():
                if name == staged.operand and not isinstance(x, (int, float)):
                    tensors.append((name, x))
            rows = WARP_ROWS if staged.neighbours else 64
            boxes = [of_tensor(x, name).tensor_map(rows, span=span) for name, x in tensors]
            b_map = maps[1]
            if staged.neighbours:
                b_rows = oriented(b.transposed, "b")[0]
                b_map = b_rows.tensor_map_of_neighbours(operand_boxes(config)[1])
            maps = (maps[0], b_map, *boxes)
            operand = staged.operand_bytes(self.tile)
            config = replace(
                config, output=staged.first.dtype, operand_bytes=operand,
                neighbours=staged.neighbours,
            )  # fmt: skip
        closes = bool(self.results) and self.tile.schedule == "cooperative"
        config = replace(config, traced=bool(trace), closes=closes)
        params = replace(
            params, maps=maps, alpha=alpha, batches=self.batches, trace=trace,
            alternates=int(self.alternates),
            epilogue=traced_params(arrivals, params.tile_columns, self.argument(arrays, operands)),
        )  # fmt: skip
        paced = keeps_pace(config, params, blocks)
        config = replace(config, paced=paced)
        whole, unit = self.N % self.tile.n == 0, alpha == 1
        kernel = _kernel(config, self.instance, staged, whole, unit, device)
        in_epilogue = (0, *(ARRIVALS_BYTES + x for x in addresses(self.instance)))
        return shared_launch(kernel, blocks, params, None, paced, device, in_epilogue)


def plan(
    a: Matrix,
    b: Matrix,
    lead: Shape,
    epilogue: Epilogue,
    operands: Mapping[str, torch.Tensor | float],
    tile: Tile | None,
    device: int,
) -> EpiloguePlan:
    """Bind the operands and choose a tile. Raises ``TiercelValueError`` where they do not fit.

    With a tile of the caller's choice, K is always multiplied from its beginning.
    """
    M, N, alternates = a.rows, b.columns, tile is None
    arrays = {name: array_of(x) for name, x in operands.items()}
    instance = bind(epilogue, (*lead, M, N), arrays, dtype=a.dtype)
    k_major = not oriented(b.transposed, "b")[1]
    staged = staged_outputs(instance, N)
    neighbours = None
    if k_major and ITEM_BYTES[a.dtype] == 2:
        neighbours = with_eights(staged, instance, arrays, N)
    staged = with_fours(with_operand(staged, instance, arrays), instance, arrays)
    if tile is None:
        sms, batches = multiprocessors(device), lead[0] if lead else 1
        brought = staged.operand if staged else ""
        eights = neighbours.eights if neighbours else ()
        tile = epilogue_tile.choose(
            instance, M, N, a.columns, batches, sms, k_major, brought, eights
        )
    if neighbours is not None and fits_neighbours(tile):
        staged = neighbours
    tile, staged = fitted(tile, staged)
    rows = [x for x in instance.partials if x.over == "row"]
    return EpiloguePlan(
        instance, staged, tile, lead, M, N,
        {x.name: ((*lead, M, _columns(N, x.width)), x.dtype) for x in instance.outputs},
        {x.name: (_partial_shape(x, lead, M, N, tile), "float32") for x in instance.partials},
        {result_name(x): ((*lead, M, 1), "float32") for x in rows},
        alternates,
    )  # fmt: skip


def counters(M: int, blocks: int) -> int:
    """Counters of arrivals for M rows with ``blocks`` partial results each."""
    bundles = -(-blocks // BUNDLE)
    return -(-M // COLUMN_BLOCK) * (bundles + (bundles > 1))


ARRIVALS_BYTES = 16  # before the epilogue's own ``Params``


def traced_params(arrivals: int, blocks: int, argument: bytes) -> bytes:
    """``Traced::Params`` of ``kernels/traced.cuh``; ``arrivals``: address of the counters."""
    return struct.pack("<Qi4x", arrivals, blocks) + argument


def array_of(x: torch.Tensor | float) -> Array:
    """What an epilogue is told of an operand or output."""
    if isinstance(x, (int, float)):
        return Array(None)
    dtype = str(x.dtype).removeprefix("torch.")
    return Array(tuple(x.shape), dtype, tuple(x.stride()), x.data_ptr())


def _pairs(x: Partial, whole: Array) -> Array:
    """A partial result's array; those of a log-sum-exp count pairs."""
    if x.kind != "logsumexp" or whole.shape is None or whole.strides is None:
        return whole
    strides = tuple(stride // 2 for stride in whole.strides[:-1])
    return Array(whole.shape[:-1], whole.dtype, strides, whole.address)


def _columns(N: int, width: int) -> int:
    return N * 2**width if width >= 0 else N // 2**-width


def _partial_shape(x: Partial, lead: Shape, M: int, N: int, tile: Tile) -> Shape:
    """(B, M, blocks) or (B, blocks, columns), and pairs for a log-sum-exp."""
    pair = (2,) if x.kind == "logsumexp" else ()
    if x.over == "row":
        return (*lead, M, -(-N // tile.n), *pair)
    return (*lead, -(-M // COLUMN_BLOCK), _columns(N, x.width), *pair)


def finished(x: Partial, arrays: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """A reduction: what the kernel finished, or the sum over what it left; the axis stays."""
    total: Any = arrays.get(result_name(x))
    if total is None:
        partial = arrays[x.name]
        total = partial.amax(-2, keepdim=True) if x.kind == "max" else partial.sum(-2, keepdim=True)
    if x.to in ("scalar", "batch"):
        total = total.sum(-1 if x.over == "column" else -2, keepdim=True)
    return total.sum(0) if x.to == "scalar" and total.dim() == 3 else total


@lru_cache(maxsize=256)
def _kernel(
    config: Config, instance: Instance, staged: Staged | None, whole: bool, unit: bool, device: int
) -> Kernel:
    name = f"{instance.epilogue.name}-{config.name}"
    text = epilogue_text(instance, staged, whole, unit)
    code = cubin(source.text(config, classical.program(config), text), name)
    return Kernel(code, device, config.shared_bytes)
