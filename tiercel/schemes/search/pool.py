"""The nodes a search has found, by rank, and how they are kept on disk between runs."""

from __future__ import annotations

import os
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from tiercel.errors import TiercelValueError
from tiercel.schemes.search.node import Grid, Node, Ring

#: Nodes kept of each rank; more cost memory and gain nothing (3x4x5: 300 as good as 3000).
CAPACITY = 300


class Pool:
    """Nodes of the two least ranks seen, at most `CAPACITY` of each, all of one grid and ring.

    For a symmetric search the nodes hold orbits and the ranks count them; see `symmetry`.
    """

    def __init__(self, grid: Grid, ring: Ring):
        self.grid = grid
        self.ring: Ring = ring
        self.nodes: dict[int, list[Node]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.nodes.values()))

    @property
    def least(self) -> int | None:
        """Least rank seen, or None in an empty pool."""
        return min(self.nodes, default=None)

    @property
    def best(self) -> list[Node]:
        """The nodes of least rank."""
        return self.nodes[min(self.nodes)] if self.nodes else []

    def add(self, node: Node, rng: np.random.Generator) -> None:
        """Keep a node if its rank is one of the two least; a full shelf loses a random one."""
        least = min(self.nodes, default=node.rank)
        if node.rank > least + 1:
            return
        shelf = self.nodes.setdefault(node.rank, [])
        if len(shelf) < CAPACITY:
            shelf.append(node)
        else:
            shelf[rng.integers(CAPACITY)] = node
        for rank in [rank for rank in self.nodes if rank > min(self.nodes) + 1]:
            del self.nodes[rank]

    def draw(self, rng: np.random.Generator) -> Node:
        """A random node: mostly of the least rank, sometimes of the next."""
        least = min(self.nodes)
        rank = least + 1 if least + 1 in self.nodes and rng.random() < 0.3 else least
        shelf = self.nodes[rank]
        return shelf[rng.integers(len(shelf))]


def save(pool: Pool, path: Path) -> None:
    """Write a pool as .npz, so that a reader never sees half of it."""
    arrays: dict[str, np.ndarray] = {
        "grid": np.array(pool.grid),
        "ring": np.array(pool.ring),
    }
    for rank, shelf in pool.nodes.items():
        arrays[f"words{rank}"] = np.stack([node.words for node in shelf])
        arrays[f"signs{rank}"] = np.stack([node.signs for node in shelf])
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    with unfinished.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)
    unfinished.replace(path)


def load(path: Path) -> Pool:
    """Read a pool.

    Raises:
        TiercelValueError: a file that is no pool.
    """
    try:
        with np.load(path, allow_pickle=False) as data:
            m, k, n = (int(x) for x in data["grid"])
            pool = Pool((m, k, n), "ternary" if str(data["ring"]) == "ternary" else "mod2")
            for name in data.files:
                if name.startswith("words"):
                    words, signs = data[name], data[f"signs{name[5:]}"]
                    pool.nodes[int(name[5:])] = [
                        Node(pool.grid, pool.ring, w, s) for w, s in zip(words, signs, strict=True)
                    ]
    except (OSError, EOFError, KeyError, ValueError, BadZipFile) as error:
        raise TiercelValueError(
            f"{path} is not the pool of a search: {error}; delete it or choose another folder"
        ) from None
    return pool
