"""Tracing: what is recorded, and what is refused."""

import numpy as np
import pytest

import tiercel
from tiercel import epilogues as ep
from tiercel.errors import TiercelTypeError, TiercelValueError


def traced(function):
    return tiercel.epilogue(function)


def test_operators_are_recorded_in_order():
    made = traced(lambda acc, x: (1 - acc) / (x + 2) - (acc - x) * -abs(x) + x**3)
    assert str(made).splitlines()[-1] == (
        "  out = (1 - acc) / (x + 2) - (acc - x) * -absolute(x) + x * x * x"
    )


def test_numpy_numbers_are_constants_on_either_side():
    made = traced(lambda acc: np.float32(2) * acc + np.int64(1))
    assert str(made).endswith("out = 2 * acc + 1")


def test_a_shared_value_is_shown_once():
    made = traced(lambda acc: {"a": ep.exp(acc) + 1, "b": ep.exp(acc) * ep.exp(acc)})
    assert str(made).splitlines()[1:] == ["  t0 = exp(acc)", "  a = t0 + 1", "  b = t0 * t0"]


def test_composition_is_calling():
    inner = traced(lambda acc, gain=2.0: {"big": acc * gain, "sum": ep.row_sum(acc)})
    outer = traced(lambda acc, x: inner(acc + x)["big"] * 3)
    assert str(outer).endswith("out = (acc + x) * 2 * 3")
    assert outer.parameters == ("x",)
    passed = traced(lambda acc, x: inner(acc, gain=x))
    assert passed(np.ones((1, 2)), x=5.0)["sum"].tolist() == [[2.0]]


def test_constants_fold_and_nothing_else_disappears():
    made = traced(lambda acc: (acc + 0) * 1 - ep.exp(0.0) * 2 + acc * 0)
    assert str(made).endswith("out = acc - 2 + acc * 0")
    assert np.isnan(made(np.array([[np.inf]]))).all()


def test_pairs_and_interleave_undo_each_other():
    made = traced(lambda acc: ep.interleave(*ep.pairs(acc)))
    assert str(made).endswith("out = acc")
    swapped = traced(lambda acc: ep.pairs(ep.interleave(acc, 2 * acc))[1])
    assert str(swapped).endswith("out = 2 * acc")


def test_defaults_are_optional_numbers():
    made = traced(lambda acc, slope=0.5: acc * slope)
    assert made([[2.0]]).tolist() == [[1.0]]
    assert made([[2.0]], slope=3).tolist() == [[6.0]]
    with pytest.raises(TiercelTypeError, match="slope=None; allowed as a default: a number"):
        traced(lambda acc, slope=None: acc)


def branch(acc):
    return acc if acc > 0 else -acc


def captured(acc):
    return acc + np.ones(3)


def numpys(acc):
    return np.exp(acc)


def reused(acc):
    return acc / ep.row_sum(acc)


def powered(acc):
    return acc**0.5


def starred(*acc):
    return acc[0]


def unnamed():
    return 1


def clashing(acc, x):
    return {"x": acc}


def nothing(acc):
    return {}


def none(acc):
    return None


def twice(acc, table):
    return ep.repeat_columns(table, acc) + table


def derived(acc, table):
    return ep.repeat_columns(table * 2, acc)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (branch, "use\nwhere"),
        (captured, "Arrays enter as parameters"),
        (reused, "pass it to the next product"),
        (powered, "raised to 0.5; allowed: 1, 2, 3 and 4"),
        (starred, "must name its parameters"),
        (unnamed, "must name its parameters"),
        (clashing, "named an output 'x'"),
        (nothing, "returned no output"),
        (none, "cannot use a NoneType"),
        (twice, "operand 'table' repeated and in another way"),
        (derived, "a parameter of the epilogue itself"),
    ],
)
def test_refusals(function, message):
    with pytest.raises((TiercelTypeError, TiercelValueError)) as raised:
        tiercel.epilogue(function)
    assert message.replace("\n", " ").lower() in str(raised.value).lower()


def test_numpys_functions_refuse_traced_values():
    with pytest.raises(TypeError, match="ufunc"):
        tiercel.epilogue(numpys)


def test_unknown_casts_and_kinds_are_refused():
    with pytest.raises(TiercelValueError, match="'int8' is not known; allowed: 'float32'"):
        traced(lambda acc: ep.cast(acc, "int8"))
    with pytest.raises(TiercelValueError, match="x='diagonal' declares no operand"):
        tiercel.epilogue(x="diagonal")(  # type: ignore[arg-type]
            lambda acc, x: acc + x
        )
    with pytest.raises(TiercelValueError, match="y='row' declares no operand"):
        tiercel.epilogue(y="row")(lambda acc, x: acc + x)


def test_given_checks_names_at_once():
    assert repr(ep.bias.given(bias=[1.0])) == "<epilogue bias with bias>"
    with pytest.raises(TiercelValueError, match=r"unknown operand 'b'; operand 'bias' is missing"):
        ep.bias.given(b=[1.0])
    with pytest.raises(TiercelValueError, match="allowed: bias"):
        tiercel.epilogue(lambda acc: ep.bias(acc))


def test_the_function_runs_once():
    calls = []
    made = traced(lambda acc: calls.append(1) or acc)
    made(np.ones((2, 2)))
    made(np.ones((3, 3)))
    assert calls == [1]


def test_deep_sharing_prints_in_linear_time():
    def doubled(acc):
        x = acc
        for _ in range(200):
            x = x * x + x
        return x

    made = traced(doubled)
    assert len(str(made).splitlines()) < 500
    assert "…" in repr(next(iter(made.outputs.values())))
