"""Schemes for square matrices that the cyclic symmetry of the trace maps to themselves.

trace(A·B·C) does not change when A, B and C rotate, so a scheme may consist of orbits
a⊗b⊗c + b⊗c⊗a + c⊗a⊗b and of cubes a⊗a⊗a, where the third factor is read transposed. A search that
flips whole orbits has a third of the rows and all the reductions count threefold; it finds
⟨5,5,5;93⟩ (J. Moosbauer, M. Poole, *Flip graphs with symmetry and new matrix multiplication
schemes*, 2025).

Flips never touch a cube, so the cubes are chosen before the walk: one for each part of a partition
of the diagonal, a = Σ e_ii over the part. The rest of the classical scheme is orbits, and so are
the mixed terms e_ii⊗e_jj⊗e_ll that the cubes bring in.
"""

from __future__ import annotations

import numpy as np

from tiercel.errors import TiercelValueError
from tiercel.schemes.search.node import Node

Partition = tuple[tuple[int, ...], ...]


def parse_partition(text: str, size: int) -> Partition:
    """Parts of the diagonal from text such as ``"01,23,4"``.

    Raises:
        TiercelValueError: not each of 0 … size-1 exactly once.

    >>> parse_partition("01,23,4", 5)
    ((0, 1), (2, 3), (4,))
    """
    parts = tuple(tuple(int(x) for x in part if x.isdigit()) for part in text.split(","))
    if sorted(x for part in parts for x in part) != list(range(size)) or not all(parts):
        raise TiercelValueError(
            f"a partition of the diagonal must name each of 0 to {size - 1} once: got {text!r}; "
            f'write for example "{"".join(map(str, range(size)))}" for one cube'
        )
    return parts


def orbits(size: int, partition: Partition) -> Node:
    """The classical scheme without the cubes, one product modulo 2 for each orbit.

    >>> orbits(2, ((0, 1),)).rank  # Strassen's has 2 orbits and the same cube
    4
    """
    rows, seen = [], set()
    cubed = {x for part in partition for x in part}
    for triple in np.ndindex(size, size, size):
        orbit = _first(triple)
        i, j, l = triple  # noqa: E741
        if orbit in seen or (i == j == l and i in cubed):
            continue
        seen.add(orbit)
        rows.append((_unit(i, j, size), _unit(j, l, size), _unit(l, i, size)))
    for part in partition:
        mixed = {_first((i, j, l)) for i in part for j in part for l in part}  # noqa: E741
        rows += [
            tuple(_unit(x, x, size) for x in orbit)
            for orbit in sorted(mixed)
            if len(set(orbit)) > 1
        ]
    words = np.array(rows, np.uint64)
    return Node((size, size, size), "mod2", words, np.ones(len(rows), np.int8))


def expand(node: Node, partition: Partition) -> Node:
    """The plain node modulo 2 whose orbits `node` lists."""
    size = node.grid[0]
    cubes = [sum(_unit(x, x, size) for x in part) for part in partition]
    rotations = [np.roll(node.words, -turn, axis=1) for turn in range(3)]
    words = np.concatenate([*rotations, np.array([[x] * 3 for x in cubes], np.uint64)])
    words[:, 2] = _transposed(words[:, 2], size)
    return Node(node.grid, "mod2", words, np.ones(len(words), np.int8))


def _first(triple: tuple[int, ...]) -> tuple[int, ...]:
    i, j, l = triple  # noqa: E741
    return min((i, j, l), (j, l, i), (l, i, j))


def _unit(row: int, column: int, size: int) -> int:
    return 1 << (row * size + column)


def _transposed(words: np.ndarray, size: int) -> np.ndarray:
    result = np.zeros_like(words)
    for row in range(size):
        for column in range(size):
            bit = words >> np.uint64(row * size + column) & np.uint64(1)
            result |= bit << np.uint64(column * size + row)
    return result
