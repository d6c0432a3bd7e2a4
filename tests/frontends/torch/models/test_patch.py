"""A patched model differs in speed only."""

import copy
import io
import pickle
import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import tiercel
from tiercel.errors import TiercelTypeError
from tiercel.frontends.torch.models import forward


@pytest.fixture
def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4, bias=False))


def test_layers_run_here_and_unpatch_ends_it(model, kernel_runs):
    x = torch.randn(2, 3, 8)
    expected, before = model(x), [dict(vars(layer)) for layer in model]
    report = tiercel.patch(model)
    torch.testing.assert_close(model(x), expected)
    assert kernel_runs == [(6, 16, 8), (6, 4, 16)]
    assert report.patched == 2
    tiercel.unpatch(model)
    model(x)
    assert len(kernel_runs) == 2
    assert [dict(vars(layer)) for layer in model] == before


def test_a_linear_layer_by_itself(kernel_runs):
    layer = nn.Linear(4, 4)
    patched = tiercel.patch(layer) or layer
    assert patched is layer
    assert type(layer) is nn.Linear
    layer(input=torch.ones(2, 4))
    assert kernel_runs


def test_as_a_context(model, kernel_runs):
    with tiercel.patch(model) as report:
        model(torch.ones(1, 8))
    model(torch.ones(1, 8))
    assert len(kernel_runs) == report.patched == 2


def test_the_end_of_an_inner_context_leaves_the_outer_one(model, kernel_runs):
    tiercel.patch(model, filter=lambda name, _: name == "0")
    outer = model[0].forward
    with tiercel.patch(model, accuracy="classical"):
        assert model[0].forward.options.accuracy == "classical"
        assert "forward" in vars(model[2])
    assert model[0].forward is outer
    assert "forward" not in vars(model[2])
    model(torch.ones(1, 8))
    assert len(kernel_runs) == 1
    tiercel.unpatch(model)
    assert "forward" not in vars(model[0])


def test_report_says_what_was_left_alone_and_why(model):
    class Own(nn.Linear):
        def forward(self, input):
            return super().forward(input)

    replaced = nn.Linear(2, 2)
    replaced.forward = lambda input: input
    model.extend([Own(4, 4), nn.Linear(4, 4, device="meta"), replaced, nn.Linear(4, 2)])
    report = tiercel.patch(model, filter=lambda name, layer: name != "6")
    head, columns, *rows = str(report).splitlines()
    assert head == "2 of 6 linear layers patched"
    assert columns.split()[0] == "layer"
    decisions = [layer.decision for layer in report.layers]
    assert len(rows) == len(decisions)
    assert decisions[:2] == ["patched", "patched"]
    for decision, word in zip(decisions[2:], ("Own", "meta", "replaced", "filter"), strict=True):
        assert decision.startswith("left alone")
        assert word in decision


def test_dry_run_changes_nothing(model):
    report = tiercel.patch(model, dry_run=True, pack_weights=True)
    assert str(report).startswith("2 of 2 linear layers would be patched")
    assert "forward" not in vars(model[0])


def test_state_is_what_it_was(model):
    plain = copy.deepcopy(model)
    tiercel.patch(model)
    assert list(model.state_dict()) == list(plain.state_dict())
    model.load_state_dict(plain.state_dict(), strict=True)
    plain.load_state_dict(model.state_dict(), strict=True)
    assert [name for name, _ in model.named_modules()] == ["", "0", "1", "2"]


def test_copies_use_their_own_weights(model, kernel_runs):
    tiercel.patch(model)
    x = torch.randn(2, 8)
    copied = copy.deepcopy(model)
    assert torch.equal(copied(x), model(x))
    assert len(kernel_runs) == 4
    with torch.no_grad():
        copied[0].weight.zero_()
    assert not torch.equal(copied(x), model(x))
    tiercel.unpatch(copied)
    assert "forward" in vars(model[0])
    assert "forward" not in vars(copied[0])


def test_a_pickle_is_an_ordinary_model(model, kernel_runs):
    tiercel.patch(model)
    x = torch.randn(2, 8)
    expected, stored = model(x), io.BytesIO()
    torch.save(model, stored)
    assert b"tiercel" not in stored.getvalue()
    loaded = pickle.loads(pickle.dumps(model))
    torch.testing.assert_close(loaded(x), expected)
    assert len(kernel_runs) == 2
    assert tiercel.patch(loaded).patched == 2
    loaded(x)
    assert len(kernel_runs) == 4


