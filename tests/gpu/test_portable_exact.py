"""Exact results on small whole numbers, whatever the dtype, layout, size and scheme."""

import pytest
import torch

from tests.gpu.portable import DTYPES, integers, laid_out, wide
from tiercel.schemes import get, names
from tiercel.targets.gpu import pack, product

pytestmark = pytest.mark.gpu

LAYOUTS = ["row", "column", "offset", "strided"]


def check(a, b, scheme, levels=1, **options):
    expected = (wide(a) @ wide(b)).to(a.dtype)
    out = torch.full_like(expected, float("nan"))
    product(a, b, scheme, levels, out=out, **options)
    torch.testing.assert_close(out, expected, rtol=0, atol=0)


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("name", ["strassen", "winograd"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_square_schemes(dtype, name, levels, guarded):
    a, b = integers(304, 273, dtype=dtype), integers(273, 337, dtype=dtype, seed=1)
    check(a, b, get(name), levels, guarded=guarded)


@pytest.mark.parametrize("name", [x for x in names() if "4" not in x and x != "strassen3"])
def test_every_scheme_of_the_catalogue(name):
    whole = name != "strassen*laderman"  # 161 products are too many for one kernel
    levels = [get(name)] if whole else [get("strassen"), get("laderman")]
    dtype = torch.float64  # the accurate scheme's fractions are exact only to rounding
    a, b = integers(200, 230, dtype=dtype), integers(230, 170, dtype=dtype, seed=1)
    out = product(a, b, levels)
    torch.testing.assert_close(out, a @ b, rtol=0, atol=1e-10 if "accurate" in name else 0)


@pytest.mark.parametrize("layout_b", LAYOUTS)
@pytest.mark.parametrize("layout_a", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_every_layout_is_exact(dtype, layout_a, layout_b):
    a = laid_out(integers(256, 384, dtype=dtype), layout_a)
    b = laid_out(integers(384, 192, dtype=dtype, seed=1), layout_b)
    check(a, b, get("strassen"), 2)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_layouts_of_the_result(dtype, layout):
    a, b = integers(130, 150, dtype=dtype), integers(150, 170, dtype=dtype, seed=1)
    memory = laid_out(torch.full((130, 170), float("nan"), dtype=dtype, device="cuda"), layout)
    assert product(a, b, get("winograd"), out=memory) is memory
    torch.testing.assert_close(memory, a @ b, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_conjugated_operands(dtype):
    a, b = integers(96, 80, dtype=dtype), integers(96, 64, dtype=dtype, seed=1)
    check(a.mH, b, get("strassen"))
    check(a.T, b.conj(), get("strassen"))


@pytest.mark.parametrize(
    "size",
    [(1, 1, 1), (1, 65, 33), (7, 5, 9), (16, 16, 16), (31, 33, 32), (127, 129, 128), (257, 8, 511)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_odd_sizes(dtype, size):
    M, N, K = size
    a, b = integers(M, K, dtype=dtype), integers(K, N, dtype=dtype, seed=1)
    check(a, b, get("strassen"), 2)
    check(a, b, get("laderman"))


@pytest.mark.parametrize("size", [(0, 4, 4), (4, 0, 4), (4, 4, 0)])
def test_empty_operands(size):
    M, N, K = size
    a, b = integers(M, K, dtype=torch.float32), integers(K, N, dtype=torch.float32)
    check(a, b, get("strassen"))


@pytest.mark.parametrize("divisor", [1, 8, 60, 1000, 10**9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_three_levels_in_any_workspace(dtype, divisor):
    a, b = integers(521, 530, dtype=dtype), integers(530, 517, dtype=dtype, seed=1)
    check(a, b, get("strassen"), 3, workspace=20_000_000 // divisor)


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_blocks_are_read_in_place(dtype, levels):
    side = 2048 * 2**levels
    a, b = integers(side, 4096, dtype=dtype), integers(4096, side, dtype=dtype, seed=1)
    check(a, b, get("strassen"), levels)
    check(a.mT, b.mT.contiguous(), get("winograd"), levels)


def test_no_guard_and_a_poisoned_workspace():
    a = integers(600, 600, dtype=torch.float32)
    poison = torch.full((10_000_000,), float("nan"), device="cuda")
    del poison  # the caching allocator hands this memory out again
    check(a, a, get("strassen"), 2, guarded=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("levels", [1, 3])
def test_alpha_beta_and_a_bias(dtype, levels):
    if levels == 3 and dtype == torch.bfloat16:
        levels = 2
    a, b = (integers(150, 150, dtype=dtype, seed=s, top=1) for s in (0, 1))
    c, bias = integers(150, 150, dtype=dtype, seed=2), integers(150, dtype=dtype, seed=3)
    ab = wide(a) @ wide(b)
    for prior in (c, c.mT, bias, bias[:, None]):
        out = product(a, b, get("strassen"), levels, alpha=2.0, beta=-3.0, c=prior)
        torch.testing.assert_close(out, (2 * ab - 3 * wide(prior)).to(dtype), rtol=0, atol=0)
    kept = c.clone()
    product(a, b, get("strassen"), levels, alpha=2.0, beta=1.0, c=c, out=c)
    torch.testing.assert_close(c, (2 * ab + wide(kept)).to(dtype), rtol=0, atol=0)


def test_out_may_be_an_operand():
    a = integers(150, 150, dtype=torch.float32)
    expected = a @ a
    product(a, a, get("strassen"), out=a)
    torch.testing.assert_close(a, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [((3, 70, 80), (80, 90)), ((3, 70, 80), (3, 80, 90)), ((70, 80), (2, 80, 90)),
     ((2, 1, 70, 80), (3, 80, 90)), ((0, 70, 80), (80, 90))],
)  # fmt: skip
def test_broadcast_batches_are_exact(shape_a, shape_b):
    a = integers(*shape_a, dtype=torch.float32)
    b = integers(*shape_b, dtype=torch.float32, seed=1)
    check(a, b, get("strassen"), 2)
    check(a.mT.contiguous().mT, b, get("strassen"))


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_packed_operand(dtype, levels):
    if levels == 3 and dtype == torch.bfloat16:
        levels = 2
    b = integers(300, 260, dtype=dtype, seed=1)
    packed = pack(b.mT, get("strassen"), levels)
    for M in (1, 64, 333):
        a = integers(M, 260, dtype=dtype, seed=M)
        out = product(a, packed, get("strassen"), levels)
        torch.testing.assert_close(out, (wide(a) @ wide(b.mT)).to(dtype), rtol=0, atol=0)
    assert packed.nbytes > b.nbytes
    b.mul_(2)
    with pytest.raises(ValueError, match="changed in place"):
        product(a, packed, get("strassen"), levels)
