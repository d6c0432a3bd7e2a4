"""The grid of linear layers, whole, divided and sampled."""

import pytest

from tiercel.bench import layers, shapes
from tiercel.errors import TiercelValueError


def test_a_divided_grid_keeps_its_proportions():
    whole, quarter = layers.layer_cases(), layers.layer_cases(4)
    assert len(whole) == len(quarter) == len(set(whole)) == 880
    assert all(w.m == 4 * q.m and w.k == 4 * q.k for w, q in zip(whole, quarter, strict=True))


def test_a_sample_repeats_and_has_no_twins():
    first = layers.sample(120, 4, seed=1)
    assert first == layers.sample(120, 4, seed=1)
    assert first != layers.sample(120, 4, seed=2)
    assert len(set(first)) == 120


def test_samples_are_named_as_shapes():
    assert shapes.parse("layers:7/4", seed=3)[0] == layers.sample(7, 4, seed=3)
    assert shapes.parse("layers:7")[0] == layers.sample(7)


@pytest.mark.parametrize("text", ["layers:x", "layers:3/0", "layers:3/y"])
def test_other_samples_are_refused(text: str):
    with pytest.raises(TiercelValueError, match="positive whole numbers"):
        shapes.parse(text)
