"""Schemes fused into the Hopper kernel, judged by exact integers and by the vendor's error."""

import math

import pytest
import torch

from tiercel import schemes
from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.lower.accumulator import accumulate
from tiercel.lower.accumulator.combining import Combining
from tiercel.lower.recipe import Guard
from tiercel.targets.hopper.fused.packed import pack
from tiercel.targets.hopper.fused.product import prepare
from tiercel.targets.hopper.fused.verdict import Judge

pytestmark = pytest.mark.gpu

E4M3 = torch.float8_e4m3fn
SIZES = [(1024, 1024, 512), (2064, 784, 1200)]
WAYS = {
    "before": Combining(),
    "beside": Combining("beside"),
    "beside, heads ahead": Combining("beside", split=2),
    "first turn": Combining("first", 2),
    "first turn, heads ahead": Combining("first", 2, split=1),
    "both": Combining("both", 2, sixteenths=5),
    "both, heads ahead": Combining("both", 2, split=1, sixteenths=12),
}


def program(name: str):
    return accumulate(schemes.get(name))


WINOGRAD = program("winograd")


@pytest.fixture(params=WAYS.values(), ids=list(WAYS))
def combining(request: pytest.FixtureRequest) -> Combining:
    return request.param


def integers(rows: int, columns: int, dtype: torch.dtype, transposed: bool = False):
    shape = (columns, rows) if transposed else (rows, columns)
    values = torch.randint(-1, 2, shape, device="cuda").to(dtype)
    return values.t() if transposed else values


def product(a, b, combining=None, program=WINOGRAD, dynamic=False, judge=None):
    """A·B with every byte of output and workspace poisoned before."""
    dtype = torch.bfloat16 if a.dtype is E4M3 else a.dtype
    out = torch.full((a.shape[0], b.shape[1]), float("nan"), device="cuda", dtype=dtype)
    right = b if dynamic else pack(b, program)
    work = prepare(a, right, out, program=program, combining=combining, judge=judge)
    for memory in work.workspace[:-1]:
        memory.fill_(float("nan"))
    for _ in range(2):  # counters and flag start afresh each time
        work.run(torch.cuda.current_stream().cuda_stream)
    return out, work.workspace.flags[0].item()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("dtype", "a_transposed", "b_transposed"),
    [
        (torch.bfloat16, False, True),
        (torch.bfloat16, True, False),
        (torch.float16, False, True),
        (torch.float16, True, False),
        (torch.float32, False, True),
    ],
)
@pytest.mark.parametrize(("M", "N", "K"), SIZES)
def test_integers_are_exact(M, N, K, dtype, a_transposed, b_transposed, dynamic, combining):
    a, b = integers(M, K, dtype, a_transposed), integers(K, N, dtype, b_transposed)
    out, refused = product(a, b, combining, dynamic=dynamic)
    assert not refused
    assert torch.equal(out, (a.double() @ b.double()).to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "name",
    ["strassen", "accurate", "lean-2x2x3", "hopcroft-kerr-2x3x3", "laderman", "lean-4x4x2"],
)
def test_other_schemes(name: str, dtype: torch.dtype):
    # K is short: sums of the most accurate scheme hold eighths, and float16 keeps 11 bits of them.
    made = program(name)
    M, N, K = 272 * made.m, 520 * made.n, 192 * made.k
    a, b = integers(M, K, dtype), integers(K, N, dtype, True)
    out, refused = product(a, b, program=made)
    assert not refused
    assert torch.equal(out, (a.float() @ b.float()).to(dtype))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("how", [Combining("beside", early=7), Combining("first", 2, early=12)])
def test_planes_of_the_first_products_come_before(how: Combining, dynamic: bool):
    a = integers(2080, 1296, torch.bfloat16)
    b = integers(1296, 2080, torch.bfloat16, True)
    out, refused = product(a, b, how, program("lean-4x2x4"), dynamic)
    assert not refused
    assert torch.equal(out, (a.float() @ b.float()).to(a.dtype))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("how", [Combining(), Combining("first", 2)])
@pytest.mark.parametrize("name", ["winograd", "strassen", "lean-4x2x4"])
def test_float8_of_small_integers_is_exact(name: str, how: Combining, dynamic: bool):
    a, b = integers(1040, 1344, E4M3), integers(1344, 1312, E4M3, True)
    out, refused = product(a, b, how, program(name), dynamic)
    assert not refused
    assert torch.equal(out, (a.float() @ b.float()).bfloat16())


