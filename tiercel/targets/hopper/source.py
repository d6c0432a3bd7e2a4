"""CUDA C++ text of one kernel instance: its configuration and its program, around ``gemm.cuh``."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.targets.hopper import wgmma
from tiercel.targets.hopper.config import CONSUMERS, THREADS, Config
from tiercel.targets.hopper.epilogues.epilogue import EpilogueText

# Registers of a producer and of a consumer thread after reallocation: multiples of 8, and
# producer + 2 · consumer ≤ 504 = 64,512 / 128. Copying needs 40, for four addresses of scales,
# and so does a producer that counts parts of tiles, which spilled with 24;
# combining 72, for a vector of four blocks as float16: with 40 it spilled 15 of them for each row,
# with 56 six (0.004 to 0.018 less of cuBLAS's speed in each of eight products, sustained).
REGISTERS = (24, 240)
COPYING_REGISTERS = (40, 232)
COMBINING_REGISTERS = (72, 216)
NAMES = {"bfloat16": "bf16", "float16": "f16", "float32": "float"}  # of outputs


@dataclass(frozen=True)
class KernelProgram:
    """What the producer and the consumers do for one tile, as CUDA statements.

    ``kinds``: element types that its products read. ``combines``: idle warps combine planes
    meanwhile. ``postpones``: a block's epilogue is computed beside later products.
    """

    title: str
    a_planes: int
    b_planes: int
    d_blocks: int
    kinds: tuple[str, ...]
    produce: tuple[str, ...]
    consume: tuple[str, ...]
    combines: bool = False
    postpones: bool = False


def plain_program(operand: str) -> KernelProgram:
    """The classical product: one multiplication, one store."""
    return KernelProgram(
        "classical product", 1, 1, 1, (operand,),
        ("load.multiply(p.a[0], p.b[0]);",),
        (
            f"tile.multiply<{wgmma.KINDS[operand][0]}, From::zero>(acc);",
            "tile.drain(acc);",
            "store(tile, acc, p, p.d[0], 0, 0, 1.0f);",
        ),
    )  # fmt: skip


def text(config: Config, program: KernelProgram, epilogue: EpilogueText | None = None) -> str:
    """The whole translation unit."""
    return f"""\
{declarations(config, program, epilogue)}
struct Program {{
  static __device__ void produce(PacedProducer<Config>& load, const Params<Config>& p) {{
{_indented(program.produce)}
  }}

  static __device__ void consume(Consumer<Config>& tile, Accumulator<Config>& acc,
                                 const Params<Config>& p) {{
    constexpr auto store = Store<Config>::run<Params<Config>>;
{_indented(program.consume)}
  }}
}};

extern "C" __global__ void __cluster_dims__({config.tile.cluster}, 1, 1)
__launch_bounds__({THREADS}, 1) gemm(const __grid_constant__ Params<Config> params) {{
  gemm<Config, Program>(params);
}}
"""


def declarations(
    config: Config,
    program: KernelProgram,
    epilogue: EpilogueText | None = None,
    kernel: str = "gemm.cuh",
) -> str:
    """What comes before the program: headers, the epilogue, ``Config``, instructions."""
    tile, output = config.tile, NAMES[config.output]
    producer, consumer = _registers(config, program, epilogue)
    instructions = "\n\n".join(
        wgmma.specialisation(
            kind, config.wgmma_n, config.a_mn_major, config.b_mn_major, config.fragments,
            config.operand_b,
        )
        for kind in program.kinds
    )  # fmt: skip
    return f"""\
