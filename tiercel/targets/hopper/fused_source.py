"""CUDA C++ text of the kernel that runs a scheme: configuration and tables for ``scheme.cuh``."""

from __future__ import annotations

from tiercel.targets.hopper import source
from tiercel.targets.hopper.config import THREADS, Config
from tiercel.targets.hopper.fused import PLANES, Fused, sums_of
from tiercel.targets.hopper.source import KernelProgram, sums_text
from tiercel.targets.hopper.wgmma import KINDS


def text(config: Config, lowered: Fused, first_turn: bool = False) -> str:
    """The whole translation unit. ``first_turn``: CTAs may combine in their first turn."""
    program = lowered.program
    a_blocks = program.m * program.k if lowered.left else 1
    b_blocks = program.k * program.n if lowered.right else 1
    head = KernelProgram(
        f"{program.name}, {program.multiplies} products",
        len(lowered.a_planes), len(lowered.b_planes), program.m * program.n,
        program.scratch_slots, lowered.kinds, (), (), a_blocks,
    )  # fmt: skip
    declarations = source.declarations(config, head, kernel="scheme.cuh")
    left = sums_of(lowered.a_planes) if lowered.left else ()
    right = sums_of(lowered.b_planes) if lowered.right else ()
    return f"""\
{declarations}
struct Scheme : Config {{
  static constexpr int b_blocks = {b_blocks};
  static constexpr bool first_turn = {str(first_turn).lower()};
  static constexpr bool exact = {str(first_turn or config.operand != "bfloat16").lower()};
}};

// {str(program).splitlines()[0]}
__constant__ Fetch fetches[] = {{
{_table(lowered.fetches)}
}};

__constant__ Step steps[] = {{
{_table(lowered.steps)}
}};

struct Program {{
  static constexpr int fetches = {len(lowered.fetches)}, steps = {len(lowered.steps)};
  static constexpr int head_fetches = {lowered.head_fetches}, head_steps = {lowered.head_steps};
  static constexpr int columns = {program.n};  // blocks of the output grid
  using Plane = {KINDS[PLANES[config.operand]][0]};
  static constexpr bool in_place = {str(len(lowered.kinds) > 1).lower()};
  static __device__ Fetch fetch_at(int i) {{ return ::fetches[i]; }}
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


def _sums(name: str, sums: tuple[str, ...], blocks: int) -> str:
    if not sums:
        return f"  struct {name} {{\n    static constexpr int planes = 0;\n  }};\n"
    return sums_text(sums, blocks, "  ").replace("struct Sums", f"struct {name}").rstrip() + "\n"


def _table(lines: tuple[str, ...]) -> str:
    return "\n".join(f"  {line}," for line in lines)
