"""Derivatives against central differences in float64."""

import numpy as np
import pytest

import tiercel
from tiercel import epilogues as ep
from tiercel.errors import TiercelValueError

M, N = 4, 6
STEP = 1e-6


@tiercel.epilogue
def everything(acc, tile, row, column, number):
    """Every operation with a derivative, away from kinks and poles."""
    x = ep.tanh(acc) + ep.erf(row) * ep.normal_cdf(acc) - ep.exp(-acc) / (2 + ep.sigmoid(tile))
    y = ep.sqrt(1 + x**2) * ep.rsqrt(2 + column**2) + ep.log(2 + abs(tile)) + 1 / (3 + number**4)
    z = ep.where((acc > tile) & ~(acc > 5), ep.maximum(x, row), ep.minimum(y, column))
    return z * number


@tiercel.epilogue
def pairwise(acc, half, table):
    """Values of N/2, N and 2N columns."""
    even, odd = ep.pairs(acc)
    wide = ep.interleave(acc, acc * acc)
    narrow = even * ep.tanh(odd) + half
    turned = ep.interleave(even, ep.sigmoid(odd)) * ep.repeat_columns(table, acc)
    return {"turned": turned, "wide": wide, "narrow": narrow, "first": ep.exp(ep.pairs(wide)[0])}


@tiercel.epilogue
def reductions(acc, row, column):
    return {
        "out": acc * row,
        "sums": ep.row_sum(acc * acc * row),
        "largest": ep.row_max(acc * column),
        "lse": ep.row_logsumexp(acc + row),
        "down": ep.column_sum(ep.exp(acc) * column),
        "peak": ep.column_max(acc * row),
    }


def arrays(seed, **shapes):
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