@pytest.mark.parametrize("scale", [1.0, 60.0])  # 448 is the largest number
@pytest.mark.parametrize(("name", "most"), [("accurate", 0.075), ("winograd", 0.105)])
def test_float8_planes_round_to_four_bits(name: str, most: float, scale: float):
    # An emulation predicts 0.068 and 0.096.
    a, b = ((scale * torch.randn(2048, 2048, device="cuda")).to(E4M3) for _ in range(2))
    out, refused = product(a, b.t(), program=program(name))
    wanted = a.double() @ b.t().double()
    assert not refused
    assert (out.double() - wanted).norm() <= most * wanted.norm()


def test_float8_that_is_not_a_number_falls_back():
    a = torch.randn(1024, 512, device="cuda").to(E4M3)
    b = torch.randn(1024, 512, device="cuda").to(E4M3).t()
    a[5, 7] = float("nan")
    out, refused = product(a, b)
    assert refused
    assert out[5].isnan().all()
    assert out[6:].isfinite().all()


@pytest.mark.parametrize("name", ["winograd", "lean-4x2x4", "lean-4x4x2"])
def test_outliers_of_100_times_in_a_hundredth_of_the_data(name: str):
    a, b = (torch.randn(4096, 4096, device="cuda") for _ in range(2))
    for x in (a, b):
        x[torch.rand_like(x) < 0.01] *= 100
    a, b = a.bfloat16(), b.bfloat16()
    reference = a.double() @ b.double()
    out, refused = product(a, b, program=program(name))
    assert not refused
    error, vendors = ((x.double() - reference).norm().item() for x in (out, a @ b))
    assert error <= 1.5 * vendors


@pytest.mark.parametrize("refused", [False, True])
def test_clusters_that_keep_pace_multiply_alike(refused: bool, combining, monkeypatch):
    for least in ("PACED_PRODUCTS", "PACED_K_TILES"):
        monkeypatch.setattr(f"tiercel.targets.hopper.fused.schedule.{least}", 0)
    a, b = integers(4112, 2048, torch.bfloat16), integers(2048, 4112, torch.bfloat16, True)
    judge = Judge(Guard(math.inf, 1e30), (1e30 if refused else 0.0, 0.0))
    out, flag = product(a, b, combining, dynamic=True, judge=judge)
    assert flag == refused
    assert torch.equal(out, a @ b)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("scale_a", "scale_b"), [(1, 1), (30, 1e-3), (0.02, 100)])
def test_error_is_near_the_vendors(dynamic: bool, scale_a: float, scale_b: float, combining):
    a = (scale_a * torch.randn(2048, 4096, device="cuda")).bfloat16()
    b = (scale_b * torch.randn(4096, 1024, device="cuda")).bfloat16()
    reference = a.double() @ b.double()

    def error(x):
        return ((x.double() - reference).norm() / reference.norm()).item()

    out, refused = product(a, b, combining, dynamic=dynamic)
    assert not refused
    assert error(out) <= 1.10 * error(a @ b)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e6])
@pytest.mark.parametrize("operand", ["a", "b"])
def test_what_planes_cannot_hold_falls_back(value: float, operand: str, combining):
    a = torch.randn(1024, 512, device="cuda").bfloat16()
    b = torch.randn(512, 1024, device="cuda").bfloat16()
    (a if operand == "a" else b.t())[5, 7] = value
    (out, refused), vendor = product(a, b, combining, dynamic=operand == "b"), a @ b
    assert refused
    assert torch.equal(out.isfinite(), vendor.isfinite())
    rest, wanted = out[6:, 6:].float(), vendor[6:, 6:].float()
    assert (rest - wanted).norm() <= 5e-3 * wanted.norm()


@pytest.mark.parametrize("transposed", [False, True])
def test_one_segment_of_another_scale_is_found(transposed: bool):
    # The last columns of A and rows of B are in segments, and in items, that are not whole.
    a = torch.randn(2064, 1200, device="cuda").bfloat16()
    b = torch.randn(1200, 784, device="cuda").bfloat16()
    if transposed:
        a, b = a.t().contiguous().t(), b.t().contiguous().t()
    judge = Judge(Guard(64.0, 1e30), (0.0, 0.0))
    for x, at in ((a, (2063, slice(1152, 1200))), (b, (slice(1152, 1200), 783))):
        assert not product(a, b, Combining("beside"), dynamic=True, judge=judge)[1]
        x[at] *= 100
        out, refused = product(a, b, Combining("beside"), dynamic=True, judge=judge)
        assert refused
        assert (out.float() - a.float() @ b.float()).norm() <= 5e-3 * out.float().norm()
        x[at] /= 100


