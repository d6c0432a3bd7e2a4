"""The CUDA C++ that is generated: complete, readable, and laid out as the host packs it."""

import math
import operator
import re

import numpy as np
import pytest

import tiercel
from tiercel import epilogues as ep
from tiercel.errors import TiercelValueError
from tiercel.lower.epilogue import Array
from tiercel.lower.epilogue.cuda import prelude, source
from tiercel.lower.epilogue.cuda.expression import CALLS
from tiercel.lower.epilogue.cuda.params import pack_params, params_dtype
from tiercel.lower.epilogue.derivative import RULES
from tiercel.lower.epilogue.operations import OPERATIONS
from tiercel.lower.epilogue.reference import NUMPY

M, N = 64, 128


def apply_of(epilogue, of=(M, N), /, **operands):
    """The body of ``apply``, without indentation."""
    arrays = {name: x if isinstance(x, Array) else Array(x) for name, x in operands.items()}
    text = source(epilogue.bind(of, arrays, None, "bfloat16"))
    body = text.split("ColumnPartials& column_partials) {\n")[1].split("\n  }\n")[0]
    return [line.strip() for line in body.splitlines()]


def test_every_operation_has_every_lowering():
    functions = {name for name, x in OPERATIONS.items() if not x.symbol and name != "where"}
    assert NUMPY.keys() == OPERATIONS.keys()
    assert CALLS.keys() == functions
    conditions = {name for name, x in OPERATIONS.items() if x.gives == "bool"}
    assert RULES.keys() == (OPERATIONS.keys() - conditions) | {"interleave", "cast"}


def test_elementwise_values_share_a_loop_and_shared_ones_a_variable():
    biased = tiercel.epilogue(bias="row")(lambda acc, bias: ep.gelu(acc + bias))
    assert apply_of(biased, bias=(N,)) == [
        "#pragma unroll",
        "for (int i = 0; i < 2; ++i) {",
        "const float t0 = acc[i] + rows.bias[i];",
        "outputs.out[i] = t0 * normal_cdf8(t0);",
        "}",
    ]


def test_pairs_are_the_two_lanes():
    assert apply_of(ep.swiglu) == ["outputs.out[0] = acc[0] * sigmoid(acc[0]) * acc[1];"]
    turned = apply_of(ep.rope, cos=(M, 16), sin=(M, 16), rotated=None)
    assert turned[:3] == [
        "float t0[2];",
        "t0[0] = acc[0] * tile.cos[0] - acc[1] * tile.sin[0];",
        "t0[1] = acc[1] * tile.cos[0] + acc[0] * tile.sin[0];",
    ]


def test_a_value_that_no_column_changes_is_computed_before_the_loop():
    lines = apply_of(ep.rms_apply, sum_of_squares=(M, 1), width=None)
    assert lines[0] == (
        "const float t0 = rsqrtf(columns.sum_of_squares / scalars.width + scalars.eps);"
    )
    assert lines[3] == "outputs.out[i] = acc[i] * t0;"


def test_a_derivative_of_half_the_columns_has_four_lanes():
    lines = apply_of(ep.swiglu.vjp, acc=Array((M, 2 * N), "bfloat16"))
    assert "for (int i = 0; i < 2; ++i) {" in lines
    assert any(line.startswith("outputs.d_acc[2 * i + 1] = ") for line in lines)


def test_values_of_rows_are_left_to_be_folded_and_those_of_columns_folded():
    lines = apply_of(ep.cross_entropy, target=Array((M, 1), "int64"))
    assert "row_values.lse[i] = acc[i];" in lines
    text = source(ep.cross_entropy.bind((M, N), {"target": Array((M, 1), "int64")}))
    assert "    tiercel::fold(into.lse, lse);\n" in text
    counts = source(ep.rms_statistics.bind((M, N), {}))
    assert "    into.sum_of_squares += sum_of(sum_of_squares);\n" in counts
    columns = apply_of(ep.bias.vjp, bias=(N,))
    assert "column_partials.d_bias[i] += acc[i];" in columns


def test_columns_beyond_the_last_change_no_partial_result():
    lines = apply_of(ep.rms_statistics, (M, 9))
    assert lines[0] == "const int valid = valid_lanes(p, col);"
    assert "row_values.sum_of_squares[i] = i < valid ? acc[i] * acc[i] : 0.0f;" in lines


def test_a_picked_column_is_looked_for_where_it_is():
    """Not in every element: comparing and adding each took a third of the instructions."""
    arrays = {"target": Array((M, 1), "int64")}
    assert "row_values.picked[i] = acc[i];" in apply_of(ep.cross_entropy, **arrays)
    text = source(ep.cross_entropy.bind((M, N), arrays))
    assert "if (begin <= columns.target && columns.target < begin + 8 * n) {" in text
    masked = tiercel.epilogue(
        lambda acc, target: ep.row_sum(ep.where(ep.column_index(acc) == target, acc, 1))
    )
    assert "sum_of(out)" in source(masked.bind((M, N), arrays))


