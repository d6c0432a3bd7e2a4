"""The kernels' arithmetic, in Triton's interpreter on the CPU, against NumPy's exact integers."""

import numpy as np
import pytest
import torch

from tiercel.errors import TiercelError, TiercelTypeError, TiercelValueError
from tiercel.schemes import get
from tiercel.targets.gpu import pack, product
from tiercel.targets.gpu.recipe import recipe_for

DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]


def integers(rows, cols, dtype="float32", seed=0):
    """Whole numbers so small that even a bfloat16 result is exact; returns (torch, NumPy)."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-1, 2, (rows, cols))
    if dtype.startswith("complex"):
        x = x + 1j * rng.integers(-1, 2, (rows, cols))
    return torch.tensor(x).to(getattr(torch, dtype)), x


def assert_equal(c, expected):
    wide = torch.complex128 if c.is_complex() else torch.float64
    np.testing.assert_array_equal(c.to(wide).resolve_conj().numpy(), expected)


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("name", ["strassen", "hopcroft-kerr-3x2x3"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype, name, guarded):
    (a, x), (b, y) = integers(37, 29, dtype), integers(29, 43, dtype, 1)
    out = torch.full((37, 43), float("nan"), dtype=a.dtype)
    assert product(a, b, get(name), out=out, guarded=guarded) is out
    assert_equal(out, x @ y)


@pytest.mark.parametrize("transposed", [(0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_every_layout_is_exact(dtype, transposed):
    (a, x), (b, y) = integers(40, 24, dtype), integers(24, 56, dtype, 1)
    out = torch.full((40, 56), float("nan"), dtype=a.dtype)
    a, b, out = (
        z.mT.contiguous().mT if turn else z for z, turn in zip((a, b, out), transposed, strict=True)
    )
    assert_equal(product(a, b, get("winograd"), out=out), x @ y)


def test_strided_operands_and_what_lies_between():
    (a, x), (b, y) = integers(20, 24), integers(24, 28, seed=1)
    around = torch.full((41, 80), float("nan"))
    around[:40:2, 5:77:3] = a
    assert_equal(product(around[:40:2, 5:77:3], b, get("strassen")), x @ y)


def test_conjugated_operands():
    (a, x), (b, y) = integers(24, 20, "complex64"), integers(24, 28, "complex64", 1)
    assert_equal(product(a.mH, b.conj(), get("strassen")), x.conj().T @ y.conj())


@pytest.mark.parametrize("workspace", [None, 20_000, 3_000, 0])
def test_two_levels_in_any_workspace(workspace):
    (a, x), (b, y) = integers(33, 35), integers(35, 39, seed=1)
    assert_equal(product(a, b, get("strassen"), 2, workspace=workspace), x @ y)


def test_alpha_beta_and_a_bias():
    (a, x), (b, y), (c, z) = integers(20, 20), integers(20, 20, seed=1), integers(20, 20, seed=2)
    bias = c[0].clone()
    assert_equal(product(a, b, get("strassen"), alpha=2, beta=-3, c=bias), 2 * x @ y - 3 * z[0])
    product(a, b, get("strassen"), 2, beta=1, c=c, out=c, workspace=10_000)
    assert_equal(c, x @ y + z)


def test_levels_around_others_find_their_planes_in_a_packed_operand():
    levels = [get("strassen"), get("lean-4x2x4")]
    a, b = (torch.randint(-2, 3, size).float() for size in ((33, 70), (70, 50)))
    packed, before = pack(b, levels), b.clone()
    assert_equal(product(a, packed, levels), a @ b)
    assert torch.equal(b, before)


def test_batches_and_packed_operands():
    (b, y), (a, x) = integers(24, 28, seed=1), integers(40, 24)
    packed = pack(b, get("strassen"))
    expected = (x @ y).reshape(2, 20, 28)
    assert_equal(product(a.view(2, 20, 24), b, get("strassen")), expected)
    assert_equal(product(a.view(2, 20, 24), packed, get("strassen")), expected)
    strided = a.view(20, 2, 24).transpose(0, 1)
    assert_equal(product(strided, b.expand(2, 24, 28), get("strassen")), strided.numpy() @ y)
    b.zero_()
    with pytest.raises(TiercelValueError, match="pack it again"):
        product(a, packed, get("strassen"))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_the_guard_hands_over_to_the_classical_kernel(dtype):
    """A zero row beside others: exactly zero only by the classical product."""
    a = torch.randn(40, 80, dtype=getattr(torch, dtype))
    b = torch.randn(80, 40, dtype=getattr(torch, dtype))
    a[5] = 0
    assert product(a, b, get("strassen"), guarded=False)[5].abs().max() > 0
    out = product(a, b, get("strassen"))
    assert not out[5].any()
    torch.testing.assert_close(out, a @ b)


@pytest.mark.parametrize(("row", "by_rows"), [(5, (True, False)), (15, (False, True))])
def test_levels_around_others_find_a_zero_row(row, by_rows):
    """With the sums of several sources where K is contiguous, else in a pass of its own."""
    a, b = torch.randn(20, 128), torch.randn(128, 20)
    a, b = (x if rows else x.mT.contiguous().mT for x, rows in zip((a, b), by_rows, strict=True))
    levels, workspace = [get("strassen")] * 2, 40_000
    recipe = recipe_for(levels, 20, 20, 128, "float32", workspace=workspace)
    assert recipe is not None
    assert not recipe.outer.plain
    assert recipe.batched
    a[row] = 0
    assert not product(a, b, levels, workspace=workspace)[row].any()
    a[row], b[:, row] = 1, 0
    assert not product(a, b, levels, workspace=workspace)[:, row].any()


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_nan_and_inf_stay_where_the_classical_product_has_them(poison):
    a, b = torch.randn(40, 40), torch.randn(40, 40)
    b[39, 3] = poison
    out = product(a, b, get("strassen"))
    assert torch.equal(out.isfinite(), (a @ b).isfinite())


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda a, b: (a, b.double()), TiercelTypeError, "convert one"),
        (lambda a, b: (a.int(), b.int()), TiercelTypeError, "allowed: float16"),
        (lambda a, b: (a, b[1:]), TiercelValueError, "a has 20 columns, b has 19 rows"),
        (lambda a, b: (a[0], b), TiercelValueError, "at least two dimensions"),
        (lambda a, b: ([1], b), TiercelTypeError, "torch.Tensor: got list"),
    ],
)
def test_refused_operands(change, error, says):
    a, b = change(torch.ones(20, 20), torch.ones(20, 20))
    with pytest.raises(error, match=says):
        product(a, b, get("strassen"))


def test_refused_options():
    a = torch.ones(20, 20)
    packed = pack(a, get("strassen"))
    for call, says in (
        (lambda: product(a, a, get("strassen"), 0), "levels must be at least 1"),
        (lambda: product(a, a, get("strassen"), out=a[1:]), "out must be"),
        (lambda: product(a, a, get("strassen"), out=a[:1].expand(20, 20)), "repeats memory"),
        (lambda: product(a, packed, get("strassen"), 2), "packed for"),
        (
            lambda: product(a, a, get("strassen"), alpha=1j),  # type: ignore[arg-type]
            "alpha must be a real number",
        ),
        (lambda: product(a.half(), a.half(), get("strassen"), 3), "use fewer levels"),
        (lambda: pack(a[None], get("strassen")), "one matrix"),
    ):
        with pytest.raises(TiercelError, match=says):
            call()
