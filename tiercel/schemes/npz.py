"""Factorisations in NumPy's .npz container, without running whatever a pickle asks for.

Two layouts are read. Arrays named U, V and W are one scheme. Members named by a size such as
``"3,4,5"`` are the layout in which the AlphaTensor factorisations were published (Fawzi et al.
2022): each is the triple (u, v, w) with one column per product and C transposed. Triples of unequal
shapes are pickled there.
"""

from __future__ import annotations

import pickle
import re
from os import PathLike, fspath
from typing import IO, Any, cast
from zipfile import BadZipFile, ZipFile

import numpy as np

from tiercel.errors import TiercelValueError
from tiercel.schemes.factors import from_factors
from tiercel.schemes.scheme import Scheme

# The private home of NumPy's array constructors moved from numpy.core in NumPy 2.
NUMPY_CORE = "numpy._core" if hasattr(np, "_core") else "numpy.core"

# All that a pickled array of arrays of numbers needs.
ALLOWED_IN_PICKLE = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    (f"{NUMPY_CORE}.multiarray", "_reconstruct"),
    (f"{NUMPY_CORE}.multiarray", "scalar"),
    (f"{NUMPY_CORE}.numeric", "_frombuffer"),
}


def read_npz(
    path: str | PathLike[str],
    *,
    grid: tuple[int, int, int] | None = None,
    c_transposed: bool | None = None,
) -> Scheme:
    """One scheme of an .npz file.

    Args:
        path: the file.
        grid: which (m, k, n) to take; needed when the file holds several sizes.
        c_transposed: how W is stored; by default transposed for members named by a size and not
            transposed for U, V, W.

    Raises:
        TiercelValueError: not such a file, no member of this size, an unsafe pickle, or a violated
            Brent equation.
    """
    try:
        with ZipFile(path) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            if {"U", "V", "W"} <= members.keys():
                factors = [_read(archive.open(members[x])) for x in "UVW"]
                by_size = False
            else:
                grid = _choose(sorted(members), grid, path)
                factors = list(_read(archive.open(members["{},{},{}".format(*grid)])))
                by_size = True
    except (BadZipFile, pickle.UnpicklingError, EOFError) as error:
        raise TiercelValueError(
            f"{fspath(path)} is not a readable .npz of factor arrays: {error}; it must hold U, V "
            "and W, or members named by sizes such as 3,4,5"
        ) from None
    if len(factors) != 3:
        raise TiercelValueError(f"{fspath(path)}: expected the triple u, v, w, got {len(factors)}")
    return from_factors(
        *factors,
        grid=grid,
        c_transposed=by_size if c_transposed is None else c_transposed,
        provenance=f"read from {fspath(path)}",
    )


def _choose(
    members: list[str], grid: tuple[int, int, int] | None, path: str | PathLike[str]
) -> tuple[int, int, int]:
    sizes = [tuple(map(int, x.split(","))) for x in members if re.fullmatch(r"\d+,\d+,\d+", x)]
    if grid is None and len(sizes) == 1:
        return cast(tuple[int, int, int], sizes[0])
    if grid is None or tuple(grid) not in sizes:
        raise TiercelValueError(
            f"{fspath(path)}: grid={grid} does not name one of its schemes; it holds {sizes}"
        )
    return grid


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        module_name = re.sub(r"^numpy\.(_?core)(?=\.)", NUMPY_CORE, module_name)
        if (module_name, global_name) not in ALLOWED_IN_PICKLE:
            raise pickle.UnpicklingError(
                f"a pickled member asks for {module_name}.{global_name}, which is not an array"
            )
        return super().find_class(module_name, global_name)


def _read(stream: IO[bytes]) -> np.ndarray:
    """One .npy member; object arrays through a restricted unpickler."""
    with stream:
        version = np.lib.format.read_magic(stream)
        read_header = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        _, _, dtype = read_header(stream)
        if dtype.hasobject:
            return _ArrayUnpickler(stream).load()
        stream.seek(0)
        return np.lib.format.read_array(stream, allow_pickle=False)
