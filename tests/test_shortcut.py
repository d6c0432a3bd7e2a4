"""Products like earlier ones take the short way from the second call on, with the same results."""

import numpy as np
import pytest

import tiercel
from tests.planner.machines import MACHINE
from tiercel import shortcut
from tiercel.counters import numpys
from tiercel.planner.choose import make_plan
from tiercel.planner.problem import Problem
from tiercel.shortcut import KNOWN, key_of
from tiercel.targets.cpu.params import CALLS
from tiercel.targets.cpu.shortcut.handover import handover

PLAN = make_plan(Problem(300, 310, 320, scheme="vendor"), MACHINE)


@pytest.fixture(autouse=True, params=["looked up in Python", "handed over"])
def fresh(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    shortcut.forget()
    known = handover(numpys.address) if request.param == "handed over" else None
    for name, source in (("product", "call"), ("add", "add"), ("forget", "forget")):
        monkeypatch.setattr(shortcut.at_once, name, known and getattr(known, source))
    yield
    shortcut.forget()


def operands(M: int = 300, N: int = 310, K: int = 320) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((M, K), dtype=np.float32), rng.random((K, N), dtype=np.float32)


def leave_to_numpy(a: np.ndarray, b: np.ndarray) -> None:
    shortcut.keep(PLAN, a, b, None)


def test_a_product_that_the_planner_leaves_to_numpy_is_remembered():
    a, b = operands()
    leave_to_numpy(a, b)
    before = tiercel.stats().get("vendor")
    np.testing.assert_array_equal(tiercel.matmul(a, b), a @ b)
    assert tiercel.last_plan() is PLAN
    after = tiercel.stats()["vendor"]
    assert after.calls == (before.calls if before else 0) + 1
    assert after.untimed == (before.untimed if before else 0) + 1


def test_other_layouts_and_dtypes_are_other_products():
    a, b = operands()
    leave_to_numpy(a, b)
    untimed = numpys.notes[CALLS]
    tiercel.matmul(a.astype(np.int32), b.astype(np.int32))
    assert numpys.notes[CALLS] == untimed
    assert hash(key_of(a.T, b.T)) not in KNOWN


def test_a_bad_out_is_still_explained():
    a, b = operands()
    leave_to_numpy(a, b)
    untimed = numpys.notes[CALLS]
    with pytest.raises(tiercel.TiercelTypeError):
        tiercel.matmul(a, b, out=np.zeros((300, 310), np.int64))
    with pytest.raises(tiercel.TiercelValueError):
        tiercel.matmul(a, b, out=np.zeros((300, 311), np.float32))
    assert numpys.notes[CALLS] == untimed


def test_products_that_are_never_planned_are_remembered_without_a_plan():
    rng = np.random.default_rng(0)
    a, b, v = rng.random((8, 3000)), rng.random((3000, 20)), rng.random(3000)
    tiercel.matmul(operands()[0], operands()[1], scheme="vendor")
    last, untimed = tiercel.last_plan(), numpys.notes[CALLS]
    for x, y in ((a, b), (a, v), (np.stack([a] * 3), np.stack([b] * 3))):
        tiercel.matmul(x, y)
        assert KNOWN[hash(key_of(x, y))].number == 0
        np.testing.assert_array_equal(tiercel.matmul(x, y), np.matmul(x, y))
        with pytest.raises(tiercel.TiercelValueError):
            tiercel.matmul(x, y, out=np.zeros((2, 2)))
    assert tiercel.last_plan() is last
    assert numpys.notes[CALLS] == untimed


@pytest.mark.parametrize("shape", [((300, 1), (1, 400)), ((40, 3, 300), (300, 20))])
def test_what_a_better_way_than_numpys_exists_for_is_not_remembered(shape: tuple):
    a, b = map(np.ones, shape)
    tiercel.matmul(a, b)
    assert hash(key_of(a, b)) not in KNOWN


def test_options_take_the_long_way():
    a, b = operands()
    leave_to_numpy(a, b)
    untimed = numpys.notes[CALLS]
    np.testing.assert_array_equal(tiercel.matmul(a, b, scheme="vendor"), a @ b)
    assert numpys.notes[CALLS] == untimed


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shortcut, "MOST_KNOWN", 4)
    for size in range(300, 320):
        a, b = operands(M=size)
        leave_to_numpy(a, b)
        assert hash(key_of(a, b)) in KNOWN
    assert len(KNOWN) <= 4


def test_a_product_that_is_known_is_not_remembered_again(monkeypatch: pytest.MonkeyPatch):
    """Options that are named although they are the defaults take the long way at every call."""
    a, b = operands()
    tiercel.matmul(a, b)
    added = []
    monkeypatch.setattr(shortcut.at_once, "add", lambda *known: added.append(known))
    before = len(numpys.plans)
    for _ in range(3):
        tiercel.matmul(a, b, accuracy=None)
    assert not added
    assert len(numpys.plans) == before
