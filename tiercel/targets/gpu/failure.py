"""Where Triton builds no kernels: it needs a C compiler, and a folder that it may write to."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from torch import OutOfMemoryError

from tiercel.errors import TiercelRuntimeError

_reasons: list[str] = []


class KernelFailed(TiercelRuntimeError):
    """Triton did not build or start a kernel."""


def why_none() -> str:
    """Why there are no kernels, as seen in this process; "" as long as all were built."""
    return _reasons[0] if _reasons else ""


@contextmanager
def building() -> Iterator[None]:
    """Turn what Triton raises into ``KernelFailed``, with a warning the first time."""
    try:
        yield
    except OutOfMemoryError:
        raise
    except Exception as problem:
        if not _reasons:
            _reasons.append(f"Triton builds no kernels here ({_in_a_line(problem)})")
            warnings.warn(
                f"{_reasons[0]}, so PyTorch multiplies what they would. It needs a C compiler, "
                "and a folder to write to: set CC and TRITON_CACHE_DIR",
                RuntimeWarning,
                stacklevel=2,
            )
        raise KernelFailed(_reasons[0]) from problem


def _in_a_line(problem: Exception) -> str:
    text = f"{type(problem).__name__}: {problem}".splitlines()[0]
    return text if len(text) <= 200 else f"{text[:200]}…"
