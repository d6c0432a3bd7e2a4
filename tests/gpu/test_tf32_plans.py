"""float32 products where torch allows TF32: plans of their own, and the vendor's error."""

import pytest
import torch

import tiercel
from tiercel.targets.hopper import available

pytestmark = pytest.mark.gpu

SIDE = 4096
LAYOUTS = ["row,row", "row,col", "col,row", "col,col"]


@pytest.fixture(autouse=True)
def _in_tf32():
    assert available(torch.cuda.current_device()) is None
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def normal(rows: int, columns: int, layout: str = "row") -> torch.Tensor:
    if layout == "col":
        return normal(columns, rows).t()
    return torch.randn(rows, columns, device="cuda")


def error(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> float:
    wanted = a[:256].double() @ b.double()
    return ((x[:256].double() - wanted).norm() / wanted.norm()).item()


@pytest.mark.parametrize("layouts", LAYOUTS)
def test_classical_products_are_as_exact_as_the_vendors(layouts: str):
    a, b = (normal(SIDE, SIDE, layout) for layout in layouts.split(","))
    for _ in range(3):  # looked at, known, repeated
        c = tiercel.matmul(a, b, accuracy="classical")
        assert error(c, a, b) <= 1.05 * error(a @ b, a, b)
    plan = tiercel.last_plan()
    assert plan.problem.dtype == "tfloat32"
    if layouts == "col,row":  # where cuBLAS loses a third
        assert plan.chosen.algorithm == "classical"


@pytest.mark.parametrize("layouts", ["packed", *LAYOUTS])
def test_schemes_run_inside_the_kernel_at_their_predicted_error(layouts: str):
    packed = layouts == "packed"
    a, b = (normal(SIDE, SIDE, x) for x in ("row,col" if packed else layouts).split(","))
    right = tiercel.pack(b, scheme="winograd") if packed else b
    for _ in range(3):
        c = tiercel.matmul(a, right, scheme="winograd")
    assert tiercel.last_plan().chosen.algorithm == "winograd"
    assert tiercel.last_plan().chosen.variant.kind == "fused"
    assert error(c, a, b) <= 1.1 * tiercel.last_plan().chosen.growth * error(a @ b, a, b)


def test_what_a_scheme_must_not_touch_is_multiplied_classically():
    a, b = normal(SIDE, SIDE), normal(SIDE, SIDE, "col")
    a[7] *= 1e6
    c = tiercel.matmul(a, b, scheme="winograd")
    small = torch.arange(SIDE, device="cuda") != 7
    assert error(c[small], a[small], b) <= 1.05 * error((a @ b)[small], a[small], b)
    a[9, 5] = float("inf")
    assert torch.equal(tiercel.matmul(a, b, scheme="winograd").isfinite(), (a @ b).isfinite())


def test_other_bits_are_other_plans():
    a, b = normal(SIDE, SIDE), normal(SIDE, SIDE, "col")
    for precision, (least, most) in 2 * [("high", (1e-4, 2e-3)), ("highest", (0, 5e-6))]:
        torch.set_float32_matmul_precision(precision)
        for _ in range(2):
            assert least <= error(tiercel.matmul(a, b), a, b) <= most


def test_layers_and_their_gradients():
    x, layer = normal(SIDE, SIDE).requires_grad_(), torch.nn.Linear(SIDE, SIDE, device="cuda")
    grad = normal(SIDE, SIDE)
    for _ in range(3):
        x.grad = layer.weight.grad = None
        y = tiercel.linear(x, layer.weight, layer.bias, epilogue="relu")
        y.backward(grad)
    w, kept = layer.weight.detach(), grad * (y > 0)
    wanted = torch.relu(x[:256].double() @ w.t().double() + layer.bias.double())
    assert ((y[:256] - wanted).norm() / wanted.norm()).item() <= 1e-3
    assert error(x.grad, kept, w) <= 1e-3
    assert error(layer.weight.grad, kept.t(), x.detach()) <= 1e-3
