"""CUDA C++ text of the kernel that runs a scheme: configuration and tables for ``scheme.cuh``."""

from __future__ import annotations

from tiercel.lower.accumulator.combining import IDLE_WARPS, Where
from tiercel.targets.hopper import source
from tiercel.targets.hopper.config import (
    CLOSING_BYTES,
    CONSUMERS,
    SLOT_BYTES,
    SUBTILE_BYTES,
    THREADS,
    Config,
)
from tiercel.targets.hopper.epilogues.epilogue import EpilogueText
from tiercel.targets.hopper.fused.planes import places
from tiercel.targets.hopper.fused.tables import PLANES, Fused, KernelPlane, early_and_late, sums_of
from tiercel.targets.hopper.source import KernelProgram, sums_text
from tiercel.targets.hopper.wgmma import KINDS

CLOSED = 8  # blocks of a consumer that idle warps may still have to complete: ``pipeline.cuh``


def text(
    config: Config,
    lowered: Fused,
    where: Where = "before",
    epilogue: EpilogueText | None = None,
) -> str:
    """The whole translation unit. ``where``: of ``Combining``."""
    program = lowered.program
    a_blocks = program.m * program.k if lowered.left else 1
    b_blocks = program.k * program.n if lowered.right else 1
    head = KernelProgram(
        f"{program.name}, {program.multiplies} products",
        len(lowered.a_planes), len(lowered.b_planes), program.m * program.n, lowered.kinds, (), (),
        combines=beside(where), postpones=epilogue is not None,
    )  # fmt: skip
    declarations = source.declarations(config, head, epilogue, kernel="scheme.cuh")
    left = early_and_late(lowered.a_planes)[1] if lowered.left else ()
    right = early_and_late(lowered.b_planes)[1] if lowered.right else ()
    return f"""\
{declarations}
struct Scheme : Config {{
  static constexpr bool gridded = true;
  static constexpr int a_blocks = {a_blocks}, b_blocks = {b_blocks};
  static constexpr bool first_turn = {str(where in ("first", "both")).lower()};
  static constexpr bool measures = {str(lowered.judged).lower()};  // what it combines
  static constexpr bool gained = {str(lowered.gained).lower()};  // likewise
  static constexpr int subtiles_staged = {staged(where)};  // of each consumer's output
  static constexpr bool exact = {str(config.operand != "bfloat16").lower()};
  static constexpr int slots = {slots(lowered, epilogue is not None)};  // of saved sums
  static constexpr int slot_bytes = {SLOT_BYTES};
  static constexpr int grid_columns = {program.n};  // blocks across the output
}};

// {str(program).splitlines()[0]}
__constant__ Product products[] = {{
{_table((*lowered.products, *lowered.products_again))}
}};

__constant__ BlockPlace left_places[] = {{
{_places(lowered.a_planes, (program.m, program.k), config.a_mn_major)}
}};

__constant__ BlockPlace right_places[] = {{
{_places(lowered.b_planes, (program.k, program.n), not config.b_mn_major)}
}};

__constant__ Step steps[] = {{
{_table((*lowered.steps, *lowered.steps_again))}
}};

struct Program {{
  static constexpr int products = {len(lowered.products)}, steps = {len(lowered.steps)};
  static constexpr int head_products = {lowered.head_products}, head_steps = {lowered.head_steps};
  static constexpr int products_again = {len(lowered.products_again)};
  static constexpr int steps_again = {len(lowered.steps_again)};
  using Plane = {KINDS[PLANES[config.operand]][0]};
  static constexpr bool in_place = {str(lowered.in_place).lower()};
  static __device__ Product product_at(int i) {{ return ::products[i]; }}
  static __device__ BlockPlace left_at(int i) {{ return ::left_places[i]; }}
  static __device__ BlockPlace right_at(int i) {{ return ::right_places[i]; }}
  static __device__ Step step_at(int i) {{ return ::steps[i]; }}

{_sums("Left", left, a_blocks)}
{_sums("Right", right, b_blocks)}\
}};

extern "C" __global__ void __cluster_dims__({config.tile.cluster}, 1, 1)
__launch_bounds__({THREADS}, 1)
gemm(const __grid_constant__ SchemeParams<Scheme> params) {{
  scheme_gemm<Scheme, Program>(params);
}}
"""


def slots(lowered: Fused, postpones: bool) -> int:
    """Room for saved sums of a tile; the last is for a block whose epilogue is postponed.

    Two can hold the block as float32.
    """
    return max(lowered.slots + 1, 2) if postpones else lowered.slots


def beside(where: Where) -> bool:
    """Whether idle warps combine."""
    return where in ("beside", "both")


def staged(where: Where) -> int:
    """Parts of a consumer's output in shared memory; idle warps take the place of one."""
    return 1 if beside(where) else 2


def shared_bytes(config: Config, where: Where) -> int:
    """Dynamic shared memory; mirrors ``Layout`` in ``kernels/pipeline.cuh``."""
    output = CONSUMERS * staged(where) * SUBTILE_BYTES
    items = IDLE_WARPS * 6 * 1024 if beside(where) else 0
    units = 8 * CONSUMERS  # of the planes: ``Units`` in ``kernels/scheme_params.cuh``
    ring = config.tile.stages * (config.tile.stage_bytes + 16)
    return ring + output + items + CLOSED * CLOSING_BYTES + units


def _sums(name: str, planes: tuple[KernelPlane, ...], blocks: int) -> str:
    if not planes:
        return f"  struct {name} {{\n    static constexpr int planes = 0;\n  }};\n"
    simple = all(abs(factor) <= 1 for x in planes for _, factor in x.plane.terms)
    begin = f"struct {name} {{\n    static constexpr bool simple = {str(simple).lower()};"
    text = sums_text(sums_of(planes), blocks, "  ")
    return text.replace("struct Sums {", f"{begin}  // no factor is larger than 1").rstrip() + "\n"


def _places(planes: tuple[KernelPlane, ...], grid: tuple[int, int], transposed: bool) -> str:
    found = places(planes, grid, transposed)
    return _table(tuple(f"{{{x.array}, {x.across}, {x.down}}}" for x in found))


def _table(lines: tuple[str, ...]) -> str:
    return "\n".join(f"  {line}," for line in lines)
