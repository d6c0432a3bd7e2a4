"""Planes of an input that several weights multiply, without a GPU: recorders, not kernels."""

from types import SimpleNamespace

import pytest
import torch

from tiercel.frontends.torch.cuda import call, fused, shared
from tiercel.frontends.torch.cuda.refusals import Refusals
from tiercel.targets.hopper.fused import product as fused_product
from tiercel.targets.hopper.fused import workspace


class Step:
    arguments = places = None  # no addresses to replace

    def __init__(self, name, ran):
        self.name, self.ran = name, ran

    def run(self, stream):
        self.ran.append(self.name)


@pytest.fixture
def ran(monkeypatch):
    """What was launched, in order: of each product "planes", if by a kernel, and "product"."""
    steps = []
    for module in (fused, shared):
        monkeypatch.setattr(module, "capturing", lambda: False)
    monkeypatch.setattr(call, "raw_stream", lambda device: 7)
    monkeypatch.setattr(Refusals, "due", lambda self: False)
    monkeypatch.setattr(shared, "_last", {})
    monkeypatch.setattr(workspace, "clear_words", lambda address, words, stream: None)

    def prepare(a, operand, out, judge, program, gains, memory=None, combining=None):
        arrays = len(workspace.Workspace._fields)
        halves = (a.new_empty(a.numel() + i, dtype=torch.float16) for i in range(arrays - 1))
        made = memory or workspace.Workspace(*halves, a.new_zeros(4, dtype=torch.int32))
        planes = [] if combining is None else [Step("planes", steps)]
        product = Step("product" if combining is None else "product again", steps)

        def run(stream):
            for launch in (*planes, product):
                launch.run(stream)

        ready = SimpleNamespace(before=tuple(planes), multiply=product, run_cleared=run)
        return SimpleNamespace(**vars(ready), workspace=made, run=run, addresses_only=lambda: ready)

    monkeypatch.setattr(fused_product, "prepare", prepare)
    return steps


def weight(program="winograd"):
    operand = SimpleNamespace(lowered=SimpleNamespace(program=program))
    return fused.FusedWeight(SimpleNamespace(operand=operand, judge=None))


def multiply(w, x, ran, columns=8):
    """What the product of x (..., K) launches."""
    ran.clear()
    w.multiply(x.reshape(-1, x.shape[-1]), torch.empty(6, columns), tracked=True)
    return list(ran)


#: By a kernel that does it all, and by one that finds the planes.
ALONE, SHARED = ["product"], ["product again"]


@pytest.fixture
def used():
    """Weights whose workspaces are known: sizes are found by the first product."""
    return [weight(), weight(), weight()]


def begin(used, ran):
    x = torch.randn(2, 3, 8)
    for w in used:
        multiply(w, x.clone(), ran)
    return x


def test_an_input_is_combined_once(used, ran):
    x = begin(used, ran)
    assert [multiply(w, x, ran) for w in used] == [ALONE, SHARED, SHARED]


def test_a_weight_that_comes_again_begins_anew(used, ran):
    x = begin(used, ran)
    assert [multiply(w, x, ran) for w in used[:2] * 2] == [ALONE, SHARED] * 2


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.mul_(2),
        lambda x: x.view(-1).copy_(torch.zeros(48)),
        lambda x: setattr(x, "data", torch.zeros(2, 3, 8)),
    ],
)
def test_a_changed_input_is_combined_again(used, ran, change):
    x = begin(used, ran)
    assert multiply(used[0], x, ran) == ALONE
    change(x)
    assert multiply(used[1], x, ran) == ALONE


def test_another_input_at_the_same_address_is_combined(used, ran):
    memory = begin(used, ran)
    x = torch.from_dlpack(memory)
    assert multiply(used[0], x, ran) == ALONE
    del x
    assert shared._last == {}, "planes live no longer than their input"
    assert multiply(used[1], torch.from_dlpack(memory), ran) == ALONE


def test_other_programs_and_rows_are_not_served(used, ran):
    x = begin(used, ran)
    multiply(weight("another"), x, ran)
    assert multiply(used[0], x, ran) == ALONE
    assert multiply(used[1], x[:1], ran) == ALONE


def test_other_streams_are_not_served(used, ran, monkeypatch):
    x, streams = begin(used, ran), [7, 7, 8]
    monkeypatch.setattr(call, "raw_stream", lambda device: streams.pop(0))
    assert [multiply(w, x, ran) for w in used] == [ALONE, SHARED, ALONE]


def test_nothing_is_shared_with_a_captured_graph_or_in_inference_mode(used, ran, monkeypatch):
    x = begin(used, ran)
    multiply(used[0], x, ran)
    monkeypatch.setattr(shared, "capturing", lambda: True)
    assert multiply(used[1], x, ran) == ALONE
    monkeypatch.setattr(shared, "capturing", lambda: False)
    assert multiply(used[2], x, ran) == ALONE
    with torch.inference_mode():
        y = torch.randn(2, 3, 8)
        assert [multiply(w, y, ran) for w in used] == [ALONE] * 3


def test_a_weight_of_other_columns_reads_the_same_planes(used, ran):
    x = begin(used, ran)
    multiply(used[1], x.clone(), ran, columns=4)
    assert multiply(used[0], x, ran) == ALONE
    assert multiply(used[1], x, ran, columns=4) == SHARED