def test_an_index_is_compared_with_a_number_as_an_integer():
    tables = {"cos": Array((M, 16)), "sin": Array((M, 16)), "rotated": Array(None)}
    assert any("col + i < first_from(scalars.rotated) ?" in x for x in apply_of(ep.rope, **tables))
    for compared, function in ((operator.gt, "> last_up_to"), (operator.ge, ">= first_from")):

        def cut(compared):
            return lambda acc, at: ep.where(compared(ep.column_index(acc), at), acc, 0.5)

        made = tiercel.epilogue(cut(compared))
        assert any(f"{function}(scalars.at)" in x for x in apply_of(made, at=None))


def test_an_integer_that_is_only_compared_with_columns_has_32_bits():
    def member(epilogue):
        return source(epilogue.bind((M, N), {"target": Array((M, 1), "int64")}))

    picked = tiercel.epilogue(lambda acc, target: ep.row_sum(ep.where(target == 3, acc, 0)))
    assert "int target;\n" in member(ep.cross_entropy)
    assert "beside_index(*(p.target.data" in member(ep.cross_entropy)
    assert "long long target;\n" in member(picked)


def test_a_table_that_repeats_has_one_address_for_columns_that_are_loaded_together():
    def rotary(columns):
        tables = {"cos": Array((M, columns)), "sin": Array((M, columns))}
        return source(ep.rope.bind((M, 1024), {**tables, "rotated": Array(None)}))

    wide, narrow = rotary(64), rotary(32)
    assert "values.cos[0] = widened(cos_at[ahead / 2 + 0]);" in wide
    assert "col += ahead;" not in wide
    assert "(p.cos.data + row * p.cos.row)[(col / 2) & (p.cos.period - 1)]" in narrow


def test_the_text_says_what_it_computes():
    arrays = {"residual": Array((M, N), "bfloat16"), "gamma": Array((N,), "bfloat16")}
    text = source(ep.residual_rms.bind((M, N), arrays, None, "bfloat16"))
    assert "// residual_rms(acc, residual: tile bfloat16, gamma: row bfloat16)" in text
    assert "//   sum_of_squares (M, 1) float32, one per tile = row_sum(t0 * t0)" in text
    assert "Array<const bf16> residual;" in text
    assert max(map(len, text.splitlines())) <= 110
    assert all(line == line.rstrip() for line in text.splitlines())


def test_layout_decides_how_lanes_are_read():
    def tile_load(strides, address=64):
        array = Array((M, N), "bfloat16", strides, address)
        text = source(ep.residual.bind((M, N), {"residual": array}))
        return next(line.strip() for line in text.splitlines() if "load_lanes" in line)

    start = "load_lanes(values.residual, p.residual.data + row * p.residual.row + col"
    assert tile_load((N, 1)) == f"{start});"
    assert tile_load((N, 1), 66) == f"{start}, 1, 2);"
    assert tile_load((1, M)) == f"{start} * p.residual.column, p.residual.column, 2);"


def test_names_that_cpp_reserves():
    made = tiercel.epilogue(lambda acc, default, γ: {"float": acc * default + γ})
    text = source(made.bind((M, N), {"default": Array((N,)), "γ": Array(None)}))
    assert "rows.default_[i] + scalars.u03b3" in text
    assert "outputs.float_[i] = " in text


def test_integers_are_compared_as_integers():
    first = tiercel.epilogue(lambda acc: ep.where(ep.column_index(acc) < 20000001, acc, 0.5))
    assert "outputs.out[i] = col + i < 20000001 ? acc[i] : 0.5f;" in apply_of(first)


def test_pairs_need_an_even_number_of_columns():
    made = tiercel.epilogue(lambda acc: ep.interleave(acc, acc))
    with pytest.raises(TiercelValueError, match="odd number of them; allowed: even N"):
        source(made.bind((4, 9), {}))


def test_a_sum_over_a_batch_is_no_tile():
    arrays = {"residual": Array((M, N))}
    with pytest.raises(TiercelValueError, match="'d_residual' sums over the matrices"):
        source(ep.residual.vjp.bind((2, M, N), arrays))


def test_parameters_are_packed_as_the_struct_declares_them():
    arrays = {
        "cos": Array((M, 16), "float32", (16, 1), 4096),
        "sin": Array((1, 16), "float32", None, 8192),
        "rotated": Array(None),
    }
    instance = ep.rope.bind((M, N), arrays, None, "bfloat16")
    text = source(instance).split("struct Params {")[1].split("};")[0]
    order = [line.split()[-1].rstrip(";") for line in text.splitlines()[2:] if line.strip()]
    assert [f"_{name}" for name in order] == list(params_dtype(instance).names or ())[1:]
    out = Array((2, M, N), "bfloat16", (M * N, N, 1), 64)
    packed = pack_params(instance, N, arrays | {"rotated": 7.0, "out": out})
    found = np.frombuffer(packed, params_dtype(instance))[0]
    assert found["columns"] == N
    assert found["_cos"].item() == (4096, 0, 16, 1, 16)
    assert found["_sin"].item() == (8192, 0, 0, 1, 16)
    assert found["_rotated"] == 7
    assert found["_out"].item() == (64, M * N, N, 1)