// {program.title}: {config}
#include "{kernel}"
{f"{chr(10)}{epilogue.text}" if epilogue else ""}
struct Config {{
  static constexpr int tile_m = {tile.m}, tile_n = {tile.n}, tile_k = {config.tile_k};
  static constexpr int stages = {tile.stages};
  static constexpr int cluster_m = {tile.cluster_m}, cluster_n = {tile.cluster_n};
  static constexpr int cluster = cluster_m * cluster_n;  // CTAs that share operands
  static constexpr int cluster_k = {tile.cluster_k};  // that split K
  static constexpr bool pingpong = {_bool(tile.schedule == "pingpong")};
  static constexpr int consumers = {CONSUMERS};
  static constexpr int blocks = {tile.blocks};  // of 64 rows, per consumer
  static constexpr int producer_registers = {producer}, consumer_registers = {consumer};
  static constexpr bool a_mn_major = {_bool(config.a_mn_major)};
  static constexpr bool b_mn_major = {_bool(config.b_mn_major)};
  static constexpr int a_planes = {program.a_planes}, b_planes = {program.b_planes};
  static constexpr bool gridded = false;  // operands are grids of blocks, see scheme.cuh
  static constexpr int d_blocks = {program.d_blocks * (epilogue.maps if epilogue else 1)};
  static constexpr bool combines = {_bool(program.combines)};  // planes, meanwhile, by idle warps
  static constexpr bool stream_k = {_bool(config.stream_k)};  // the last turn is shared
  static constexpr bool paced = {_bool(config.paced)};  // clusters keep pace, see paced.cuh
  static constexpr bool grouped = {_bool(config.grouped)};
  static constexpr int boxes = {config.boxes};  // of an operand that a CTA loads alone
  static constexpr bool neighbours = {_bool(config.neighbours)};  // see store_neighbours.cuh
  static constexpr bool traced = {_bool(config.traced)};  // timestamps, see trace.cuh
  static constexpr int wgmma_n = {config.wgmma_n};  // columns of an instruction
  static constexpr bool block_scales = {_bool(config.by_blocks)};
  static constexpr bool column_scales = {_bool(config.scaling == "column blocks")};
  static constexpr int scale_bytes = {config.scale_bytes};
  static constexpr int subtiles_staged = 2;  // of each consumer's output
  static constexpr int operand_bytes = {config.operand_bytes};  // in their place, see store.cuh
  static constexpr bool brings = operand_bytes > 0;
  static constexpr bool postpones = {_bool(program.postpones)};  // epilogues, see pending.cuh
  using Operand = {wgmma.KINDS[config.operand][0]};
  using Output = {output};
  using Epilogue = {_epilogue_type(config, epilogue)};
}};

{instructions}
"""


def _registers(
    config: Config, program: KernelProgram, epilogue: EpilogueText | None
) -> tuple[int, int]:
    """Of a producer and of a consumer thread."""
    if program.combines:  # an epilogue needs registers beside the products
        return COPYING_REGISTERS if program.postpones else COMBINING_REGISTERS
    closes = config.closes or (program.postpones and epilogue is not None and epilogue.closes)
    more = config.by_blocks or config.stream_k or closes or config.grouped
    return COPYING_REGISTERS if more else REGISTERS


def _epilogue_type(config: Config, epilogue: EpilogueText | None) -> str:
    """One of those in ``kernels/epilogue.cuh``, or the traced one's."""
    if epilogue is not None:
        return epilogue.type
    output = NAMES[config.output]
    plain = f"AddC<{output}>" if config.with_c else "PlainEpilogue"
    return f"Direct<{output}, {plain}>" if config.direct else plain


def sums_text(sums: tuple[str, ...], blocks: int, indent: str = "") -> str:
    """CUDA text of ``struct Sums`` for ``kernels/combine.cuh``: one expression for each plane."""
    cases = "\n".join(
        f"    {'else ' if i else ''}{f'if constexpr (i == {i}) ' if i < len(sums) - 1 else ''}"
        f"return {value};"
        for i, value in enumerate(sums)
    )
    text = f"""\
struct Sums {{
  static constexpr int planes = {len(sums)};
  template <int i, class T>
  static __device__ T plane(const T (&block)[{blocks}]) {{
{cases}
  }}
}};

"""
    return "".join(indent * bool(line.strip()) + line for line in text.splitlines(keepends=True))


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _indented(lines: tuple[str, ...]) -> str:
    return "\n".join("    " + line for line in lines)
