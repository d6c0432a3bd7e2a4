"""``prepare``: one product by a scheme inside one kernel; planes, guard and fallback included."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.lower.accumulator import AccumulatorProgram
from tiercel.lower.accumulator.combining import Combining, Where
from tiercel.targets.hopper.config import ITEM_BYTES, Config
from tiercel.targets.hopper.epilogues.epilogue import EpilogueText
from tiercel.targets.hopper.fused import source, tables
from tiercel.targets.hopper.fused.argument import argument
from tiercel.targets.hopper.fused.ending import Ending
from tiercel.targets.hopper.fused.launches import FusedLaunch
from tiercel.targets.hopper.fused.packed import PackedOperand
from tiercel.targets.hopper.fused.schedule import schedule
from tiercel.targets.hopper.fused.tables import Fused
from tiercel.targets.hopper.fused.verdict import Judge
from tiercel.targets.hopper.fused.workspace import Workspace, workspace
from tiercel.targets.hopper.launching.compile import cubin
from tiercel.targets.hopper.launching.kernel import Arguments, Kernel
from tiercel.targets.hopper.launching.launch import Launch
from tiercel.targets.hopper.operands.operand import Matrix, of_tensor, oriented

if TYPE_CHECKING:
    import torch

MOST_BLOCKS = 12  # of which an idle warp has shared memory for two rows: ``kernels/crew.cuh``


def prepare(
    a: torch.Tensor,
    b: PackedOperand | torch.Tensor,
    out: torch.Tensor | Ending,
    *,
    program: AccumulatorProgram | None = None,
    alpha: float = 1.0,
    judge: Judge | None = None,
    combining: Combining | None = None,
    memory: Workspace | None = None,
    gains: torch.Tensor | None = None,
) -> FusedLaunch:
    """Workspace and launches of out = alpha · A·B, ``a`` (M, K) of the packed operand's dtype.

    ``b`` (K, N) that is not packed is combined in each call, too, by ``program``. Nothing waits for
    the device: the kernel itself notices planes that overflowed or are not finite, judges the data,
    and multiplies classically what it must not multiply by the scheme. ``out`` may be an ``Ending``
    instead, which makes of the product what it likes. ``judge``: what else the data must fulfil.
    ``combining``: by default ``choose`` decides, and with an ``Ending`` no other kernel combines
    planes. ``memory``: of the sizes that an earlier call with operands of the same sizes and
    strides used. ``gains``: of A and B, float32 powers of two on the device, 1 at first. bfloat16
    operands are multiplied by them before they are combined, and each product leaves those that its
    data ask for; so data that are small, but alike from call to call, suit the scheme.

    Raises :class:`TiercelValueError` where the sizes do not divide into the scheme's blocks, or an
    ``Ending`` leaves more blocks to idle warps than they have room for.
    """
    tensor, packed = (b.b, b) if isinstance(b, PackedOperand) else (b, None)
    program = program if packed is None else packed.lowered.program
    if program is None:
        raise TiercelValueError("b is not packed, and program is missing; give the program to run")
    left, right = of_tensor(a, "a"), of_tensor(tensor, "b")
    ending = out if isinstance(out, Ending) else None
    d = out.d if isinstance(out, Ending) else of_tensor(out, "out")
    _check(left, right, d, program, packed, ending)
    device = a.get_device()
    made = schedule(
        left, right, d, program, device, combining=combining, dynamic=packed is None,
        judged=judge is not None, gained=gains is not None, postpones=ending is not None,
    )  # fmt: skip
    if memory is None:
        memory = workspace(a, made)
    params, before = argument(
        d, tensor, made, packed, memory, alpha=alpha, judge=judge, gains=gains, ending=ending,
        device=device,
    )  # fmt: skip
    text = None if ending is None else ending.text
    multiply = Launch(
        kernel(made.config, made.lowered, made.combining.where, device, text),
        made.blocks, Arguments(params.pack()), places=params.places,
    )  # fmt: skip
    kept = [a, tensor, *(out.kept if isinstance(out, Ending) else (out,))]
    kept += [] if packed is None else [packed.memory]
    kept += [] if gains is None else [gains]
    if judge is not None:
        kept += [] if judge.record is None else [judge.record]
        kept += judge.samples or ()
    return FusedLaunch(before, multiply, memory, tuple(kept))


def _check(
    a: Matrix, b: Matrix, d: Matrix, program: AccumulatorProgram, packed: PackedOperand | None,
    ending: Ending | None,
) -> None:  # fmt: skip
    operand = b.dtype if packed is None else packed.lowered.operand
    if a.dtype != operand or operand not in tables.PLANES:
        raise TiercelTypeError(
            f"a is {a.dtype} and b {operand}; the fused kernel takes both as "
            f"{' or both as '.join(tables.PLANES)}"
        )
    if ITEM_BYTES[operand] != 2 and (oriented(a, "a")[1] or oriented(b.transposed, "b")[1]):
        raise TiercelValueError(
            f"a or b is {operand} and not contiguous along K, as its planes must be. Copy it, or "
            "use the classical kernel"
        )
    if a.columns != b.rows or (d.rows, d.columns) != (a.rows, b.columns):
        raise TiercelValueError(
            f"a is {a.rows}x{a.columns}, b {b.rows}x{b.columns} and out {d.rows}x{d.columns}; "
            "they do not fit together"
        )
    if oriented(d, "out")[1] or d.rows % program.m or d.columns % (8 * program.n):
        raise TiercelValueError(
            f"out of {d.rows}x{d.columns} must be row-major and divide into "
            f"{program.m}x{program.n} blocks with columns a multiple of 8"
        )
    blocks = program.m * program.k
    if ending is not None and blocks > MOST_BLOCKS:
        raise TiercelValueError(
            f"{program.name} cuts A into {blocks} blocks, and idle warps combine up to "
            f"{MOST_BLOCKS}; apply the epilogue after the product, or use a smaller scheme"
        )


@lru_cache(maxsize=64)
def kernel(
    config: Config, lowered: Fused, where: Where, device: int, epilogue: EpilogueText | None = None
) -> Kernel:
    """The compiled kernel of a program, loaded on a device."""
    name = f"{lowered.program.name}-{config.name}"
    code = cubin(source.text(config, lowered, where, epilogue), name)
    # Thread blocks wait for each other, for planes and for the verdict on all of them; and the
    # kernel must not start before the counters are zero.
    shared = source.shared_bytes(config, where)
    return Kernel(code, device, shared, overlap=False, cooperative=True)
