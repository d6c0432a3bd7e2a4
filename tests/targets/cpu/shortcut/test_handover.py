"""The built-in function that hands products to NumPy: only those it was told, with all they own."""

import ctypes
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tiercel.targets.cpu.params import CALLS, LATEST, NOTED, THREAD
from tiercel.targets.cpu.shortcut import handover
from tiercel.targets.cpu.shortcut.handover import Handover
from tiercel.targets.cpu.shortcut.known import entry_of
from tiercel.targets.cpu.shortcut.numpys_blas import routines
from tiercel.targets.cpu.shortcut.words import ALONE, ENTRIES, ENTRY, HEAD

MEMORY = ctypes.create_string_buffer(NOTED * 8)
NOTES = memoryview(MEMORY).cast("B").cast("q")


@pytest.fixture(params=["BLAS", "np.matmul"])
def table(request: pytest.FixtureRequest) -> Handover:
    """One that calls NumPy's BLAS where it is known, and one that never does."""
    return Handover(ctypes.addressof(MEMORY), routines() if request.param == "BLAS" else None)


def operands() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((30, 40)), rng.random((40, 50))


def test_a_product_that_was_added_is_numpys(table: Handover):
    a, b = operands()
    assert table.call(a, b, None) is NotImplemented
    table.add(a, b, 7)
    np.testing.assert_array_equal(table.call(a, b, None), a @ b)
    out = np.empty((30, 50))
    assert table.call(a, b, out) is out
    np.testing.assert_array_equal(out, a @ b)
    table.forget()
    assert table.call(a, b, None) is NotImplemented


def test_other_shapes_strides_dtypes_and_types_are_not(table: Handover):
    a, b = operands()
    table.add(a, b, 0)
    others = (
        (a[:-1], b), (a, b[:, :-1]), (a.T.copy().T, b), (a[::-1], b), (a.astype(np.float32), b),
        (a.view(np.int64), b), (a[0], b), (a[None], b), (a.view(np.matrix), b), (a, None), (1, "2"),
    )  # fmt: skip
    for x, y in others:
        assert table.call(x, y, None) is NotImplemented


def test_calls_are_noted_unless_the_product_has_no_plan(table: Handover):
    a, b = operands()
    table.add(a, b, 5)
    table.add(b.T, a.T, 0)
    before = NOTES[CALLS]
    table.call(a, b, None)
    table.call(b.T, a.T, None)
    assert NOTES[CALLS] == before + 1
    assert NOTES[LATEST] == 5
    assert NOTES[THREAD] == threading.get_ident()


def test_numpys_exceptions_pass_and_are_not_counted(table: Handover):
    a, b = operands()
    table.add(a, b, 5)
    before = NOTES[CALLS]
    with pytest.raises(ValueError, match="mismatch"):
        table.call(a, b, np.empty((2, 2)))
    assert NOTES[CALLS] == before


def test_an_entry_is_written_in_one_step(table: Handover):
    """Half of one, found by another thread, would call what is not there."""
    steps = []

    class Table:
        def __setitem__(self, place, words):
            steps.append(len(words))

    table._table = Table()  # type: ignore[assignment]
    table.add(*operands(), 0)
    assert steps == [ALONE + 1]


def test_threads_that_need_it_at_once_get_the_same(monkeypatch: pytest.MonkeyPatch):
    make, started = handover._make, threading.Barrier(3)

    def slowly(notes: int):
        started.wait(20)
        return make(notes)

    monkeypatch.setattr(handover, "_made", {})
    monkeypatch.setattr(handover, "_make", slowly)
    with ThreadPoolExecutor(3) as threads:
        made = list(threads.map(handover.handover, [ctypes.addressof(MEMORY)] * 3))
    assert made[0] is made[1] is made[2] is not None


def test_no_reference_is_lost_or_kept(table: Handover):
    a, b = operands()
    table.add(a, b, 5)
    out = np.empty((30, 50))
    table.call(a, b, out)
    objects = (a, b, out, NotImplemented, np.matmul, a.dtype)
    before = [sys.getrefcount(x) for x in objects]
    for _ in range(1000):
        table.call(a, b, out)
        table.call(b, a, out)
    assert [sys.getrefcount(x) for x in objects] == before


def test_entries_lie_in_the_table_and_are_spread():
    places = [entry_of((m, 64, 256, 4, 64, n, 4 * n, 4)) for m in range(20) for n in range(-8, 8)]
    assert all(HEAD <= at <= HEAD + (ENTRIES - 1) * ENTRY for at in places)
    assert len(set(places)) > 0.75 * len(places)
