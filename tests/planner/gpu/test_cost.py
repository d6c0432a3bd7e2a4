"""Predicted times: near what was measured on an H200, and reacting to what matters."""

from dataclasses import replace

import pytest

from tests.planner.gpu.h200 import H200
from tiercel.planner.gpu import cost, memory
from tiercel.planner.gpu.tiles import busy, share, used, vendors
from tiercel.planner.gpu.variants import named
from tiercel.planner.problem import Problem

#: dtype, side, scheme, milliseconds of the vendor's and of ours, in steady operation.
SQUARES = [
    ("float32", 4096, "strassen2", 2.674, 2.286), ("float32", 8192, "strassen3", 21.545, 16.683),
    ("float32", 16384, "strassen3", 167.232, 122.707), ("float64", 4096, "strassen2", 2.633, 2.515),
    ("float64", 8192, "strassen2", 20.098, 17.281), ("float64", 16384, "strassen3", 167.6, 132.110),
    ("complex64", 2048, "strassen", 1.288, 1.145), ("complex64", 4096, "strassen", 10.248, 7.552),
    ("complex64", 8192, "strassen2", 82.878, 54.988), ("complex128", 2048, "strassen", 1.26, 1.141),
    ("complex128", 8192, "strassen2", 92.097, 56.977),
]  # fmt: skip

#: Scheme, (M, N, K), its kernel's rate over the vendor's: bfloat16, B packed, sustained.
FUSED = [
    ("winograd", (8192, 8192, 8192), 1.09), ("winograd", (16384, 16384, 16384), 1.08),
    ("winograd", (8192, 28672, 8192), 1.09), ("winograd", (8192, 8192, 28672), 1.10),
    ("lean-4x2x4", (8192, 8192, 8192), 1.078), ("lean-4x2x4", (16384, 16384, 16384), 1.107),
    ("lean-4x2x4", (8192, 8192, 28672), 1.107), ("lean-4x2x4", (16384, 53248, 16384), 1.121),
    ("lean-4x2x4", (8192, 28672, 8192), 1.016), ("lean-4x4x2", (8192, 8192, 8192), 1.049),
    ("lean-4x4x2", (16384, 16384, 16384), 1.091),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "n", "name", "vendor", "ours"), SQUARES)
def test_portable_times_are_within_eight_percent(dtype, n, name, vendor, ours):
    problem = Problem(n, n, n, dtype)
    cap = memory.workspace_cap(problem, H200.memory)
    ways = memory.splits(problem, named(name))
    way = next(way for way in ways if memory.portable_bytes(problem, way) <= cap)
    assert cost.vendor_seconds(problem, H200) * 1e3 == pytest.approx(vendor, rel=0.04)
    assert cost.portable_seconds(problem, H200, way) * 1e3 == pytest.approx(ours, rel=0.08)


@pytest.mark.parametrize(("name", "shape", "rate"), FUSED)
def test_fused_times_are_those_of_the_kernel(name, shape, rate):
    M, N, K = shape
    problem = Problem(M, N, K, "bfloat16", layout_b="col", static_b=True)
    ours = cost.fused_seconds(problem, H200, name)
    assert cost.vendor_seconds(problem, H200) / ours == pytest.approx(rate, rel=0.05)


def test_a_static_operand_saves_its_sums():
    problem, way = Problem(8192, 8192, 8192), named("strassen2")
    static = cost.portable_seconds(replace(problem, static_b=True), H200, way)
    saved = cost.portable_seconds(problem, H200, way) - static
    bytes_of_sums = 8192**2 * 4 * (1 + 49 / 16)
    assert saved == pytest.approx(bytes_of_sums / H200.combine / 1e9, rel=0.02)


def test_an_epilogue_costs_a_pass_except_inside_the_own_kernel():
    plain = Problem(8192, 8192, 8192, "bfloat16")
    with_gelu = replace(plain, epilogue="gelu")
    a_pass = 2 * 8192**2 * 2 / H200.copy / 1e9
    for seconds in (
        cost.vendor_seconds,
        lambda p, m: cost.portable_seconds(p, m, named("strassen")),
    ):
        assert seconds(with_gelu, H200) - seconds(plain, H200) == pytest.approx(a_pass)
    assert cost.plain_seconds(with_gelu, H200) == cost.plain_seconds(plain, H200)


def test_small_products_cost_pythons_time():
    tiny = cost.portable_seconds(Problem(256, 256, 256), H200, named("strassen"))
    assert tiny == pytest.approx(7 * H200.host * 1e-6, rel=0.05)


def test_tiles_in_waves():
    assert share(256, 256, 1, 4, 128, 128) == 1.0
    assert share(257, 256, 1, 4, 128, 128) == pytest.approx(257 / 512)
    assert used(16384, 16384, 7, 132, "bfloat16") > 0.96
    assert busy(16384, 16384, 1, 132) > 0.96 > 0.83 > busy(1536, 3072, 1, 132)
    assert used(8192, 8192, 7, 132, "float32") > used(300, 300, 7, 132, "float32")


def test_the_vendor_takes_the_16_bit_tile_whose_waves_take_least():
    # Names of cuBLAS's kernels: 192 × 192, 128 × 176 (14.85 waves) and 128 × 192 (1.55 waves).
    assert vendors(16384, 16384, 132)[0] == pytest.approx(16384**2 / (192**2 * 132 * 57))
    assert vendors(3584, 12288, 132)[0] == pytest.approx(3584 * 12288 / (128 * 176 * 132 * 15))
    assert vendors(8704, 576, 132)[0] == pytest.approx(8704 * 576 / (128 * 192 * 132 * 2))


def test_power_hides_some_of_the_last_wave_of_the_vendors_16_bit_products():
    share_busy, hides = vendors(8704, 576, 132)
    assert share_busy < used(8704, 576, 1, 132, "bfloat16") < 1.0
    assert not hides
    assert used(64, 64, 1, 132, "bfloat16") == pytest.approx(1 / 132)


def test_the_own_kernel_gains_where_k_is_short_and_tiles_fill_the_gpu():
    def gain(M: int, N: int, K: int) -> float:
        problem = Problem(M, N, K, "bfloat16")
        return cost.vendor_seconds(problem, H200) / cost.plain_seconds(problem, H200)

    assert gain(16384, 32768, 512) > 1.1 > gain(16384, 8192, 4096)
    assert gain(1536, 3072, 12288) < 1.0


def test_float32_tiles_are_large_as_soon_as_there_are_waves_of_them():
    assert used(1536, 12288, 1, 132, "float32") == pytest.approx(576 / 132 / 5)
    assert used(1536, 12288, 1, 132, "float64") > 0.95


def test_a_short_k_costs_a_tile_s_start_and_end():
    rates = H200.rates["float32"]
    assert rates.ramp > 0
    flat = replace(H200, rates={**H200.rates, "float32": replace(rates, ramp=0.0)})
    short, long = Problem(16384, 16384, 512), Problem(16384, 16384, 16384)
    lost = [cost.vendor_seconds(p, H200) / cost.vendor_seconds(p, flat) for p in (short, long)]
    assert lost[0] > 1.05 > lost[1]


def test_gradients_of_weights_are_priced_as_other_products():
    # Over cuBLAS, A by columns and B by rows: 1.024 in the mean over six products with K = 8192.
    problem = Problem(14336, 4096, 8192, "bfloat16", "col", "row")
    gain = cost.vendor_seconds(problem, H200) / cost.plain_seconds(problem, H200)
    assert 1.01 < gain < 1.04
