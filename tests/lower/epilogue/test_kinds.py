"""What an operand is, from its shape."""

import pytest

import tiercel
from tiercel import epilogues as ep
from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.lower.epilogue import Array
from tiercel.lower.epilogue.kinds import Place, place

M, N = 6, 10


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ((), Place("scalar")),
        ((1,), Place("scalar")),
        ((1, 1), Place("scalar")),
        ((N,), Place("row", 0)),
        ((1, N), Place("row", 0)),
        ((N // 2,), Place("row", -1)),
        ((1, 2 * N), Place("row", 1)),
        ((M, 1), Place("column")),
        ((M, N), Place("tile", 0)),
        ((M, N // 2), Place("tile", -1)),
        ((M, 2 * N), Place("tile", 1)),
        ((1, M, N), Place("tile", 0)),
    ],
)
def test_one_matrix(shape, found):
    assert place("x", shape, (M, N)) == found


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ((3, 1, 1), Place("batch", batched=True)),
        ((3, 1, N), Place("row", 0, True)),
        ((3, M, 1), Place("column", None, True)),
        ((3, M, N), Place("tile", 0, True)),
        ((1, M, 1), Place("column")),
        ((M, N), Place("tile", 0)),
        ((N,), Place("row", 0)),
    ],
)
def test_operands_of_a_batch_find_their_place(shape, found):
    assert place("x", shape, (3, M, N)) == found


@pytest.mark.parametrize("shape", [(7,), (M,), (M, 3), (N, M), (2, M, N), (4, 1, 1), (N, 1)])
def test_misfits_say_what_fits(shape):
    with pytest.raises(TiercelValueError) as raised:
        place("x", shape, (M, N) if len(shape) < 3 else (3, M, N))
    message = str(raised.value)
    assert message.startswith(f"operand 'x' has shape {shape}")
    assert f"({M}, 1) for a column" in message


@pytest.mark.parametrize(("acc", "size"), [((8, 8), 8), ((4, 8), 4), ((16, 8), 16)])
def test_a_vector_that_could_be_both_is_refused_until_it_is_declared(acc, size):
    with pytest.raises(TiercelValueError, match=rf"pass shape \(1, {size}\) for a row or"):
        place("x", (size,), acc)
    assert place("x", (size,), acc, "row").kind == "row"
    assert place("x", (size,), acc, "column").kind == "column"
    assert place("x", (1, size), acc).kind == "row"
    assert place("x", (size, 1), acc).kind == "column"


def test_a_declared_kind_is_checked():
    with pytest.raises(TiercelValueError, match="a tile of a 6 x 10 product, but this epilogue"):
        place("x", (M, N), (M, N), "row")
    assert place("x", (1, 1), (M, N), "row") == Place("scalar")


def bound(epilogue, of=(M, N), /, **shapes):
    return epilogue.bind(of, {name: Array(shape) for name, shape in shapes.items()})


def test_widths_follow_the_maps():
    instance = bound(ep.swiglu)
    assert [x.width for x in instance.outputs] == [-1]
    backward = bound(ep.swiglu.vjp, (M, N), acc=(M, 2 * N))
    assert [(x.name, x.width) for x in backward.outputs] == [("d_acc", 1)]


def test_a_gradient_has_the_kind_of_its_operand():
    rows = bound(ep.scale.vjp, acc=(M, N), scale=(N,))
    columns = bound(ep.scale.vjp, acc=(M, N), scale=(M, 1))
    tiles = bound(ep.scale.vjp, acc=(M, N), scale=(M, N))
    scalars = bound(ep.scale.vjp, acc=(M, N), scale=())
    assert [(x.over, x.to) for x in rows.partials] == [("column", "row")]
    assert [(x.over, x.to) for x in columns.partials] == [("row", "column")]
    assert [(x.over, x.to) for x in scalars.partials] == [("row", "scalar")]
    assert [x.name for x in tiles.outputs] == ["d_acc", "d_scale"]


@pytest.mark.parametrize(
    ("function", "shapes", "message"),
    [
        (lambda acc, x: acc + x, {"x": (N // 2,)}, r"acc \(N columns\) and x \(N/2 columns\)"),
        (lambda acc, x: acc + ep.pairs(x)[0], {"x": (M, 1)}, "the same in every column"),
        (lambda acc: ep.pairs(ep.pairs(acc)[0])[0], {}, "N/2 columns wide already"),
        (
            lambda acc: ep.interleave(ep.interleave(acc, 0), ep.interleave(acc, 1)), {},
            "2N columns wide already",
        ),
        (lambda acc, x: ep.repeat_columns(x, acc) + acc, {"x": (M, 4)}, "a divisor of 10"),
        (lambda acc, x: acc, {}, "operand 'x' is missing"),
        (lambda acc: acc, {"x": ()}, "unknown operand 'x'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together(function, shapes, message):
    with pytest.raises(TiercelValueError, match=message):
        bound(tiercel.epilogue(function), **shapes)


@pytest.mark.parametrize(
    ("function", "dtype", "message"),
    [
        (lambda acc, x: acc + x, "int64", "add in acc \\+ x takes float, not int"),
        (lambda acc, x: ep.where(acc, x, 0), "float32", "takes bool, not float"),
        (lambda acc, x: (acc > x) * 2, "float32", "takes float, not bool"),
        (lambda acc, x: acc > x, "float32", "output 'out' of the epilogue .* is a bool"),
        (lambda acc, x: ep.column_index(acc), "float32", "is a int"),
    ],
)
def test_types_that_do_not_fit_are_refused(function, dtype, message):
    with pytest.raises(TiercelTypeError, match=message):
        tiercel.epilogue(function).bind((M, N), {"x": Array((M, 1), dtype)})


def test_an_integer_becomes_a_number_by_a_cast():
    made = tiercel.epilogue(lambda acc, x: acc * ep.cast(x, "float32"))
    assert made.bind((M, N), {"x": Array((M, 1), "int32")}).outputs[0].dtype == "float32"


def test_an_output_array_must_have_the_outputs_shape():
    with pytest.raises(TiercelValueError, match=r"output 'out' has shape \(6, 10\); allowed: \(6,"):
        ep.swiglu.bind((M, N), {}, {"out": Array((M, N))})


@pytest.mark.parametrize(
    ("array", "layout"),
    [
        (Array((M, N), "bfloat16", (N, 1), 64), "vector"),
        (Array((M, N), "bfloat16", (N, 1), 66), "unit"),
        (Array((M, N), "bfloat16", (N + 1, 1), 64), "unit"),
        (Array((M, N), "bfloat16", (1, M), 64), "strided"),
        (Array((M, 2 * N), "float32", (2 * N, 1), 16), "vector"),
        (Array((M, 2 * N), "float32", (2 * N, 1), 8), "unit"),
        (Array((1, N), "bfloat16", (7, 1), 64), "vector"),
    ],
)
def test_layouts_are_told_from_strides(array, layout):
    made = tiercel.epilogue(lambda acc, x: {"copy": x})
    assert made.bind((M, N), {"x": array}).operand("x").layout == layout


def test_nothing_is_read_in_pairs_where_the_number_of_columns_is_odd():
    assert bound(ep.bias, (6, 9), bias=(9,)).operand("bias").layout == "unit"
