"""What is found modulo 2 becomes a scheme over the integers or rationals, or provably nothing."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiercel.schemes import classical, get
from tiercel.schemes.search.descend import Walk, run
from tiercel.schemes.search.lift import lift, rational_reconstruction
from tiercel.schemes.search.node import from_scheme, pack, unpack


def parity(matrix) -> np.ndarray:
    assert matrix.denominator % 2 == 1
    return matrix.numerators % 2


@pytest.mark.parametrize("name", ["strassen", "winograd", "laderman", "hopcroft-kerr-2x3x4"])
@pytest.mark.parametrize("seed", range(3))
def test_lift_agrees_with_the_node_modulo_2(name, seed):
    scheme = get(name)
    node = pack(scheme.grid, "mod2", from_scheme(scheme))
    lifted = lift(node, seed)
    assert lifted is not None
    for got, wanted in zip((lifted.U, lifted.V, lifted.W), unpack(node), strict=True):
        assert np.array_equal(parity(got), wanted)


@pytest.mark.parametrize("seed", range(1, 6))
def test_walks_end_at_nodes_that_lift(seed):
    start = pack((3, 3, 3), "mod2", from_scheme(classical(3, 3, 3)))
    task = Walk(start, False, 23, 20_000_000, 50_000, 2, seed)
    node = run(task).nodes[0]
    lifted = lift(node, seed)
    assert node.rank == 23
    assert lifted is not None
    assert lifted.rank == 23


@given(
    numerator=st.integers(-(2**19), 2**19),
    denominator=st.integers(0, 2**18 - 1).map(lambda x: 2 * x + 1),
)
def test_reconstruction_finds_the_fraction(numerator, denominator):
    modulus = 2**40
    residue = numerator * pow(denominator, -1, modulus) % modulus
    assert rational_reconstruction(residue, modulus) == Fraction(numerator, denominator)
