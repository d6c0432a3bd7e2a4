"""Scratch memory between calls: kept, bounded, given back, never shared by two callers."""

import ctypes
import gc
import mmap
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.targets.cpu.recipes import integers, python, recipe
from tiercel.targets.cpu import workspace
from tiercel.targets.cpu.kernel import execute, pack
from tiercel.targets.cpu.workspace import borrow, held, release

MIB = 1 << 20


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    release()
    yield
    release()


def test_a_returned_buffer_is_lent_again():
    with borrow(MIB) as first:
        assert held() == 0
    assert held() == MIB
    with borrow(MIB) as second:
        assert second == first


@pytest.mark.parametrize("nbytes", [1, 4096, 5000, 3 * MIB])
def test_memory_is_aligned_and_writable_to_its_end(nbytes: int):
    with borrow(nbytes) as address:
        assert address % mmap.PAGESIZE == 0
        ctypes.memset(address, 1, nbytes)


def test_buffers_in_use_are_distinct():
    with borrow(MIB) as first, borrow(MIB) as second:
        assert abs(first - second) >= MIB


def test_the_smallest_fitting_buffer_is_lent():
    with borrow(3 * MIB), borrow(2 * MIB) as small:
        pass
    with borrow(MIB) as again:
        assert again == small


def test_a_much_larger_buffer_is_not_tied_up_by_a_small_call():
    with borrow(64 * MIB) as large:
        pass
    with borrow(4096) as small:
        assert small != large
        assert held() == 64 * MIB


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(workspace, "KEEP", 10 * MIB)
    with borrow(4 * MIB), borrow(5 * MIB), borrow(6 * MIB):
        pass
    assert 0 < held() <= 10 * MIB
    with borrow(11 * MIB):
        pass
    assert held() <= 11 * MIB


def test_memory_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch):
    def full(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", full)
    with pytest.raises(MemoryError, match=r"1\.0 MiB of scratch memory .* workspace= caps it"):
        workspace.take(MIB)


def test_a_buffer_is_returned_after_an_error():
    with pytest.raises(KeyError), borrow(MIB):
        raise KeyError
    assert held() == MIB


def resident() -> int:
    """Bytes of memory that this process occupies."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_release_gives_memory_back_to_the_system():
    with borrow(64 * MIB) as address:
        ctypes.memset(address, 1, 64 * MIB)
    before = resident()
    release()
    assert held() == 0
    assert before - resident() > 50 * MIB


def test_threads_never_share_a_buffer():
    def use(byte: int) -> bool:
        for _ in range(50):
            with borrow(64 << 10) as address:
                memory = (ctypes.c_ubyte * (64 << 10)).from_address(address)
                ctypes.memset(address, byte, 64 << 10)
                if any(memory[i] != byte for i in range(0, 64 << 10, 4096)):
                    return False
        return True

    with ThreadPoolExecutor(4) as users:
        assert all(users.map(use, range(1, 5)))
    assert held() <= 4 * (64 << 10)


def test_a_forked_child_shares_no_buffer_with_its_parent():
    python("""
import ctypes, os
from tiercel.targets.cpu.workspace import borrow, held
with borrow(1 << 20) as address:
    ctypes.memset(address, 7, 1 << 20)
child = os.fork()
if child == 0:
    assert held() == 0
    with borrow(1 << 20) as mine:
        ctypes.memset(mine, 9, 1 << 20)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert ctypes.string_at(address, 1 << 20) == bytes([7]) * (1 << 20)
""")


@pytest.mark.parametrize("scheme", [None, "strassen2"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_call_borrows_what_its_blocking_states(
    monkeypatch: pytest.MonkeyPatch, scheme: str | None, threads: int
):
    asked = []
    take = workspace.take
    monkeypatch.setattr(workspace, "take", lambda n: asked.append(n) or take(n))
    made = recipe(50, 60, 70, scheme, threads=threads)
    a, b, c = (np.ones(s, np.float32) for s in ((50, 70), (70, 60), (50, 60)))
    assert execute(made, a, b, c)
    assert asked.pop() == made.blocking.workspace(threads)
    packed = pack(made, b)
    assert asked.pop() == threads * made.blocking.private
    assert execute(made, a, packed, c)
    assert asked.pop() == threads * made.blocking.private


@pytest.mark.parametrize(("threads", "count"), [(1, 10_000), (2, 2000)])
def test_thousands_of_calls_do_not_grow_the_process(threads: int, count: int):
    rng = np.random.default_rng(0)
    made = recipe(24, 32, 24, "strassen", threads=threads)
    a, b = integers(rng, (24, 24), "float32"), integers(rng, (24, 32), "float32")
    c = np.empty((24, 32), np.float32)

    def calls(number: int) -> None:
        for _ in range(number):
            execute(made, a, b, c)

    calls(500)
    gc.collect()
    before = resident()
    calls(count)
    assert resident() - before < MIB
    np.testing.assert_array_equal(c, a @ b)


def test_packing_over_and_over_does_not_grow_the_process():
    made = recipe(24, 64, 64, "strassen")
    b = np.ones((64, 64), np.float32)
    for _ in range(100):
        pack(made, b)
    before = resident()
    for _ in range(1000):
        pack(made, b)
    assert resident() - before < MIB


def test_large_buffers_ask_for_huge_pages():
    with borrow(8 * MIB) as address:
        entries = re.split(
            r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.M
        )
    for entry in entries[1:]:
        start, end = (int(x, 16) for x in entry.split()[0].split("-"))
        if start <= address < end:
            flags = entry[entry.index("VmFlags:") :].splitlines()[0].split()
            assert "hg" in flags
            assert "sh" not in flags  # shared memory gets them on few systems
            return
    raise AssertionError("the buffer is not mapped")