def largest_and_least(x) -> tuple[float, float]:
    """Mean magnitudes of 128 neighbours along the last dimension."""
    means = x.float().abs().unflatten(-1, (-1, 128)).mean(-1)
    return means.max().item(), means.min().item()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_guard_knows_both_operands_scales(dtype: torch.dtype, transposed: bool, combining):
    a = torch.randn(1024, 1024, device="cuda").to(dtype)
    b = torch.randn(1024, 1536, device="cuda").to(dtype)
    if transposed:
        a, b = a.t().contiguous().t(), b.t().contiguous().t()
    ratio = math.prod(most / least for most, least in map(largest_and_least, (a, b.t())))
    for limit, refuses in ((1.01 * ratio, 0), (0.99 * ratio, 1)):
        judge = Judge(Guard(limit, 1e30), (0.0, 0.0))
        out, refused = product(a, b, combining, dynamic=True, judge=judge)
        assert refused == refuses
        assert (out.float() - a.float() @ b.float()).norm() <= 5e-3 * out.float().norm()
    for floors in ((1.0, 0.0), (0.0, 1.0)):
        judge = Judge(Guard(1e30, 1e30), floors)
        assert product(a, b, combining, dynamic=True, judge=judge)[1]


@pytest.mark.parametrize("dynamic", [False, True])
def test_two_levels(dynamic: bool):
    a, b = (torch.randn(*s, device="cuda").bfloat16() for s in ((2048, 4096), (4096, 2048)))
    out, refused = product(a, b, program=program("winograd2"), dynamic=dynamic)
    assert not refused
    reference = a.double() @ b.double()
    error, vendors = ((x.double() - reference).norm() for x in (out, a @ b))
    assert error <= 1.6 * vendors  # as by the interpreter of accumulator programs; 1.28 at 16384³


def test_a_weight_that_changed_is_refused():
    a, b = integers(512, 512, torch.bfloat16), integers(512, 512, torch.bfloat16)
    places = torch.tensor([3, 70], device="cuda")
    judge = Judge(Guard(math.inf, 1e30), (0.0, 0.0), samples=(places, b.flatten()[places]))
    packed, out = pack(b, WINOGRAD), torch.empty_like(a)
    work = prepare(a, packed, out, judge=judge)
    stream = torch.cuda.current_stream().cuda_stream
    for change, refuses in ((0, 0), (2, 1)):
        b[0, 70] += change
        work.run(stream)
        assert work.workspace.flags[0].item() == refuses
        assert torch.equal(out, a @ b)


def test_refusals():
    with pytest.raises(TiercelValueError, match="not finite"):
        pack(torch.full((512, 512), float("inf"), device="cuda").bfloat16(), WINOGRAD)
    with pytest.raises(TiercelValueError, match="does not divide"):
        pack(torch.ones(511, 512, device="cuda").bfloat16(), WINOGRAD)
    a = torch.ones(512, 512, device="cuda").bfloat16()
    with pytest.raises(TiercelTypeError, match="takes both as"):
        prepare(a, a.half(), a, program=WINOGRAD)
    with pytest.raises(TiercelValueError, match="program is missing"):
        prepare(a, a, a)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("combining", list(WAYS.values())[1:], ids=list(WAYS)[1:])
def test_gains_follow_the_data(transposed: bool, combining):
    a = torch.randn(1024, 1024, device="cuda")
    b = torch.randn(1024, 1536, device="cuda")
    if transposed:
        a, b = a.t().contiguous().t(), b.t().contiguous().t()
    gains, out = torch.ones(2, device="cuda"), torch.empty(1024, 1536, device="cuda").bfloat16()
    judge = Judge(Guard(64.0, 1e30), (2.0**-13, 2.0**-13))
    stream = torch.cuda.current_stream().cuda_stream
    # Scale of A, whether it is refused, and about the gain that is left.
    steps = [(1, 0, 1), (1e-6, 2, 2**20), (1e-6, 0, 2**20), (4e-8, 0, 2**25), (1, 1, 2**11)]
    # Where they measure as well, idle warps refuse sums of magnitudes from 2**15 on.
    again = [] if transposed else [(1, 1, 2**-3)]
    for scale, refused, gain in (*steps, *again, (1, 0, 1)):
        left, right = (scale * a).bfloat16(), (b / scale).bfloat16() if scale == 1 else b.bfloat16()
        work = prepare(
            left, right, out, program=WINOGRAD, combining=combining, judge=judge, gains=gains
        )
        work.run(stream)
        assert work.workspace.flags[0].item() == refused
        assert gains[0].item() / gain in (0.5, 1, 2)
        reference = left.double() @ right.double()
        error, vendors = (
            ((x.double() - reference).norm() / reference.norm()).item() for x in (out, left @ right)
        )
        assert error <= 1.10 * vendors
