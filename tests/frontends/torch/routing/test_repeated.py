"""Calls that are like an earlier one go to its plan; whatever may differ is looked at."""

from types import SimpleNamespace

import pytest
import torch

import tiercel
from tiercel.frontends.torch.routing import repeated, shortcut


class Fake:
    """An engine of the CPU that counts how often it is asked for a plan, and runs torch's."""

    STEADY = True
    LEAST_FOLLOWED = 0.0

    def __init__(self) -> None:
        self.LEAST_WORK = {torch.float32: 0, torch.complex64: 0}
        self.planned = self.ran = 0
        self.reason = ""

    def begin(self):
        pass

    def why_not(self, dtype):
        return self.reason

    def plan(self, request):
        self.planned += 1
        return SimpleNamespace()

    def direct(self, plan, request, given, result):
        return None

    def run(self, plan, request, out):
        self.ran += 1
        torch.matmul(request.a.detach(), request.b.detach(), out=out)
        if request.bias is not None:
            out += request.bias.detach()

    def why_not_packed(self, w):
        return "not here"


def plans_of(fake, call) -> int:
    """Plans asked for by a call, whose product is ours."""
    before, ran = fake.planned, fake.ran
    call()
    assert fake.ran == ran + 1
    return fake.planned - before


def test_the_second_call_asks_for_no_plan(fake):
    w, bias = torch.randn(5, 4), torch.randn(5)
    for _ in range(2):
        x = torch.randn(2, 3, 4)
        calls = {
            "linear": lambda x=x: tiercel.linear(x, w, bias),
            "matmul": lambda x=x: tiercel.matmul(x[0], w.t()),
        }
        asked = {name: plans_of(fake, call) for name, call in calls.items()}
        torch.testing.assert_close(tiercel.linear(x, w, bias), x @ w.t() + bias)
    assert asked == {"linear": 0, "matmul": 0}


def test_other_sizes_strides_dtypes_and_lazy_views_are_other_calls(fake):
    a, b = torch.randn(6, 6), torch.randn(6, 6)
    z = torch.randn(6, 6, dtype=torch.complex64)
    pairs = [(a, b), (a[:5], b), (a.t(), b), (a, b.t()), (z, z), (z.conj(), z), (z, z.imag + 0j)]
    for x, y in pairs[:-1]:
        assert plans_of(fake, lambda x=x, y=y: tiercel.matmul(x, y)) > 0
        assert plans_of(fake, lambda x=x, y=y: tiercel.matmul(x, y)) == 0
        torch.testing.assert_close(tiercel.matmul(x, y), x @ y)


def test_the_shorter_way_writes_an_out_that_can_be_written(fake, monkeypatch):
    def repeat(a, b, bias, out=None):
        written.append(out)
        return torch.matmul(a, b, out=out)

    written = []
    monkeypatch.setattr(fake, "direct", lambda *given: repeat)
    a, b, out = torch.randn(6, 6), torch.randn(6, 6), torch.empty(6, 6)
    wanted = a @ b
    tiercel.matmul(a, b, out=torch.empty(6, 6))
    assert tiercel.matmul(a, b, out=out) is out
    assert written == [out]
    torch.testing.assert_close(out, wanted)
    for other in (torch.empty(6, 12)[:, ::2], a):
        torch.testing.assert_close(tiercel.matmul(a, b, out=other), wanted)
    assert len(written) == 1


def test_products_of_the_same_squares_are_told_apart(fake):
    x, y = torch.randn(6, 6), torch.randn(6, 6)
    for _ in range(3):
        torch.testing.assert_close(tiercel.matmul(x, y), x @ y)
        torch.testing.assert_close(tiercel.linear(x, y), x @ y.t())
        torch.testing.assert_close(torch.ops.tiercel.weight_grad(x, y, ""), x.t() @ y)
        torch.testing.assert_close(torch.ops.tiercel.matmul(x, y, None, ""), x @ y)


