"""tiercel: a matrix product that does fewer multiplications and is safe to drop in.

>>> import numpy as np, tiercel
>>> tiercel.matmul(np.eye(2), np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
[[1.0, 2.0], [3.0, 4.0]]

Importing this package imports NumPy and nothing else that is heavy; kernels are generated, and
threads started, by the first product that is large enough to gain.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tiercel.api import (
    grouped_matmul,
    linear,
    matmul,
    numpy_matmul,
    pack,
    patch,
    scaled_matmul,
    unpatch,
)
from tiercel.errors import (
    TiercelError,
    TiercelRuntimeError,
    TiercelTypeError,
    TiercelValueError,
)
from tiercel.plans import plan

if TYPE_CHECKING:
    from tiercel import epilogues, schemes
    from tiercel.cache import cache_dir
    from tiercel.counters import last_plan, stats
    from tiercel.lower.epilogue import epilogue
    from tiercel.runtime import machine, release_workspace
    from tiercel.targets.hopper.launching.occupancy import set_num_sms

__version__ = "0.1.0"

#: Imported when first used: name -> module that has it (or is it).
_LATER = {
    "cache_dir": "tiercel.cache",
    "epilogue": "tiercel.lower.epilogue",
    "epilogues": "tiercel.epilogues",
    "last_plan": "tiercel.counters",
    "machine": "tiercel.runtime",
    "release_workspace": "tiercel.runtime",
    "schemes": "tiercel.schemes",
    "set_num_sms": "tiercel.targets.hopper.launching.occupancy",
    "stats": "tiercel.counters",
}

__all__ = [
    "TiercelError",
    "TiercelRuntimeError",
    "TiercelTypeError",
    "TiercelValueError",
    "cache_dir",
    "epilogue",
    "epilogues",
    "grouped_matmul",
    "last_plan",
    "linear",
    "machine",
    "matmul",
    "numpy_matmul",
    "pack",
    "patch",
    "plan",
    "release_workspace",
    "scaled_matmul",
    "schemes",
    "set_num_sms",
    "stats",
    "unpatch",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'tiercel' has no attribute {name!r}")
    module = import_module(_LATER[name])
    return module if module.__name__ == f"tiercel.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
