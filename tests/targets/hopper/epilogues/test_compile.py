"""Generated epilogues compile for sm_90a, through every function of the contract."""

import pytest
from cuda.core import Program, ProgramOptions  # pyright: ignore[reportAttributeAccessIssue]

import tiercel
from tiercel import epilogues as ep
from tiercel.lower.epilogue import Array
from tiercel.lower.epilogue.cuda import prelude, source

M, N = 48, 128
HALF = "bfloat16"

#: Calls everything of the contract, as a kernel with one warp for each row would.
KERNEL = """
using tiercel::Epilogue;
extern "C" __global__ void rows(const __grid_constant__ Epilogue::Params p, const float* c) {
  const int row = blockIdx.x, batch = blockIdx.y;
  Epilogue::RowPartials of_row;
  for (int col = 2 * threadIdx.x; col < p.columns; col += 64) {
    const float acc[2] = {c[row * p.columns + col], c[row * p.columns + col + 1]};
    Epilogue::Outputs outputs;
    Epilogue::ColumnPartials of_columns;
    Epilogue::run(p, batch, row, col, acc, outputs, of_row, of_columns);
    Epilogue::store(p, batch, row, col, outputs);
    Epilogue::ColumnPartials others = Epilogue::from_lane(of_columns, 4);
    Epilogue::merge(of_columns, others);
    Epilogue::store_column_partials(p, batch, row, col, of_columns);
  }
  for (int mask = 1; mask < 32; mask *= 2)
    Epilogue::merge(of_row, Epilogue::from_lane(of_row, mask));
  if (threadIdx.x == 0) Epilogue::store_row_partials(p, batch, row, 0, of_row);
}
"""


@tiercel.epilogue
def everything(acc, tile, row, column, number):
    """Every operation and every cast."""
    x = ep.tanh(acc) + ep.erf(row) * ep.normal_cdf(acc) - ep.exp(-acc) / (2 + ep.sigmoid(tile))
    y = ep.sqrt(1 + x**2) * ep.rsqrt(2 + column**2) + ep.log(2 + abs(tile)) + 1 / (3 + number**4)
    condition = (acc > tile) & ~(acc >= 5) | (acc == row) | (acc != 1) & (x <= y) & (x < row)
    z = ep.where(condition, ep.maximum(x, row), ep.minimum(y, column))
    for dtype in ("float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2"):
        z = z + ep.cast(z * number, dtype)
    return {"out": z, "largest": ep.row_max(z), "peak": ep.column_max(z * column)}


@tiercel.epilogue
def widths(acc, half, table):
    even, odd = ep.pairs(acc)
    wide = ep.interleave(acc, acc * acc)
    turned = ep.interleave(even, ep.sigmoid(odd)) * ep.repeat_columns(table, acc)
    narrow = even * ep.tanh(odd) + half
    return {"turned": turned, "wide": wide, "narrow": narrow, "lse": ep.row_logsumexp(narrow)}


CASES = {
    "bias": (ep.bias, {"bias": Array((N,), HALF)}),
    "gelu": (ep.gelu, {}),
    "gelu_tanh": (ep.gelu_tanh, {}),
    "swiglu": (ep.swiglu, {}),
    "swiglu_vjp": (ep.swiglu.vjp, {"acc": Array((M, 2 * N), HALF)}),
    "dequantise": (ep.dequantise, {"scale_a": Array((M, 1)), "scale_b": Array((N,))}),
    "dequantise_vjp": (
        ep.dequantise.vjp,
        {"acc": Array((M, N), HALF), "scale_a": Array((M, 1)), "scale_b": Array((N,))},
    ),
    "rope": (
        ep.rope,
        {"cos": Array((M, 16)), "sin": Array((M, 16), "float32", (1, M)), "rotated": Array(None)},
    ),
    "residual_rms": (
        ep.residual_rms,
        {"residual": Array((M, N), HALF, (1, M)), "gamma": Array((N,), HALF, (2,))},
    ),
    "rms_apply": (ep.rms_apply, {"sum_of_squares": Array((M, 1)), "width": Array(None)}),
    "cross_entropy": (ep.cross_entropy, {"target": Array((M, 1), "int64")}),
    "cross_entropy_vjp": (
        ep.cross_entropy.vjp,
        {
            "target": Array((M, 1), "int32"), "lse": Array((M, 1)),
            "d_lse": Array((M, 1)), "d_picked": Array((M, 1)),
        },
    ),
    "everything": (
        everything,
        {
            "tile": Array((M, N), "float8_e4m3"), "row": Array((1, N), "float16"),
            "column": Array((M, 1), "float64"), "number": Array((), "float32"),
        },
    ),
    "everything_in_batches": (
        everything,
        {
            "tile": Array((3, M, N), "float8_e5m2"), "row": Array((3, 1, N), HALF),
            "column": Array((3, M, 1)), "number": Array((3, 1, 1)),
        },
    ),
    "widths": (widths, {"half": Array((N // 2,), HALF), "table": Array((M, 32), HALF)}),
    "odd_columns": (everything, {
        "tile": Array((M, 9), HALF), "row": Array((9,)), "column": Array((M, 1)),
        "number": Array(None),
    }),
}  # fmt: skip


def compiled(epilogue, operands, dtype=HALF):
    tile = operands.get("tile", Array((M, N)))
    shape = tile.shape if tile.shape[-1] in (9, N) and len(tile.shape) > 1 else (M, N)
    instance = epilogue.bind(shape, operands, None, dtype)
    text = prelude() + source(instance) + KERNEL
    return Program(text, "c++", ProgramOptions(arch="sm_90a", std="c++17")).compile("cubin")


@pytest.mark.parametrize("name", CASES)
def test_compiles(name):
    epilogue, operands = CASES[name]
    assert len(compiled(epilogue, operands).code) > 0


@pytest.mark.parametrize("dtype", ["float32", "float16", "float8_e4m3", "float8_e5m2", "float64"])
def test_output_dtypes(dtype):
    assert len(compiled(ep.swiglu, {}, dtype).code) > 0