def test_hooks_run_and_may_bring_the_weight(model, kernel_runs):
    layer, x = model[0], torch.randn(2, 8)
    full = layer.weight.detach().clone()
    tiercel.patch(model)
    layer.weight.data = torch.empty(0)
    layer.register_forward_pre_hook(lambda m, a: setattr(m.weight, "data", full.clone()))
    layer.register_forward_hook(lambda m, a, y: setattr(m.weight, "data", torch.empty(0)))
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(layer(x), x @ full.t() + layer.bias)


def test_training_follows_the_weights(model, kernel_runs):
    plain, x = copy.deepcopy(model), torch.randn(32, 8)
    tiercel.patch(model, pack_weights=True)
    for net in (model, plain):
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(model.state_dict(), plain.state_dict())
    assert len(kernel_runs) >= 5 * 5


def test_patching_twice_takes_the_new_options(model):
    tiercel.patch(model)
    tiercel.patch(model, accuracy="classical")
    assert model[0].forward.options.accuracy == "classical"
    tiercel.unpatch(model)
    assert "forward" not in vars(model[0])


def test_only_modules_can_be_patched():
    for function in (tiercel.patch, tiercel.unpatch):
        with pytest.raises(TiercelTypeError, match="list"):
            function([])


def test_importing_tiercel_does_not_import_torch():
    program = "import sys, tiercel; tiercel.patch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_subclasses_that_compute_as_linear_does(kernel_runs):
    attention, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 3, 8)
    weighted = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
    expected = attention(x, x, x)[0], weighted(x)
    assert tiercel.patch(attention).patched == 1
    assert tiercel.patch(weighted).patched == 1
    torch.testing.assert_close((attention(x, x, x)[0], weighted(x)), expected)
    weighted(x).sum().backward()
    assert all(parameter.grad is not None for parameter in weighted.parameters())
    assert kernel_runs


def test_few_rows_go_to_torch_at_once(monkeypatch):
    layer, x = nn.Linear(32, 16), torch.randn(2, 3, 32)
    wanted = layer(x)
    tiercel.patch(layer)
    assert torch.equal(layer(x), wanted)
    monkeypatch.setattr(forward, "linear", None)  # is not asked again
    assert torch.equal(layer(x), wanted)
    layer.weight = nn.Parameter(2 * layer.weight.detach())
    parametrize.register_parametrization(layer, "bias", nn.Identity())
    torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias))


def test_what_a_plan_leaves_to_torch_goes_there_at_once(monkeypatch):
    layer, x = nn.Linear(2048, 8), torch.randn(1024, 2048)
    tiercel.patch(layer)
    with torch.no_grad():
        wanted = layer(x)
        monkeypatch.setattr(forward, "look_up", None)  # is not asked again
        assert torch.equal(layer(x), wanted)
        with pytest.raises(TypeError), torch.autocast("cpu", torch.bfloat16):
            layer(x)
        with pytest.raises(TypeError):
            layer.double()(x.double())


def test_report_shows_the_rows_seen_and_their_plans():
    model = nn.Sequential(nn.Linear(2048, 2048), nn.Linear(2048, 4)).requires_grad_(False)
    report = tiercel.patch(model)
    assert [(run.rows, run.seen) for run in report.layers[0].runs] == [(2048, False)]
    assert "(2048)" in str(report)
    for rows in (1, 700):
        model(torch.randn(rows, 2048))
    large, small = (layer.runs for layer in report.layers)
    assert [(run.rows, run.seen) for run in large] == [(700, True), (1, True)]
    assert large[1].algorithm == "torch"
    assert [run.algorithm for run in small] == ["torch", "torch"]
    assert all(run.gain >= 1 for run in large)
    assert "700" in str(report)


def test_lazy_layers_are_patched_before_they_have_weights(kernel_runs):
    model = nn.Sequential(nn.LazyLinear(16))
    report = tiercel.patch(model, pack_weights=True)
    assert (report.layers[0].N, report.layers[0].runs) == (0, ())
    assert "patched" in str(report)
    x = torch.ones(3, 8)
    torch.testing.assert_close(model(x), nn.functional.linear(x, model[0].weight, model[0].bias))
    assert report.layers[0].N == 16


def test_tied_weights_stay_tied(kernel_runs):
    embedding, head = nn.Embedding(12, 8), nn.Linear(8, 12, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, head)
    tiercel.patch(model)
    model(torch.tensor([1, 2])).sum().backward()
    assert head.weight is embedding.weight
    assert len(list(model.parameters())) == 1


