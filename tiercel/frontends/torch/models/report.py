"""What ``patch`` did, as a table that grows with the shapes that the layers have seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from tiercel.frontends.torch.engine import Product, engine_for
from tiercel.frontends.torch.models.forward import PlannedForward
from tiercel.frontends.torch.models.layers import Kind
from tiercel.frontends.torch.products import worth_following
from tiercel.frontends.torch.routing.route import in_training
from tiercel.options import Options

#: Rows that a layer's plan is shown for before it has run.
TYPICAL_ROWS = 2048
#: Numbers of rows shown for a layer, the largest of those seen.
MOST_ROWS = 4


@dataclass(frozen=True)
class Run:
    """What one number of rows runs as: algorithm, predicted gain over torch, extra bytes.

    Of a layer in training mode whose weight is trained, it is what runs where autograd follows.
    ``seen`` is False for rows that are only assumed.
    """

    rows: int
    algorithm: str
    gain: float
    workspace: int
    seen: bool


@dataclass(frozen=True)
class Layer:
    """One linear layer of the model: ``name`` as in ``named_modules``, weight (N, K).

    ``packed_bytes`` is the memory held beside the weight; ``decision`` says why a layer was left
    alone; ``runs`` are the rows seen (by calls outside ``torch.compile``), or those assumed.
    """

    name: str
    N: int
    K: int
    dtype: torch.dtype
    patched: bool
    decision: str
    packed_bytes: int = 0
    runs: tuple[Run, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A linear layer as ``patch`` found it: why it was left alone, or why not packed.

    ``forward`` is what it got, ``before`` what an earlier ``patch`` had given to it.
    """

    name: str
    module: Any
    kind: Kind
    reason: str
    not_packed: str
    forward: PlannedForward | None
    before: PlannedForward | None


@dataclass(frozen=True)
class Report:
    """All linear layers of a model and what became of each; ``str()`` is a table.

    As a context manager it takes the patch back when the block ends: layers that were patched
    before are so again. It is falsy: what changes its argument in place returns nothing to use
    instead, so ``model = patch(model) or model`` reads as usual.
    """

    entries: tuple[Entry, ...] = field(repr=False)
    options: Options
    dry_run: bool

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers as they are now, with the plans of the shapes seen."""
        return tuple(_layer(entry, self.options) for entry in self.entries)

    @property
    def patched(self) -> int:
        """Number of layers whose forward was replaced (would be, in a dry run)."""
        return sum(not entry.reason for entry in self.entries)

    @property
    def packed_bytes(self) -> int:
        """Memory that packed weights hold in addition to the model, in bytes."""
        return sum(_packed_bytes(entry) for entry in self.entries)

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> Report:
        return self

    def __exit__(self, *exception: object) -> None:
        from tiercel.frontends.torch.models.patch import give_back

        if not self.dry_run:
            for entry in self.entries:
                if not entry.reason:
                    give_back(entry.module, entry.before)

    def __str__(self) -> str:
        verb = "would be patched" if self.dry_run else "patched"
        head = f"{self.patched} of {len(self.entries)} linear layers {verb}"
        if self.packed_bytes:
            head += f", {self.packed_bytes / 2**20:.1f} MiB of packed weights"
        rows = [("layer", "N × K", "dtype", "rows", "plan", "gain", "memory", "packed", "decision")]
        for layer in self.layers:
            rows += _lines(layer)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([head, *lines])


def _lines(layer: Layer) -> list[tuple[str, ...]]:
    """The rows of a layer in the table: one for each number of rows of its input."""
    first = (
        layer.name or "(model)",
        f"{layer.N} × {layer.K}",
        str(layer.dtype).removeprefix("torch."),
    )
    last = (_mebibytes(layer.packed_bytes), layer.decision)
    runs = [
        (
            f"{run.rows}" if run.seen else f"({run.rows})",
            run.algorithm,
            f"{run.gain:.2f}",
            _mebibytes(run.workspace),
        )
        for run in layer.runs
    ] or [("", "", "", "")]
    return [(*first, *runs[0], *last), *(("", "", "", *run, "", "") for run in runs[1:])]


def _mebibytes(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB" if nbytes else ""


def _layer(entry: Entry, options: Options) -> Layer:
    w = entry.kind.weight(entry.module)
    unknown = is_lazy(w) or w.dim() != 2  # not initialised yet, or sharded away
    N, K = (0, 0) if unknown else w.shape
    decision = f"left alone: {entry.reason}" if entry.reason else "patched"
    if entry.not_packed:
        decision += f", not packed: {entry.not_packed}"
    runs = () if entry.reason or not N * K else _runs(entry, w, options)
    return Layer(
        entry.name, N, K, w.dtype, not entry.reason, decision, _packed_bytes(entry), runs
    )  # fmt: skip


def _runs(entry: Entry, w: torch.Tensor, options: Options) -> tuple[Run, ...]:
    assert entry.forward is not None, "patched"
    seen = sorted(set(entry.forward.rows_seen) - {0}, reverse=True)[:MOST_ROWS]
    bias, frozen = entry.module.bias is not None, entry.forward.frozen
    packed_for = None if frozen is None or not frozen.nbytes else frozen.packed(w).algorithm
    trained = entry.module.training and w.requires_grad and torch.is_grad_enabled()
    how = in_training(w, options) if trained else options
    products = ((rows, Product.of_rows(rows, w, bias)) for rows in seen or [TYPICAL_ROWS])
    return tuple(
        _run(rows, product, w.device.type, how, packed_for, bool(seen), trained)
        for rows, product in products
    )


def _run(
    rows: int, product: Product, device: str, options: Options, packed_for: str | None, seen: bool,
    trained: bool,
) -> Run:  # fmt: skip
    engine = engine_for(device)
    assert engine is not None, "patched"
    work = product.M * product.K * product.N
    if work < engine.LEAST_WORK[product.dtype] and not options.batch_invariant:
        return Run(rows, "torch", 1.0, 0, seen)
    plan = engine.predict(product, options, packed_for)
    chosen = plan.chosen
    if chosen.algorithm == "vendor" or (trained and not worth_following(engine, plan)):
        return Run(rows, "torch", 1.0, 0, seen)
    torchs = next(c for c in plan.candidates if c.algorithm == "vendor")
    return Run(rows, chosen.algorithm, torchs.seconds / chosen.seconds, chosen.workspace, seen)


def _packed_bytes(entry: Entry) -> int:
    frozen = None if entry.forward is None else entry.forward.frozen
    return 0 if frozen is None else frozen.nbytes
