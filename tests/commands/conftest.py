"""What tests of commands share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tiercel import runtime
from tiercel.planner.machine import keep


@pytest.fixture
def own_cache(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache that holds profiles of this machine and no measured product."""
    monkeypatch.undo()
    profile = [runtime.machine((dtype,)) for dtype in runtime.DTYPES]
    monkeypatch.setenv("TIERCEL_CACHE_DIR", str(empty_cache))
    for machine in profile:
        keep(machine)
    runtime.forget()
    yield
    monkeypatch.undo()
    runtime.forget()
