"""Launches that are moved to other arrays, without a GPU: the driver is played."""

import ctypes
from types import SimpleNamespace

import pytest

from tiercel.errors import TiercelRuntimeError, TiercelValueError
from tiercel.targets.hopper.launching import driver
from tiercel.targets.hopper.launching.kernel import Arguments
from tiercel.targets.hopper.launching.launch import Launch, Places
from tiercel.targets.hopper.launching.movable import Extent, Movable
from tiercel.targets.hopper.launching.tensor_map import MAP_BYTES, TensorMap


class Descriptor:
    def __init__(self, _ptr):
        self.first = ctypes.c_uint64.from_address(_ptr)


class Refused:
    name = "CUDA_ERROR_INVALID_VALUE"

    def __int__(self):
        return 1


def replace_address(descriptor, address):
    if address % 16:
        return (Refused(),)
    descriptor.first.value = address
    return (0,)


@pytest.fixture(autouse=True)
def played(monkeypatch):
    fake = SimpleNamespace(CUtensorMap=Descriptor, cuTensorMapReplaceAddress=replace_address)
    monkeypatch.setattr(driver, "bindings", lambda: fake)


def described(address):
    made = TensorMap(address.to_bytes(8, "little") + bytes(range(MAP_BYTES - 8)))
    made.address = address
    return made


def launch(maps, words, places):
    content = b"".join(maps) + b"".join(x.to_bytes(8, "little") for x in words)
    first = MAP_BYTES * len(maps)
    return Launch(None, 1, Arguments(content), places=Places(
        tuple(first + 8 * i for i in places), tuple(maps)
    ))  # fmt: skip


def words(made):
    return list(made.arguments.words)


A, B = Extent(0x10000, 0x1000), Extent(0x20000, 0x1000)


def test_addresses_follow_their_array_and_all_else_stays():
    made = launch(
        [described(0x10040), described(0x30000)], [0x20008, 0x10000, 0x10010, 0], (0, 1, 3)
    )
    before = words(made)
    movable = Movable([made], [A, B])
    movable.to([0x50000, 0x20000])
    after = words(made)
    changed = {i: (x, y) for i, (x, y) in enumerate(zip(before, after, strict=True)) if x != y}
    # Word 34 looks like an address, but is none.
    assert changed == {0: (0x10040, 0x50040), 33: (0x10000, 0x50000)}
    movable.to([0x10000, 0x70000])
    assert words(made)[:1] == [0x10040]
    assert words(made)[32:] == [0x70008, 0x10000, 0x10010, 0]
    movable.to([0x10000, 0x20000])
    assert words(made) == before


def test_what_is_not_an_arrays_any_more_is_not_found():
    made = launch([], [0x11000, 0x0FFFF], (0, 1))
    Movable([made], [A]).to([0x50000])
    assert words(made) == [0x11000, 0x0FFFF]


def test_arrays_that_overlap_move_together():
    inside = Extent(0x10800, 0x1000)
    made = launch([], [0x10900, 0x11200], (0, 1))
    Movable([made], [A, inside]).to([0x60000, 0x60800])
    assert words(made) == [0x60900, 0x61200]


def test_an_array_that_could_not_be_moved_is_moved_again():
    made = launch([described(0x10000)], [0x10000], (0,))
    movable = Movable([made], [A])
    with pytest.raises(TiercelRuntimeError, match="move a tensor map to 0x50008"):
        movable.to([0x50008])
    movable.to([0x10000])
    assert words(made)[0] == words(made)[-1] == 0x10000


def test_launches_that_do_not_tell_are_refused():
    with pytest.raises(TiercelValueError, match="does not say where"):
        Movable([Launch(None, 1, Arguments(bytes(64)))], [A])
    Movable([Launch(None, 0, None)], [A]).to([0])  # an empty output
