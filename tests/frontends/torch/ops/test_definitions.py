"""The operators keep every promise that torch.library asks of them."""

import subprocess
import sys

import pytest
import torch
from torch.library import opcheck

import tiercel
from tiercel.frontends.torch.ops import definitions
from tiercel.frontends.torch.ops.option_text import decode, encode
from tiercel.options import checked_options

LINEAR, MATMUL, WEIGHT_GRAD = (
    getattr(torch.ops.tiercel, name).default for name in ("linear", "matmul", "weight_grad")
)


def arguments(*shapes, dtype=torch.float32, requires_grad=False):
    return [torch.randn(s, dtype=dtype, requires_grad=requires_grad) for s in shapes]


@pytest.mark.parametrize("kernels", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("shape", [(6, 4), (2, 3, 4), (1, 4), (0, 4)], ids=str)
def test_linear_passes_opcheck(shape, dtype, requires_grad, kernels, request):
    if kernels:
        request.getfixturevalue("kernel_runs")
    x, w, bias = arguments(shape, (5, 4), (5,), dtype=dtype, requires_grad=requires_grad)
    opcheck(LINEAR, (x, w, bias, ""))
    opcheck(LINEAR, (x, w.detach().t().contiguous().t(), None, ""))


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("shapes", [((6, 4), (4, 5)), ((3, 6, 4), (3, 4, 5))])
def test_matmul_passes_opcheck(shapes, requires_grad, kernel_runs):
    a, b = arguments(*shapes, requires_grad=requires_grad)
    opcheck(MATMUL, (a, b, None, ""))
    opcheck(MATMUL, (a, b, torch.randn(5, requires_grad=requires_grad), "accuracy=classical"))
    assert kernel_runs


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("shapes", [((6, 5), (6, 4)), ((2, 3, 5), (2, 3, 4))])
def test_weight_grad(shapes, requires_grad, kernel_runs):
    opcheck(WEIGHT_GRAD, (*arguments(*shapes, requires_grad=requires_grad), ""))
    assert kernel_runs


def test_epilogue_and_its_derivative(kernel_runs):
    x, w, bias = arguments((6, 4), (5, 4), (5,), requires_grad=True)
    opcheck(LINEAR, (x, w, bias, "epilogue=gelu"))


def test_misfits_are_explained():
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        LINEAR(torch.ones(6, 4), torch.ones(5, 3), None, "")
    with pytest.raises(RuntimeError, match=r"tiercel::linear of torch.float32 \(6, 4\)"):
        LINEAR(torch.ones(6, 4, device="meta"), torch.ones(5, 3, device="meta"), None, "")


def test_every_operator_is_defined_once():
    assert set(definitions.OPERATORS) == {"linear", "matmul", "weight_grad"}
    assert all(hasattr(torch.ops.tiercel, name) for name in definitions.OPERATORS)


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"epilogue": "relu", "accuracy": "fast"},
        {"accuracy": 3.5, "workspace": "1MiB", "threads": 2},
        {"scheme": "strassen"},
        {"batch_invariant": True},
        {"scheme": tiercel.schemes.get("winograd")},
    ],
)
def test_options_survive_as_text(chosen):
    options = checked_options(**chosen)
    assert decode(encode(options)) == options


def test_the_front_end_imports_neither_the_compiler_nor_triton():
    """They take 1.5 s, and TRITON_INTERPRET has an effect only until Triton is imported."""
    program = (
        "import sys, torch; before = set(sys.modules); import tiercel.frontends.torch; "
        "print(*({'torch._dynamo', 'triton'} & (set(sys.modules) - before)))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (printed.returncode, printed.stdout.strip()) == (0, "")


def test_tiercel_may_be_imported_again():
    """Torch takes operators of a name once; notebooks and test runners forget modules."""
    use = """
import sys, torch, tiercel
x = torch.ones(700, 700, requires_grad=True)
tiercel.matmul(x, x)
for name in [name for name in sys.modules if name.partition(".")[0] == "tiercel"]:
    del sys.modules[name]
import tiercel as again
model = torch.nn.Linear(700, 700)
again.patch(model)
(model(x) + again.matmul(x, x)).sum().backward()
assert torch.func.vmap(lambda v: again.matmul(v, x))(x[None]).shape == (1, 700, 700)
compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
torch.testing.assert_close(compiled(x), model(x))
from importlib import reload
reload(sys.modules["tiercel.frontends.torch.ops.definitions"])
again.matmul(x, x).sum().backward()
"""
    ran = subprocess.run([sys.executable, "-c", use], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