def test_reduced_precision_that_the_user_allows_is_left_to_torch(monkeypatch):
    from tiercel.frontends.torch import cpu

    monkeypatch.setattr(cpu, "torch_is_fast_in", lambda dtype: True)
    assert cpu.why_not(torch.float32) == ""
    settings: Any = torch.backends.mkldnn.matmul  # pyright: ignore[reportAttributeAccessIssue]
    before = settings.fp32_precision
    settings.fp32_precision = "bf16"
    try:
        assert "reduced precision" in cpu.why_not(torch.float32)
    finally:
        settings.fp32_precision = before


def test_before_pytorch_2_9_one_switch_allows_it_for_all_devices(monkeypatch):
    from tiercel.frontends.torch import cpu

    monkeypatch.setattr(cpu, "torch_is_fast_in", lambda dtype: True)
    monkeypatch.setattr(torch.backends, "mkldnn", object())
    before = torch.get_float32_matmul_precision()
    assert cpu.why_not(torch.float32) == ""
    torch.set_float32_matmul_precision("medium")
    try:
        assert "reduced precision" in cpu.why_not(torch.float32)
    finally:
        torch.set_float32_matmul_precision(before)


def test_deterministic_algorithms(kernel_runs):
    x, w = torch.randn(64, 48), torch.randn(32, 48)
    torch.use_deterministic_algorithms(True)
    try:
        first = tiercel.linear(x, w)
        assert all(torch.equal(tiercel.linear(x, w), first) for _ in range(3))
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(kernel_runs) == 4


@pytest.mark.parametrize("rows", [4, 700])
@pytest.mark.parametrize("warm", [False, True])
def test_a_model_is_traced_by_torch_jit(rows: int, warm: bool):
    model, x = nn.Sequential(nn.Linear(600, 600), nn.ReLU()).eval(), torch.randn(rows, 600)
    expected = model(x + 1)
    tiercel.patch(model)
    if warm:
        model(x)
    traced: Any = torch.jit.trace(model, x)  # checks that a second trace is the same
    torch.testing.assert_close(traced(x + 1), expected, atol=1e-4, rtol=1e-4)


def test_a_filter_that_raises_leaves_the_model_as_it_was(model):
    def chosen(name: str, _: Any) -> bool:
        if name == "2":
            raise KeyError(name)
        return True

    with pytest.raises(KeyError):
        tiercel.patch(model, filter=chosen)
    assert not any("forward" in vars(layer) for layer in model)


@pytest.mark.parametrize(
    "named", [{"pack_weights": "no"}, {"dry_run": 1}, {"filter": "attention"}], ids=str
)
def test_options_that_are_none_are_named(model, named):
    ((name, value),) = named.items()
    with pytest.raises(TiercelTypeError, match=f"{name}={value!r} is no"):
        tiercel.patch(model, **named)


@pytest.mark.parametrize("used", [True, False])
def test_a_model_may_be_used_at_the_interpreters_end(used: bool):
    """In a ``__del__``, when modules are gone: it was a crash of the process."""
    use = f"""
import builtins, os, torch, tiercel
model, x = torch.nn.Linear(900, 900), torch.ones(900, 900)
tiercel.patch(model)
if {used}:
    model(x)
class Last:
    def __init__(self):
        self.kept = model, x, os.write
    def __del__(self):
        model, x, write = self.kept
        write(1, str(tuple(model(x).shape)).encode())
last = Last()
last.itself = last
builtins.another = Last()
"""
    ran = subprocess.run([sys.executable, "-c", use], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, 2 * "(900, 900)"), ran.stderr


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: x])
def test_replicas_read_their_own_weights(model, copied, kernel_runs):
    """``nn.DataParallel`` copies what a module holds, and gives the copy other weights."""
    tiercel.patch(model)
    layer = copied(model[0])
    layer(torch.ones(2, 8))
    replica = layer._replicate_for_data_parallel()
    replica.weight, replica.bias = torch.eye(8), None
    kernel_runs.clear()
    assert torch.equal(replica(torch.ones(2, 8)), torch.ones(2, 8))
    assert kernel_runs == [(2, 8, 8)]
    tiercel.unpatch(model)
    assert "_replicate_for_data_parallel" not in vars(model[0])


def test_torch_jit_script_is_told_to_unpatch(model):
    tiercel.patch(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit itself
        with pytest.raises(AttributeError, match=r"call tiercel\.unpatch"):
            torch.jit.script(model)
        tiercel.unpatch(model)
        torch.jit.script(model)