CASES = {
    "everything": (everything, {"tile": (M, N), "row": (1, N), "column": (M, 1), "number": ()}),
    "everything_scalar_tile": (
        everything, {"tile": (1, 1), "row": (N,), "column": (M, N), "number": (M, 1)},
    ),
    "pairwise": (pairwise, {"half": (N // 2,), "table": (M, 3)}),
    "reductions": (reductions, {"row": (N,), "column": (M, 1)}),
    "bias": (ep.bias, {"bias": (N,)}),
    "relu": (ep.relu, {}),
    "gelu": (ep.gelu, {}),
    "gelu_tanh": (ep.gelu_tanh, {}),
    "silu": (ep.silu, {}),
    "swiglu": (ep.swiglu, {}),
    "geglu": (ep.geglu, {}),
    "residual": (ep.residual, {"residual": (M, N)}),
    "scale": (ep.scale, {"scale": ()}),
    "dequantise": (ep.dequantise, {"scale_a": (M, 1), "scale_b": (N,)}),
    "rope": (ep.rope, {"cos": (M, 3), "sin": (M, 3)}),
    "rms_statistics": (ep.rms_statistics, {}),
    "residual_rms": (ep.residual_rms, {"residual": (M, N), "gamma": (N,)}),
}  # fmt: skip


def check(forward, acc, operands, fixed=()):
    """The derivative's outputs against differences of <outputs, random gradients>."""
    backward = forward.vjp
    rng = np.random.default_rng(11)
    results = forward.evaluate(acc, operands)
    seeds = {f"d_{name}": rng.standard_normal(x.shape) for name, x in results.items()}
    known = {forward.accumulator: acc, **operands, **seeds, **results}
    needed = {name: known[name] for name in backward.parameters if name in known}
    gradients = backward.evaluate(known[backward.accumulator], needed)
    given = {forward.accumulator: acc, **operands}
    assert {f"d_{name}" for name in given} - {f"d_{x}" for x in fixed} == gradients.keys()
    for name, array in given.items():
        if name in fixed:
            continue
        total = np.zeros_like(array)
        for at in np.ndindex(array.shape):
            ends = []
            for step in (STEP, -STEP):
                moved = array.copy()
                moved[at] += step
                moved_all = given | {name: moved}
                moved_acc = moved_all.pop(forward.accumulator)
                outputs = forward.evaluate(moved_acc, moved_all)
                ends.append(sum((outputs[x] * seeds[f"d_{x}"]).sum() for x in outputs))
            total[at] = (ends[0] - ends[1]) / (2 * STEP)
        np.testing.assert_allclose(gradients[f"d_{name}"], total, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("name", CASES)
def test_against_central_differences(name):
    forward, shapes = CASES[name]
    fixed = set(forward.repeated) | set(forward.defaults)
    check(forward, arrays(5, acc=(M, N))["acc"], arrays(6, **shapes), fixed)


def test_a_batch_sums_what_its_matrices_share():
    acc = arrays(1, acc=(2, M, N))["acc"]
    shapes = {"tile": (2, M, N), "row": (N,), "column": (2, M, 1), "number": (2, 1, 1)}
    check(everything, acc, arrays(2, **shapes))
    check(ep.dequantise, acc, arrays(2, scale_a=(M, 1), scale_b=(2, 1, N)))
    check(ep.residual, acc, arrays(2, residual=(M, N)))


def test_cross_entropy_is_softmax_minus_one_hot():
    acc, target = arrays(4, acc=(M, N))["acc"], np.array([[2], [0], [5], [5]])
    lse = ep.cross_entropy(acc, target=target)["lse"]
    ones = np.ones((M, 1))
    found = ep.cross_entropy.vjp(acc, target=target, lse=lse, d_lse=ones, d_picked=-ones)
    truth = np.exp(acc - lse) - (np.arange(N) == target)
    np.testing.assert_allclose(found["d_acc"], truth, atol=1e-15)


def test_the_accumulator_of_a_derivative_is_the_incoming_gradient_or_the_forwards_again():
    assert ep.silu.vjp.accumulator == "d_out"
    assert ep.silu.vjp.parameters == ("acc",)
    again = ep.silu.derivative("acc", recompute=True)
    assert (again.accumulator, again.parameters) == ("acc", ("d_out",))
    x, d = np.array([[0.3, -2.0]]), np.array([[1.0, 2.0]])
    np.testing.assert_allclose(again(x, d_out=d)["d_acc"], ep.silu.vjp(d, acc=x)["d_acc"])
    assert ep.cross_entropy.vjp.accumulator == "acc"


def test_some_gradients_only():
    assert set(ep.dequantise.derivative("scale_a").outputs) == {"d_scale_a"}
    assert set(ep.rms_apply.vjp.outputs) == {"d_acc", "d_sum_of_squares"}
    assert set(ep.rms_apply.derivative("eps").outputs) == {"d_eps"}


@pytest.mark.parametrize(
    ("forward", "name"), [(ep.rope, "cos"), (ep.cross_entropy, "target"), (ep.silu, "beta")]
)
def test_what_has_no_gradient_is_refused_by_name(forward, name):
    with pytest.raises(TiercelValueError, match=f"no gradient for '{name}'; allowed: acc"):
        forward.derivative(name)


def test_conventions_at_kinks():
    zero, one = np.zeros((1, 1)), np.ones((1, 1))
    assert ep.relu.vjp(one, acc=zero)["d_acc"] == 0
    assert ep.clamp.vjp(one, acc=zero, low=0, high=1)["d_acc"] == 1
    assert ep.clamp.vjp(one, acc=one, low=0, high=1)["d_acc"] == 1
    absolute = tiercel.epilogue(lambda acc: abs(acc))
    assert absolute.vjp(one, acc=zero)["d_acc"] == 0


def test_a_cast_passes_the_gradient_on():
    rounded = tiercel.epilogue(lambda acc: ep.cast(acc, "bfloat16") * 2)
    assert rounded(np.array([[1.001]])).item() == 2
    assert rounded.vjp(np.array([[1.5]]))["d_acc"].item() == 3


def test_the_second_derivative_is_a_derivative_too():
    twice = ep.silu.vjp.derivative("acc")
    x, h = 0.7, 1e-5
    slopes = [ep.silu.vjp(np.ones((1, 1)), acc=np.array([[x + s]]))["d_acc"] for s in (h, -h)]
    name = twice.parameters
    known = {"d_out": np.ones((1, 1)), "acc": np.array([[x]]), "d_d_acc": np.ones((1, 1))}
    found = twice.evaluate(known[twice.accumulator], {x: known[x] for x in name})
    np.testing.assert_allclose(found["d_acc"], (slopes[0] - slopes[1]) / (2 * h), rtol=1e-6)
