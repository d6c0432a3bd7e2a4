"""Which libraries there are, which of them this machine has, and which a run measures.

Finding a library imports nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from tiercel.bench import cblas
from tiercel.bench.peers import BLIS, MKL, TIERCEL, Library, NumPy, SciPy, Tiercel, Torch
from tiercel.errors import TiercelRuntimeError, TiercelValueError


@dataclass(frozen=True)
class Source:
    """How to find a library without importing it, how to open it, and how to get it."""

    is_present: Callable[[], bool]
    open: Callable[[], Library]
    get_it: str


LIBRARIES = {
    TIERCEL: Source(lambda: True, Tiercel, ""),
    "numpy": Source(lambda: True, NumPy, ""),
    "torch": Source(lambda: find_spec("torch") is not None, Torch, "pip install 'tiercel[torch]'"),
    "mkl": Source(lambda: cblas.find_mkl() is not None, MKL, "pip install mkl"),
    "blis": Source(
        lambda: cblas.find_blis() is not None, BLIS, "e.g. apt-get install libblis4-pthread"
    ),
    "scipy": Source(lambda: find_spec("scipy") is not None, SciPy, "pip install scipy"),
}


def choose_libraries(names: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Names of the libraries to measure, tiercel first, and one line per library that is missing.

    Without ``names``: every library that is present. A library asked for by name must be there.
    """
    unknown = [name for name in names if name not in LIBRARIES]
    if unknown:
        raise TiercelValueError(
            f"peers: got {', '.join(unknown)}; known are {', '.join(LIBRARIES)}"
        )
    missing = [name for name in LIBRARIES if not LIBRARIES[name].is_present()]
    absent = [name for name in names if name in missing]
    if absent:
        how = "; ".join(f"{name}: {LIBRARIES[name].get_it}" for name in absent)
        raise TiercelRuntimeError(f"peers: {', '.join(absent)} not found on this machine ({how})")
    wanted = dict.fromkeys((TIERCEL, *(names or LIBRARIES)))  # each once: they have a process each
    notes = [] if names else [f"{n} not found ({LIBRARIES[n].get_it})" for n in missing]
    return [name for name in wanted if name not in missing], notes
