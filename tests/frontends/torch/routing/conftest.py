"""A made-up engine in the CPU's place: the ``Fake`` of the module that asks for it."""

import sys

import pytest

from tiercel.frontends.torch import engine
from tiercel.frontends.torch.routing import shortcut


@pytest.fixture
def fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    made = request.module.Fake()
    monkeypatch.setitem(sys.modules, "fake_engine", made)
    monkeypatch.setitem(engine.ENGINES, "cpu", "fake_engine")
    engine.engine_for.cache_clear()
    shortcut.forget()
    yield made
    engine.engine_for.cache_clear()
    shortcut.forget()
