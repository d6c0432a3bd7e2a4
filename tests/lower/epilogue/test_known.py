"""Keys of epilogues: what computes the same has the same key, and only that."""

import gc

import pytest

from tiercel.errors import TiercelValueError
from tiercel.lower.epilogue import epilogue, library
from tiercel.lower.epilogue.known import known
from tiercel.lower.epilogue.vocabulary import row_max, row_sum


def scaled(factor: float, **kinds):
    @epilogue(**kinds)
    def made(acc, other, shift=0.5):
        return {"out": acc * factor + other - shift, "total": row_sum(acc)}

    return made


def test_the_same_definition_has_the_same_key():
    assert scaled(2.0).key == scaled(2.0).key


def test_another_computation_has_another_key():
    @epilogue
    def made(acc, other, shift=0.5):
        return {"out": acc * 2.0 + other - shift, "total": row_max(acc)}

    keys = {scaled(2.0).key, scaled(2.0000000001).key, scaled(2.0, other="row").key, made.key}
    assert len(keys) == 4


def test_every_ready_made_one_is_found_by_its_key():
    for name in ("bias", "gelu", "swiglu", "residual_rms", "cross_entropy"):
        found = getattr(library, name)
        assert known(found.key) is found
    assert known(library.swiglu.vjp.key) is library.swiglu.vjp


def test_one_that_nobody_keeps_is_forgotten():
    key = scaled(3.0).key
    gc.collect()
    with pytest.raises(TiercelValueError, match="is not defined in this process"):
        known(key)
