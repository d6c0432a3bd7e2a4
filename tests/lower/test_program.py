"""Programs against the definition of the product, in exact arithmetic."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel import schemes
from tiercel.lower.program import Program, lower, run

NAMES = [name for name in schemes.names() if schemes.get(name).rank <= 200]
SCALES = st.lists(st.sampled_from([-4, -1, 1, 2]), min_size=7, max_size=7)


def integral(program: Program) -> bool:
    return all(c == int(c) for p in program.products for _, c in (*p.a, *p.b, *p.c))


def operands(program: Program, dtype, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Small integers, two rows and columns a block; complex ones for a program of two planes."""
    rng = np.random.default_rng(seed)
    shapes = (2 * program.m, 2 * program.k), (2 * program.k, 2 * program.n)
    a, b = (rng.integers(-9, 10, (program.planes, *shape)).astype(dtype) for shape in shapes)
    return (a[0], b[0]) if program.planes == 1 else (a[0] + 1j * a[1], b[0] + 1j * b[1])


def check_flags(program: Program) -> None:
    """Every block of C is overwritten by the first product that touches it, and by no other."""
    written: set[int] = set()
    for product in program.products:
        for (block, _), first in zip(product.c, product.first, strict=True):
            assert first == (block not in written)
            written.add(block)
    assert written == set(range(program.planes * program.m * program.n))


def test_classical_is_one_plain_product():
    program = lower(None)
    assert program.plain
    a, b = np.arange(12).reshape(3, 4), np.arange(20).reshape(4, 5)
    np.testing.assert_array_equal(run(program, a, b), a @ b)


@pytest.mark.parametrize("name", NAMES)
def test_scheme_is_exact(name: str):
    program = lower(schemes.get(name))
    a, b = operands(program, np.int64 if integral(program) else np.float64)
    np.testing.assert_array_equal(run(program, a, b), a @ b)


@pytest.mark.parametrize("name", [None, *NAMES])
def test_complex_product_is_exact(name: str | None):
    program = lower(name and schemes.get(name), is_complex=True)
    a, b = operands(program, np.float64)
    np.testing.assert_array_equal(run(program, a, b), a @ b)


def test_complex_product_takes_three_real_products_of_rank_each():
    strassen = schemes.get("strassen")
    assert len(lower(None, is_complex=True).products) == 3
    assert len(lower(strassen, is_complex=True).products) == 3 * strassen.rank
    assert not lower(None, is_complex=True).plain


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_first_product_overwrites_and_later_ones_accumulate(name: str, is_complex: bool):
    check_flags(lower(schemes.get(name), is_complex=is_complex))


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_sums_lead_with_a_plain_block(name: str, is_complex: bool):
    for product in lower(schemes.get(name), is_complex=is_complex).products:
        assert product.a[0][1] == product.b[0][1] == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_lowering_keeps_the_number_of_terms(name: str):
    scheme = schemes.get(name)
    program = lower(scheme)
    assert tuple(program.terms(operand) for operand in "abc") == scheme.nonzeros


@pytest.mark.parametrize("name", NAMES)
def test_widest_sum_of_each_operand(name: str):
    scheme = schemes.get(name)
    program = lower(scheme)
    for operand, factor in zip("abc", (scheme.U, scheme.V, scheme.W), strict=True):
        assert program.widest(operand) == np.count_nonzero(factor.numerators, axis=1).max()


def test_program_reads_like_the_scheme():
    lines = str(lower(schemes.get("strassen"))).splitlines()
    assert lines[0] == "strassen: 7 products, grid 2×2×2"
    assert len(lines) == 8
    assert lines[1] == "  P0 = (A0 + A3) · (B0 + B3)    C0 = P0, C3 = P0"
    assert lines[3] == "  P2 = (A0) · (B1 − B3)    C1 = P2, C3 += P2"


def test_equal_schemes_share_one_program():
    assert lower(schemes.get("winograd")) is lower(schemes.get("winograd"))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), name=st.sampled_from([n for n in NAMES if schemes.get(n).rank <= 50]))
def test_order_of_products_is_free(data: st.DataObject, name: str):
    scheme = schemes.get(name)
    order = data.draw(st.permutations(range(scheme.rank)))
    program = lower(schemes.permute_products(scheme, order))
    check_flags(program)
    a, b = operands(program, np.float64)
    np.testing.assert_array_equal(run(program, a, b), a @ b)


@settings(max_examples=20, deadline=None)
@given(left=SCALES, right=SCALES)
def test_scaled_sums_are_normalised(left: list[int], right: list[int]):
    strassen = schemes.get("strassen")
    scaled = schemes.scale_products(strassen, left, right)
    assert lower(scaled).products == lower(strassen).products
