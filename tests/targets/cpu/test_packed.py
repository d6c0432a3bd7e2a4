"""``pack``: a second operand that is packed once and serves products of any M."""

import numpy as np
import pytest

from tests.targets.cpu.recipes import DTYPES, LAYOUTS, embedded, exact, integers, recipe
from tiercel.lower.blocking import Target
from tiercel.lower.recipe import Guard
from tiercel.targets.cpu.kernel import execute, pack

GUARD = Guard(limit=1e3, headroom=1e30)


@pytest.mark.parametrize("scheme", [None, "strassen", "laderman"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_any_m_use_one_packed_operand(dtype: str, scheme: str | None):
    rng = np.random.default_rng(0)
    b, _ = embedded(integers(rng, (41, 70), dtype), "column")
    packed = pack(recipe(24, 70, 41, scheme, dtype), b)
    for M in (1, 5, 24, 61):
        a = integers(rng, (M, 41), dtype)
        c = np.full((M, 70), np.nan, DTYPES[dtype])
        assert execute(recipe(M, 70, 41, scheme, dtype), a, packed, c)
        np.testing.assert_array_equal(c, exact(a, b, dtype))


@pytest.mark.parametrize("scheme", [None, "strassen"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("threads", [1, 2])
def test_passes_over_k_have_regions_of_their_own(scheme: str | None, layout: str, threads: int):
    rng = np.random.default_rng(0)
    made = recipe(30, 70, 77, scheme, threads=threads, target=Target(12, 16, 32, 16, k_span=26))
    a, b = integers(rng, (30, 77), "float32"), integers(rng, (77, 70), "float32")
    packed = pack(made, embedded(b, layout)[0])
    c = np.full((30, 70), np.nan, np.float32)
    assert execute(made, a, packed, c)
    np.testing.assert_array_equal(c, exact(a, b, "float32"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_packing_ahead_changes_no_bit(dtype: str):
    rng = np.random.default_rng(0)
    made = recipe(50, 70, 77, "strassen2", dtype)
    a, b = (rng.standard_normal(s).astype(dtype) for s in ((50, 77), (77, 70)))
    at_once, ahead = (np.full((50, 70), np.nan, dtype) for _ in range(2))
    assert execute(made, a, b, at_once)
    assert execute(made, a, pack(made, b), ahead)
    assert at_once.tobytes() == ahead.tobytes()


def test_packed_operand_does_not_follow_the_original():
    made = recipe(8, 20, 20, "strassen")
    b = np.eye(20, dtype=np.float32)
    packed = pack(made, b)
    b[...] = np.nan
    a = np.arange(160, dtype=np.float32).reshape(8, 20)
    c = np.full((8, 20), np.nan, np.float32)
    assert execute(made, a, packed, c)
    np.testing.assert_array_equal(c, a)


def test_size_is_that_of_the_sums():
    made = recipe(8, 64, 64, "strassen")
    packed = pack(made, np.ones((64, 64), np.float32))
    assert packed.nbytes == made.blocking.packed_pass + packed.scales.nbytes
    assert made.blocking.packed_pass >= 7 / 4 * 64 * 64 * 4


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("where", [(0, 0), (30, 40), (76, 69)])
@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e25])
def test_scales_of_a_packed_operand_are_guarded(threads: int, where, poison: float):
    rng = np.random.default_rng(0)
    made = recipe(30, 70, 77, "strassen", guard=GUARD, threads=threads)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((30, 77), (77, 70)))
    c = np.empty((30, 70), np.float32)
    assert execute(made, a, pack(made, b), c)
    b[where] = poison
    assert not execute(made, a, pack(made, b), c)


def test_scales_that_overflow_over_the_passes_refuse_without_a_warning(recwarn):
    target = Target(12, 16, 32, 16, k_span=26)
    made = recipe(8, 40, 77, "strassen", guard=Guard(1e3, 1e38), target=target)
    packed = pack(made, np.full((77, 40), 2e35, np.float32))
    assert not execute(made, np.ones((8, 77), np.float32), packed, np.empty((8, 40), np.float32))
    assert not recwarn.list
