"""Schemes on disk.

JSON is the format that is written and read back exactly:

    {"format": "tiercel-scheme-1", "name": "...", "provenance": "...",
     "m": 2, "k": 2, "n": 2, "rank": 7, "U": [[1, "-1/2", 0, 0], ...], "V": ..., "W": ...}

One row per product; row-major entries; C not transposed; integers, or fractions as strings. Only
m, k, n, U, V and W are required. Also read: equations (see `notation`), three whitespace-separated
matrices U, V, W in a text file with a blank or a comment line between them, and .npz (see `npz`).
"""

from __future__ import annotations

import json
import re
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.schemes.factors import from_factors
from tiercel.schemes.notation import parse_equations
from tiercel.schemes.rational import RationalMatrix
from tiercel.schemes.scheme import Scheme

FORMAT = "tiercel-scheme-1"


def load(
    path: str | PathLike[str],
    *,
    grid: tuple[int, int, int] | None = None,
    c_transposed: bool | None = None,
) -> Scheme:
    """Read and verify a scheme from a file.

    Args:
        path: ``.json``, ``.npz``, or text with equations or with three matrices.
        grid: (m, k, n). Required for equations and for an .npz of several sizes.
        c_transposed: whether the W of three matrices is stored for Cᵀ. By default only in an .npz
            whose members are named by sizes.

    Raises:
        TiercelValueError: what cannot be read, or the first Brent equation that is violated.
        OSError: what the file system says.
    """
    path = Path(path)
    try:
        if path.suffix == ".npz":
            from tiercel.schemes.npz import read_npz

            return read_npz(path, grid=grid, c_transposed=c_transposed)
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            return loads(text)
        if "=" in text:
            return parse_equations(_required(grid), text, path.stem, f"read from {path}")
        return from_factors(
            *_matrices(text),
            grid=grid,
            c_transposed=bool(c_transposed),
            name=path.stem,
            provenance=f"read from {path}",
        )
    except (TiercelValueError, TiercelTypeError, UnicodeDecodeError) as error:
        kind = TiercelTypeError if isinstance(error, TiercelTypeError) else TiercelValueError
        raise kind(f"{fspath(path)}: {error}") from None


def loads(text: str) -> Scheme:
    """The scheme in a JSON text; verified.

    >>> from tiercel.schemes import get
    >>> loads(dumps(get("accurate"))) == get("accurate")
    True
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise TiercelValueError(f"a scheme must be valid JSON: {error}") from None
    missing = [key for key in "mknUVW" if not isinstance(data, dict) or key not in data]
    if missing:
        raise TiercelValueError(
            f"a JSON scheme must be one object with m, k, n, U, V and W: {missing} missing"
        )
    for key in "UVW":
        if not isinstance(data[key], list) or not all(isinstance(x, list) for x in data[key]):
            raise TiercelValueError(
                f"{key} of a JSON scheme must be a list of lists, one for each product: got "
                f"{str(data[key])[:40]}"
            )
    if data.get("format", FORMAT) != FORMAT:
        raise TiercelValueError(f"scheme format {data['format']!r} is unknown: expected {FORMAT!r}")
    scheme = Scheme(
        *(data[key] for key in "mknUVW"),
        name=str(data.get("name", "")),
        provenance=str(data.get("provenance", "")),
    )
    if data.get("rank", scheme.rank) != scheme.rank:
        raise TiercelValueError(
            f"the file says rank {data['rank']} but U has {scheme.rank} rows: correct either"
        )
    return scheme


def dumps(scheme: Scheme) -> str:
    """The scheme as JSON text, one product per line; `loads` gives an equal scheme."""
    head = {
        "format": FORMAT,
        "name": scheme.name,
        "provenance": scheme.provenance,
        "m": scheme.m,
        "k": scheme.k,
        "n": scheme.n,
        "rank": scheme.rank,
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    for letter, factor in (("U", scheme.U), ("V", scheme.V), ("W", scheme.W)):
        rows = ",\n".join(f"    {json.dumps(row)}" for row in _json_rows(factor))
        lines.append(f'  "{letter}": [\n{rows}\n  ]')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _json_rows(factor: RationalMatrix) -> list[list[Any]]:
    return [
        [x.numerator if x.denominator == 1 else str(x) for x in row] for row in factor.fractions()
    ]


def _matrices(text: str) -> list[list[list[str]]]:
    """The blocks of consecutive lines of numbers; any other line separates them."""
    blocks: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        entries = re.split(r"[\s,]+", line.strip(" \t\r[],;"))
        if re.match(r"[-+.\d]", entries[0]):
            blocks[-1].append(entries)
        elif blocks[-1]:
            blocks.append([])
    blocks = [block for block in blocks if block]
    if len(blocks) != 3:
        raise TiercelValueError(
            "a text scheme must have three matrices U, V, W with a blank or comment line between "
            f"them: got {len(blocks)}"
        )
    return blocks


def _required(grid: tuple[int, int, int] | None) -> tuple[int, int, int]:
    if grid is None:
        raise TiercelValueError("equations do not state their grid: pass grid=(m, k, n)")
    return grid