def test_gradients_are_followed_all_the_same(fake):
    x, w = torch.randn(3, 4), torch.randn(5, 4)
    tiercel.linear(x, w)
    w.requires_grad_()
    tiercel.linear(x, w).sum().backward()
    torch.testing.assert_close(w.grad, x.sum(0).expand(5, 4))
    with torch.no_grad():
        assert not tiercel.linear(x, w).requires_grad


def test_modes_switches_and_options_are_asked_anew(fake):
    x, w = torch.randn(3, 4), torch.randn(5, 4)
    tiercel.linear(x, w)
    ran = fake.ran
    with torch.autocast("cpu", torch.bfloat16):
        assert tiercel.linear(x, w).dtype is torch.bfloat16
    fake.reason = "TF32 is allowed"
    tiercel.linear(x, w)
    assert fake.ran == ran
    fake.reason = ""
    shortcut.forget()
    assert plans_of(fake, lambda: tiercel.linear(x, w)) > 0
    assert plans_of(fake, lambda: tiercel.linear(x, w, accuracy="fast")) > 0


def test_other_bits_of_float32_are_other_products(fake, monkeypatch):
    x, w = torch.randn(3, 4), torch.randn(5, 4)
    for module in (shortcut, repeated):
        monkeypatch.setattr(module, "in_tf32", lambda x: True)
    tiercel.linear(x, w)
    for module in (shortcut, repeated):
        monkeypatch.setattr(module, "in_tf32", lambda x: False)
    assert plans_of(fake, lambda: tiercel.linear(x, w)) > 0
    assert plans_of(fake, lambda: tiercel.linear(x, w)) == 0


def test_an_engine_whose_plans_change_is_always_asked(fake):
    fake.STEADY = False
    x, w = torch.randn(3, 4), torch.randn(5, 4)
    assert all(plans_of(fake, lambda: tiercel.linear(x, w)) > 0 for _ in range(3))


@pytest.fixture
def packing(fake, monkeypatch):
    """The same engine, which packs weights; ``direct`` counts the calls that need nothing else."""
    fake.packed = fake.went_directly = 0

    def pack(w, options):
        fake.packed += 1
        return SimpleNamespace(algorithm="strassen", panels=object(), nbytes=8)

    def direct(plan, request, given, result):
        def repeat(a, b, bias):
            fake.went_directly += 1
            return torch.nn.functional.linear(a, b, bias)

        return repeat

    monkeypatch.setattr(fake, "why_not_packed", lambda w: "")
    monkeypatch.setattr(fake, "pack", pack, raising=False)
    monkeypatch.setattr(fake, "direct", direct)
    return fake


def test_each_packed_weight_keeps_its_calls(packing):
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3))).requires_grad_(False)
    x = torch.randn(3, 4)
    wanted = model(x)
    tiercel.patch(model, pack_weights=True)
    assert packing.packed == 3
    for calls in (0, 3, 6):
        torch.testing.assert_close(model(x), wanted)
        assert packing.went_directly == calls
    planned = packing.planned
    model(x)
    assert packing.planned == planned


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.weight.mul_(2),
        lambda layer: setattr(layer.weight, "data", torch.randn(5, 4)),
        lambda layer: setattr(layer, "weight", torch.nn.Parameter(torch.randn(5, 4), False)),
    ],
)
def test_a_changed_weight_forgets_its_calls(packing, change):
    layer = torch.nn.Linear(4, 5).requires_grad_(False)
    tiercel.patch(layer, pack_weights=True)
    x = torch.randn(3, 4)
    for _ in range(2):
        layer(x)
    change(layer)
    before = packing.went_directly
    torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, layer.weight, layer.bias))
    assert (packing.went_directly, packing.packed) == (before, 2)


def test_kept_calls_ask_for_gradients_autocast_and_torchs_switches(packing):
    layer = torch.nn.Linear(4, 5).requires_grad_(False)
    tiercel.patch(layer, pack_weights=True)
    x = torch.randn(3, 4)
    for _ in range(2):
        layer(x)
    before = packing.went_directly
    layer(x.clone().requires_grad_()).sum().backward()
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype is torch.bfloat16
    packing.reason = "TF32 is allowed"
    layer(x)
    assert packing.went_directly == before
