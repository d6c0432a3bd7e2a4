"""The text of an epilogue's struct, put together of what the other files of this folder print."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from tiercel.errors import TiercelValueError
from tiercel.lower.epilogue.cuda.body import body, lanes
from tiercel.lower.epilogue.cuda.memory import (
    HOLDERS,
    load,
    members,
    params,
    prefetch,
    store_tile,
)
from tiercel.lower.epilogue.cuda.names import identifier, storage
from tiercel.lower.epilogue.cuda.partials import (
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
from tiercel.lower.epilogue.cuda.wide import (
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
    return files("tiercel.lower.epilogue.cuda").joinpath("prelude.cuh").read_text(encoding="utf-8")


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
