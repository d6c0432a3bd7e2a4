"""CUDA C++ for an epilogue: one struct that a kernel is instantiated with.

The contract, for a kernel whose threads hold float32 accumulators in adjacent pairs (as the
fragments of WGMMA lie in registers)::

    struct Epilogue {
      static constexpr bool has_row_partials, has_column_partials;
      struct Params;          // kernel argument: operands, outputs and partials; filled by the host
      struct Scalars, Row, Column, Tile;    // values of operands, in registers
      struct Outputs;         // float <name>[lanes] for each tile output
      struct RowValues;       // float <name>[lanes] for each partial result of rows
      struct RowPartials, ColumnPartials;   // start as the results of nothing

      // Values of operands, to be loaded as seldom as the kernel's loops allow: once per tile,
      // once per pair of columns, once per row, once per pair of accumulators.
      static Scalars load_scalars(const Params& p, int batch);
      static void    load_row(const Params& p, int batch, int col, int ahead, Row& values);
      static Column  load_column(const Params& p, int batch, int row);
      static void    load_tile(const Params& p, int batch, int row, int col, int ahead,
                               Tile& values);
      // What load_tile reads of `columns` columns, to L2; nothing depends on it.
      static void prefetch_tile(const Params& p, int batch, int row, int col, int columns);
      // Operands that four lanes load for each other, of n pairs, 8 columns apart, in two rows:
      // load_fours fills in what settle_fours, which all lanes of a warp call, then exchanges.
      static void load_fours<n>(const Params& p, int batch, const int (&rows)[2], int col,
                                Tile (&tiles)[n][2]);
      static void settle_fours<n>(Tile (&tiles)[n][2]);
      // Operands of which a lane loads eight adjacent columns, four pairs, at once; of two rows.
      static void load_row_eights(const Params& p, int batch, int col, Row* pairs);
      static void load_tile_eights(const Params& p, int batch, const int (&rows)[2], int col,
                                   Tile (*pairs)[2]);

      // The arithmetic: acc[0] is element (row, col) of the product, acc[1] is (row, col + 1).
      static void apply(const Params&, int row, int col, const float (&acc)[2], const Scalars&,
                        const Row&, const Column&, const Tile&, Outputs&, RowValues&,
                        ColumnPartials&);
      // All of the above, for a kernel without loops to lift loads out of.
      static void run(const Params&, int batch, int row, int col, const float (&acc)[2], Outputs&,
                      RowPartials&, ColumnPartials&);

      // Outputs straight to memory; a kernel that stages one through shared memory reads
      // outputs.<name> instead and leaves its pointer null.
      static void store_<name>(const Params& p, int batch, int row, int col, const Outputs&);
      static void store(const Params& p, int batch, int row, int col, const Outputs&);   // each

      // Partial results. Of rows, the values of many calls are folded at once, `nothing` in the
      // place of what does not count; of columns, apply folds. Combine threads by from_lane and
      // merge, write one per tile (or warp; a block is whatever the kernel counts). values[j] is of
      // the pair of columns begin + 8 j; with ``eights``, of begin + 32 (j / 4) + 2 (j % 4).
      static RowValues nothing();
      template <int n> static void fold(RowPartials& into, const RowValues (&values)[n],
                                        const Column&, int begin);
      static void merge(RowPartials& into, const RowPartials& other);
      static RowPartials from_lane(const RowPartials& x, int mask);         // __shfl_xor_sync
      static void store_row_partials(const Params&, int batch, int row, int block,
                                     const RowPartials&);
      // The same for ColumnPartials, which belong to the columns of one pair:
      static void store_column_partials(const Params&, int batch, int block, int col,
                                        const ColumnPartials&);
      // Of rows, the kernel may also finish: a warp reads the partial results that all warps wrote
      // (behind a fence), merges them, and writes each row's result.
      static RowPartials load_row_partials(const Params&, int batch, int row, int block);
      static void store_row_results(const Params&, int batch, int row, const RowPartials&);
    };

The host fills ``Params`` with ``cuda_params.pack_params``. A tile operand that a kernel brings to
shared memory itself is left out of ``load_tile`` and ``prefetch_tile``: it fills that member of
``Tile`` from there. ``load_fours`` is for operands that repeat along the columns, one value for
each pair (`cuda_wide.can_be_fours`): lane l of a warp holds pairs that begin at columns 2 (l % 4)
and multiples of 8 further on, so that four lanes need 16 values of each 32 columns, which they load
16 bytes each. A kernel whose lanes hold eight adjacent columns instead names the operands that have
16 bytes for these (`cuda_wide.can_be_eights`): ``load_row_eights`` and ``load_tile_eights`` fill
them in.

Rules. ``col`` is even, ``row < M`` and ``col < N``: a kernel does not call for padding, which would
enter the partial results. Rows and tiles are loaded for column ``col + ahead``, which lies within
the same ``SPAN`` columns, counted from a multiple of them. ``col + 1 == N`` may happen if N is odd
(``Instance.even`` is false): the second accumulator is then ignored. Lanes are 2 for an output of N
columns, written to columns ``col`` and ``col + 1``; 1 for N/2, column ``col / 2``; 4 for 2N,
columns ``2 * col`` and on. Arithmetic is float32. Everything is in namespace ``tiercel``, includes
no header, and is forced inline, so that values that nothing reads cost nothing. ``row``, ``col``
and ``batch`` are below 2**31, offsets are 64-bit.

Row partials are complete per thread for one row: the pairs of a row fold into one
``RowPartials``; in a WGMMA fragment the masks that combine a row's four threads are 1 and 2. Column
partials belong to one pair of columns, so that a kernel with columns outside and rows inside holds
one at a time; the masks that combine the eight threads of a column are 4, 8 and 16. What is written
is finished by ``store_row_results`` in the kernel (results (B, M, 1), summed in the order of the
kernel's choice), or behind it as by ``reference.finish``: partials of rows are (B, M, blocks), of
columns (B, blocks, columns), float32; those of a log-sum-exp have pairs (largest, sum).
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from tiercel.errors import TiercelValueError
from tiercel.lower.epilogue.cuda_body import body, lanes
from tiercel.lower.epilogue.cuda_memory import (
    HOLDERS,
    load,
    members,
    params,
    prefetch,
    store_tile,
)
from tiercel.lower.epilogue.cuda_names import identifier, storage
from tiercel.lower.epilogue.cuda_partials import (
    fold,
    from_lane,
    load_partials,
    merge,
    nothing,
    partial_members,
    partials,
    row_values,
    store_partials,
    store_results,
)
from tiercel.lower.epilogue.cuda_wide import (
    load_fours,
    load_row_eights,
    load_tile_eights,
    settle_fours,
)
from tiercel.lower.epilogue.instance import Instance
from tiercel.lower.epilogue.text import describe

_INLINE = "static __device__ __forceinline__ "

#: Axis that partial results keep -> (struct, prefix of function names, where a result goes).
_PARTIALS = {
    "row": ("RowPartials", "row", "int row, int block"),
    "column": ("ColumnPartials", "column", "int block, int col"),
}


@lru_cache(maxsize=1)
def prelude() -> str:
    """The part that is the same for every epilogue; to be compiled once, before ``source``."""
    return files("tiercel.lower.epilogue").joinpath("prelude.cuh").read_text(encoding="utf-8")


def source(
    instance: Instance, name: str = "Epilogue", brought: str = "", fours: tuple[str, ...] = (),
    eights: tuple[str, ...] = (),
) -> str:  # fmt: skip
    """CUDA C++ of the struct ``tiercel::<name>`` for an instance; needs `prelude` before it.

    ``brought``: a tile operand that the kernel fills in itself. ``fours``: those of ``load_fours``.
    ``eights``: those of ``load_row_eights`` and ``load_tile_eights``.

    Raises ``TiercelValueError`` for what one pass over a product cannot do.
    """
    _check(instance)
    comment = [f"// {line}" for line in describe(instance.epilogue, instance).splitlines()]
    sections = [_members(instance), _loads(instance, brought, (*fours, *eights))]
    sections += [_fours(instance, fours), _eights(instance, eights)]
    sections += [_apply(instance), _stores(instance)]
    sections += [_partials(instance, over, bool(eights)) for over in _PARTIALS]
    lines = ["namespace tiercel {", "", *comment, f"struct {name} {{"]
    for section in sections:
        lines += [f"  {line}" if line and not line.startswith("#") else line for line in section]
        lines.append("")
    return "\n".join([*lines[:-1], "};", "", "}  // namespace tiercel", ""])


def _check(instance: Instance) -> None:
    widths = {x.width for x in (*instance.outputs, *instance.partials)}
    widths |= {wide for wide in instance.width.values() if wide is not None}
    if not instance.even and widths != {0}:
        raise TiercelValueError(
            f"the epilogue {instance.epilogue.name!r} works on pairs of columns, and the product "
            "has an odd number of them; allowed: even N"
        )
    for name, out in instance.epilogue.outputs.items():
        like = getattr(out, "like", "")
        if like and instance.batched:
            operand = instance.operand(like)
            if operand.kind == "tile" and not operand.batched:
                raise TiercelValueError(
                    f"{name!r} sums over the matrices of a batch, because operand {like!r} is one "
                    "tile for all of them; allowed: an operand with a tile for each matrix"
                )


def _struct(name: str, lines: list[str], comment: str) -> list[str]:
    if not lines:
        return [f"struct {name} {{}};"]
    return [f"struct {name} {{  // {comment}", *(f"  {line}" for line in lines), "};"]


def _members(instance: Instance) -> list[str]:
    lines = []
    for over in _PARTIALS:
        has = "true" if partials(instance, over) else "false"
        lines.append(f"static constexpr bool has_{over}_partials = {has};")
    lines += ["", *_struct("Params", params(instance), "kernel argument"), ""]
    for holder, (struct, _, comment) in HOLDERS.items():
        lines += _struct(struct, members(instance, holder), comment)
    outputs = [f"float {identifier(x.name)}[{lanes(x.width)}];" for x in instance.outputs]
    lines += _struct("Outputs", outputs, "before they are rounded")
    lines += _struct("RowValues", row_values(instance), "of one call, to be folded")
    for over, (struct, *_) in _PARTIALS.items():
        lines += _struct(struct, partial_members(instance, over), f"of one {over} so far")
    if not instance.even:
        lines += [
            "",
            f"{_INLINE}int valid_lanes(const Params& p, int col) {{",
            "  return p.columns - col < 2 ? 1 : 2;",
            "}",
        ]
    return lines


def _loads(instance: Instance, brought: str, many: tuple[str, ...]) -> list[str]:
    """``brought`` and ``many`` are loaded otherwise."""
    lines = []
    for holder, (struct, where, _) in HOLDERS.items():
        filled = load(instance, holder, (brought, *many))
        if holder in ("rows", "tile"):
            lines.append(f"{_INLINE}void load_{struct.lower()}(")
            lines += _block(f"    const Params& p, {where}, {struct}& values)", filled)
            continue
        inside = [f"{struct} values;", *filled, "return values;"] if filled else ["return {};"]
        lines.append(f"{_INLINE}{struct} load_{struct.lower()}(")
        lines += _block(f"    const Params& p, {where})", inside)
    lines.append(f"{_INLINE}void prefetch_tile(")
    head = "    const Params& p, int batch, int row, int col, int columns)"
    return lines + _block(head, prefetch(instance, brought))


def _fours(instance: Instance, names: tuple[str, ...]) -> list[str]:
    return [
        "template <int n>",
        f"{_INLINE}void load_fours(",
        "    const Params& p, int batch, const int (&rows)[2], int col,",
        *_block("    Tile (&tiles)[n][2])", load_fours(instance, names)),
        "template <int n>",
        *_block(f"{_INLINE}void settle_fours(Tile (&tiles)[n][2])", settle_fours(names)),
    ]


def _eights(instance: Instance, names: tuple[str, ...]) -> list[str]:
    return [
        f"{_INLINE}void load_row_eights(",
        *_block(
            "    const Params& p, int batch, int col, Row* pairs)",
            load_row_eights(instance, names),
        ),
        f"{_INLINE}void load_tile_eights(",
        "    const Params& p, int batch, const int (&rows)[2], int col,",
        *_block("    Tile (*pairs)[2])", load_tile_eights(instance, names)),
    ]


def _apply(instance: Instance) -> list[str]:
    valid = [] if instance.even else ["const int valid = valid_lanes(p, col);"]
    return [
        f"{_INLINE}void apply(",
        "    const Params& p, int row, int col, const float (&acc)[2], const Scalars& scalars,",
        "    const Row& rows, const Column& columns, const Tile& tile, Outputs& outputs,",
        *_block(
            "    RowValues& row_values, ColumnPartials& column_partials)",
            [*valid, *body(instance)],
        ),
        f"{_INLINE}void run(",
        "    const Params& p, int batch, int row, int col, const float (&acc)[2],",
        "    Outputs& outputs, RowPartials& row_partials, ColumnPartials& column_partials) {",
        "  RowValues values[1];",
        "  const Column columns = load_column(p, batch, row);",
        "  Row along;",
        "  Tile tile;",
        "  load_row(p, batch, col, 0, along);",
        "  load_tile(p, batch, row, col, 0, tile);",
        "  apply(p, row, col, acc, load_scalars(p, batch), along, columns, tile, outputs,",
        "        values[0], column_partials);",
        "  fold(row_partials, values, columns, col);",
        "}",
    ]


def _stores(instance: Instance) -> list[str]:
    where = "const Params& p, int batch, int row, int col, const Outputs& outputs"
    lines = []
    for x in instance.outputs:
        name = identifier(x.name)
        lines += [
            f"{_INLINE}void store_{name}(  // {storage(x.dtype)}",
            *_block(f"    {where})", store_tile(x, instance)),
        ]
    calls = [f"store_{identifier(x.name)}(p, batch, row, col, outputs);" for x in instance.outputs]
    return [*lines, f"{_INLINE}void store(", *_block(f"    {where})", calls)]


def _partials(instance: Instance, over: str, neighbours: bool) -> list[str]:
    struct, prefix, where = _PARTIALS[over]
    copied = from_lane(instance, over)
    fetched = [f"{struct} other;", *copied, "return other;"] if copied else ["return {};"]
    return [
        *_block(
            f"{_INLINE}void merge({struct}& into, const {struct}& other)", merge(instance, over)
        ),
        *_block(f"{_INLINE}{struct} from_lane(const {struct}& x, int mask)", fetched),
        f"{_INLINE}void store_{prefix}_partials(",
        *_block(
            f"    const Params& p, int batch, {where}, const {struct}& partials)",
            store_partials(instance, over),
        ),
        *(_row_results(instance, neighbours) if over == "row" else []),
    ]


def _row_results(instance: Instance, neighbours: bool) -> list[str]:
    neutral, folded = nothing(instance), fold(instance, neighbours)
    where = "const Params& p, int batch, int row"
    loaded = load_partials(instance)
    filled = ["RowPartials partials;", *loaded, "return partials;"] if loaded else ["return {};"]
    return [
        *_block(
            f"{_INLINE}RowValues nothing()",
            ["RowValues values;", *neutral, "return values;"] if neutral else ["return {};"],
        ),
        "template <int n>",
        f"{_INLINE}void fold(",
        "    RowPartials& into, const RowValues (&values)[n], const Column& columns,",
        *_block("    int begin)", folded),
        f"{_INLINE}RowPartials load_row_partials(",
        *_block(f"    {where}, int block)", filled),
        f"{_INLINE}void store_row_results(",
        *_block(f"    {where}, const RowPartials& partials)", store_results(instance)),
    ]


def _block(head: str, lines: list[str]) -> list[str]:
    """A function whose signature ends in ``head``; on one line if it does nothing."""
    if not lines:
        return [f"{head} {{}}"]
    inside = [line if line.startswith("#") else f"  {line}" for line in lines]
    return [f"{head} {{", *inside, "}"]
