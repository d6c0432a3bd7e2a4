"""Option values: what is taken, and what each refusal says."""

from dataclasses import fields, replace

import numpy as np
import pytest

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.options import DEFAULT, Options, checked_options


def test_nothing_asked_is_the_default():
    assert checked_options() == DEFAULT


@pytest.mark.parametrize(
    ("text", "size"),
    [(0, 0), ("0", 0), ("4096", 4096), ("256MiB", 2**28), ("1.5 GiB", 3 * 2**29), ("64mb", 64e6),
     ("2KB", 2000), ("7b", 7)],
)  # fmt: skip
def test_workspace_sizes(text, size):
    assert checked_options(workspace=text).workspace == size


@pytest.mark.parametrize("value", ["classical", "standard", "fast", 1, 2.5])
def test_accuracy(value):
    assert checked_options(accuracy=value).accuracy == value


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("epilogue", "tanh", TiercelValueError),
        ("epilogue", max, TiercelTypeError),
        ("accuracy", "best", TiercelValueError),
        ("accuracy", 0.5, TiercelValueError),
        ("accuracy", float("nan"), TiercelValueError),
        ("accuracy", True, TiercelTypeError),
        ("accuracy", [2], TiercelTypeError),
        ("workspace", -1, TiercelValueError),
        ("workspace", "12 apples", TiercelValueError),
        ("workspace", 1.5, TiercelTypeError),
        ("threads", 0, TiercelValueError),
        ("threads", True, TiercelTypeError),
        ("threads", "2", TiercelTypeError),
        ("scheme", 7, TiercelTypeError),
        ("scheme", "", TiercelValueError),
        ("scheme", ["strassen"], TiercelTypeError),
    ],
)
def test_refusals_name_option_value_and_what_is_allowed(option, value, error):
    with pytest.raises(error) as raised:
        checked_options(**{option: value})
    message = str(raised.value)
    assert message.startswith(f"{option}={value!r}")
    assert "allowed: " in message


@pytest.mark.parametrize(
    ("option", "value"),
    [("threads", np.int64(2)), ("workspace", np.uint32(4096)), ("accuracy", np.float32(2.5)),
     ("accuracy", np.int8(3))],
)  # fmt: skip
def test_numbers_of_numpy_are_numbers(option, value):
    taken = getattr(checked_options(**{option: value}), option)
    assert taken == value
    assert not isinstance(taken, np.generic)


def test_a_number_of_one_and_true_are_told_apart():
    assert checked_options(threads=1).threads == 1
    with pytest.raises(TiercelTypeError):
        checked_options(threads=True)


def test_options_with_another_epilogue_or_accuracy_keep_the_rest():
    given = Options("relu", 3.0, 4, "strassen", 5, True, True, "hopper")
    assert all(getattr(given, f.name) != f.default for f in fields(Options))
    assert given.with_epilogue(None) == replace(given, epilogue=None)
    assert given.with_accuracy("fast") == replace(given, accuracy="fast")