def test_an_output_may_be_called_columns():
    made = tiercel.epilogue(lambda acc: {"columns": ep.column_sum(acc)})
    instance = made.bind((M, N), {})
    assert params_dtype(instance).names == ("columns", "_columns")
    assert "Array<float> columns_;" in source(instance)


def test_packing_fills_defaults_and_misses_operands_by_name():
    arrays = {"sum_of_squares": Array((M, 1), "float32", None, 16), "width": Array(None)}
    instance = ep.rms_apply.bind((M, N), arrays)
    packed = pack_params(instance, N, {"sum_of_squares": arrays["sum_of_squares"], "width": 8})
    found = np.frombuffer(packed, params_dtype(instance))[0]
    assert found["_eps"] == np.float32(1e-6)
    assert found["_out"]["data"] == 0
    with pytest.raises(TiercelValueError, match="operand 'width' is missing"):
        pack_params(instance, N, {"sum_of_squares": arrays["sum_of_squares"]})


def test_the_prelude_includes_nothing():
    assert "#include" not in prelude()


def test_rounded_results_get_a_shorter_normal_cdf():
    def function(epilogue, dtype):
        body = source(epilogue.bind((M, N), {}, None, dtype)).split(" apply(")[1]
        return re.findall(r"normal_cdf\d*(?=\()", body)[0]

    kinds = ("bfloat16", "float8_e4m3", "float16", "float32")
    found = ["normal_cdf8", "normal_cdf8", "normal_cdf16", "normal_cdf"]
    assert [function(ep.gelu, kind) for kind in kinds] == found
    reduced = tiercel.epilogue(lambda acc: {"out": ep.gelu(acc), "sum": ep.row_sum(ep.gelu(acc))})
    assert function(reduced, "bfloat16") == "normal_cdf"


@pytest.mark.parametrize(
    ("name", "half_a_unit"), [("normal_cdf16", 2**-11), ("normal_cdf8", 2**-9)]
)
def test_a_short_normal_cdf_errs_less_than_its_result_is_rounded(name, half_a_unit):
    text = prelude().split(f"float {name}(float x) {{")[1].split("}")[0]
    numbers = [np.float32(x) for x in re.findall(r"(-?[\d.]+(?:e-\d+)?)f[;)]", text)]
    limit = numbers.pop(0) if "fminf" in text else np.float32(np.inf)
    x = np.linspace(-20, 20, 40001, dtype=np.float32)
    q = np.zeros_like(x)
    for coefficient in numbers:
        q = q * np.minimum(x * x, limit) + coefficient
    with np.errstate(over="ignore"):
        found = 1 / (1 + np.exp2((q * x).astype(float)))
    exact = np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in x.tolist()])
    inside = abs(x) <= 5
    assert (
        (abs(found / exact - 1)[inside]).max()
        < (0.75 if name == "normal_cdf16" else 0.6) * half_a_unit
    )
    assert (abs(x * (found - exact))[~inside]).max() < 2e-6


def test_lanes_of_16_bits_stay_packed_until_they_are_used():
    text = source(ep.residual.bind((M, N), {"residual": Array((M, N), "bfloat16")}))
    assert "Packed<bf16, 2> residual;" in text
    text = source(ep.residual.bind((M, N), {"residual": Array((M, N), "float32")}))
    assert "float residual[2];" in text
    strided = Array((M, N), "bfloat16", (1, M))
    assert "float residual[2];" in source(ep.residual.bind((M, N), {"residual": strided}))


def test_a_period_that_is_a_power_of_two_is_no_division():
    def load(period):
        arrays = {"cos": Array((M, period)), "sin": Array((M, period)), "rotated": Array(None)}
        text = source(ep.rope.bind((M, 96), arrays, None, "bfloat16"))
        return next(line.strip() for line in text.splitlines() if "values.cos[0] =" in line)

    assert load(16).endswith("[(col / 2) & (p.cos.period - 1)]);")
    assert load(12).endswith("[(col / 2) % p.cos.period]);")


def test_rows_may_be_finished_in_the_kernel():
    instance = ep.cross_entropy.bind((M, N), {"target": Array((M, 1), "int64")})
    text = source(instance)
    assert "partials.lse = load_partial(p.lse, batch, row, block);" in text
    assert "store_partial(p.lse_result, batch, row, 0, finished(partials.lse));" in text
    assert "store_partial(p.picked_result, batch, row, 0, partials.picked);" in text
    result = Array((M, 1), "float32", None, 4096)
    packed = pack_params(instance, N, {"target": result, "lse_result": result})
    found = np.frombuffer(packed, params_dtype(instance))[0]
    assert found["_lse_result"].item() == (4096, 0, 1, 0)
