"""Cyclic orbits and cubes expand to the whole product."""

import numpy as np
import pytest

from tiercel.errors import TiercelValueError
from tiercel.schemes import classical
from tiercel.schemes.search.node import from_scheme, pack, unpack
from tiercel.schemes.search.run import Settings, search
from tiercel.schemes.search.symmetry import expand, orbits, parse_partition


@pytest.mark.parametrize("text", ["0,1,2,3", "01,23", "0123", "02,1,3"])
def test_orbits_and_cubes_are_the_matrix_product(text):
    partition = parse_partition(text, 4)
    tensors = [
        np.einsum("ra,rb,rc->abc", *(x.astype(np.int64) for x in unpack(node))) % 2
        for node in (
            expand(orbits(4, partition), partition),
            pack((4, 4, 4), "mod2", from_scheme(classical(4, 4, 4))),
        )
    ]
    assert np.array_equal(*tensors)


@pytest.mark.parametrize("text", ["01", "01,12", "0,,12", "012,3", ""])
def test_partition_must_cover_the_diagonal_once(text):
    with pytest.raises(TiercelValueError, match="partition"):
        parse_partition(text, 3)


def test_symmetric_search_reaches_laderman_rank():
    cyclic = Settings((3, 3, 3), rings=("mod2",), partition=((0, 1), (2,)), catalogue=False)
    found = search(cyclic, 30)
    assert found is not None
    assert found.rank == 23


def test_symmetry_needs_a_cube():
    with pytest.raises(TiercelValueError, match="cube"):
        Settings((2, 3, 3), rings=("mod2",), partition=((0, 1), (2,)))
