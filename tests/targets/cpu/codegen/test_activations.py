"""Activations through the write-back kernel, against the C library and 20-digit values."""

import math
import re
from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np
import pytest

from tests.targets.cpu.recipes import SMALL, recipe
from tiercel.targets.cpu.compile import ir_text
from tiercel.targets.cpu.isa import from_features
from tiercel.targets.cpu.kernel import execute

DTYPES = ("float32", "float64")
TWO_U = 2 * math.sqrt(2 / math.pi)


def logistic(z: float) -> float:
    e = math.exp(-abs(z))
    return (1 if z >= 0 else e) / (1 + e)


SMOOTH = {
    "gelu": lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2)),
    "gelu_tanh": lambda x: x * logistic(TWO_U * (x + 0.044715 * x**3)),
    "silu": lambda x: x * logistic(x),
}
REFERENCES = {"relu": lambda x: max(x, 0.0)} | SMOOTH

# Made with mpmath at 40 digits from the definitions: (x, value).
EXACT = {
    "gelu": (
        (2.5, 2.4844758366855596621), (0.5, 0.34573123063700655182),
        (-0.5, -0.15426876936299344818), (-3, -4.0496940948902835799e-3),
        (-8, -4.9767684594174272988e-15), (-12, -2.1317785344932147972e-32),
        (-37, -2.1184613523340934244e-298),
    ),
    "gelu_tanh": (
        (2.5, 2.4849157339100014179), (0.5, 0.34571400982514392204),
        (-0.5, -0.15428599017485607796), (-3, -3.6373920817730188378e-3),
        (-8, -3.107782937501111218e-21), (-9.5, -6.6789287667838819994e-33),
        (-21, -6.0166484876314846742e-301),
    ),
    "silu": (
        (2.5, 2.310354549946891122), (0.5, 0.31122966560092728232),
        (-0.5, -0.18877033439907271768), (-3, -0.14227761953270034264),
        (-30, -2.8072868906517896862e-12), (-85, -1.0336844043649017298e-35),
        (-700, -6.9017735806318395997e-302),
    ),
}  # fmt: skip


def reference(name: str, x: np.ndarray) -> np.ndarray:
    """The activation in float64, element by element."""
    return np.vectorize(REFERENCES[name], otypes=[np.float64])(x.astype(np.float64))


def compute(name, a, b, bias=None, target=SMALL, scheme=None):
    """name(a · b + bias) by the kernels."""
    (M, K), N = a.shape, b.shape[1]
    made = recipe(M, N, K, scheme, a.dtype.name, target=target)
    c = np.full((M, N), 7, a.dtype)
    assert execute(replace(made, activation=name), a, b, c, bias)
    return c


def apply(name: str, x: np.ndarray) -> np.ndarray:
    """name(x) of a vector: a product with one row of ones, whose length no tile divides."""
    c = compute(name, x[:, None], np.ones((1, 37), x.dtype))
    np.testing.assert_array_equal(c, np.broadcast_to(c[:, :1], c.shape))
    return c[:, 0]


def eighths(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Multiples of 1/8 whose products and sums are exact."""
    return (rng.integers(-8, 9, shape) / 8).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REFERENCES)
def test_absolute_error(name: str, dtype: str):
    x = np.concatenate([np.linspace(-25, 25, 5003), np.linspace(-2, 2, 2003)]).astype(dtype)
    expected = reference(name, x)
    error = np.abs(apply(name, x) - expected) / np.maximum(1, np.abs(expected))
    assert error.max() <= (1.5e-7 if dtype == "float32" else 1e-15)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SMOOTH)
def test_relative_error_around_zero(name: str, dtype: str):
    x = np.concatenate([np.linspace(-4, 4, 2003), np.logspace(-30, 0, 200)]).astype(dtype)
    x = np.concatenate([x, -x])
    rtol = 4.5e-7 if dtype == "float32" else 4e-15
    np.testing.assert_allclose(apply(name, x), reference(name, x), rtol=rtol, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXACT)
def test_relative_error_far_into_the_negative_tail(name: str, dtype: str):
    smallest = np.finfo(dtype).smallest_normal
    pairs = [(x, y) for x, y in EXACT[name] if abs(y) > smallest]
    x, y = np.array(pairs).T
    rtol = 4.5e-7 if dtype == "float32" else 1e-15
    np.testing.assert_allclose(apply(name, x.astype(dtype)), y, rtol=rtol, atol=0)


@pytest.mark.parametrize("name", SMOOTH)
def test_subnormal_results_lose_only_their_last_bits(name: str):
    step = float(np.finfo("float32").smallest_subnormal)
    x = np.linspace(-106, -8, 5003).astype("float32")
    expected = reference(name, x)
    tiny = np.abs(expected) < np.finfo("float32").smallest_normal
    assert tiny.any()
    assert np.abs(apply(name, x) - expected)[tiny].max() <= 4 * step


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REFERENCES)
def test_ends_of_the_range(name: str, dtype: str):
    largest = np.finfo(dtype).max
    up = np.array([1e3, 1e30, 3e38, largest, np.inf], dtype)
    np.testing.assert_array_equal(apply(name, up), up)
    np.testing.assert_array_equal(apply(name, -up), np.zeros_like(up))
    np.testing.assert_array_equal(apply(name, np.array([0, -0.0], dtype)), [0, 0])
    assert np.isnan(apply(name, np.array([np.nan, -np.nan], dtype))).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REFERENCES)
def test_any_bit_pattern(name: str, dtype: str):
    """NaN exactly where the operand is, otherwise between 0 and the operand."""
    bits = np.random.default_rng(0).integers(0, 256, 20_000 * np.dtype(dtype).itemsize, np.uint8)
    x = bits.view(dtype)
    y = apply(name, x)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x))
    up, down = x > 0, x < 0
    assert ((y >= 0) & (y <= x))[up].all()
    assert ((y <= 0) & (y >= x))[down].all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (13, 35, 5), (30, 64, 40)])
def test_bias_comes_before_the_activation(name: str, dtype: str, shape: tuple[int, int, int]):
    M, N, K = shape
    rng = np.random.default_rng(0)
    a, b, bias = (eighths(rng, s, dtype) for s in ((M, K), (K, N), (N,)))
    expected = reference(name, a.astype("f8") @ b.astype("f8") + bias)
    rtol, atol = (4.5e-7, 1e-7) if dtype == "float32" else (4e-15, 1e-15)
    np.testing.assert_allclose(compute(name, a, b, bias), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("scheme", [None, "strassen"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REFERENCES)
def test_passes_over_k_apply_bias_and_activation_once(name: str, dtype: str, scheme: str | None):
    rng = np.random.default_rng(0)
    a, b, bias = (eighths(rng, s, dtype) for s in ((30, 100), (100, 45), (45,)))
    once = compute(name, a, b, bias, scheme=scheme)
    in_passes = compute(name, a, b, bias, replace(SMALL, k_span=32), scheme)
    np.testing.assert_array_equal(in_passes, once)


FEATURES = {
    "avx2": ("x86_64-unknown-linux-gnu", "haswell", "avx2 fma f16c"),
    "avx512": (
        "x86_64-unknown-linux-gnu", "skylake-avx512",
        "avx2 fma f16c avx512f avx512vl avx512dq avx512bw",
    ),
    "neon": ("aarch64-unknown-linux-gnu", "neoverse-n1", "neon"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("isa", FEATURES)
def test_machine_code_calls_nothing(isa: str, name: str, dtype: str):
    """A function that a vector unit lacks would appear as a call of the C library per lane."""
    triple, cpu, features = FEATURES[isa]
    target = from_features(triple, cpu, dict.fromkeys(features.split(), True), {})
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=target.features, opt=3
    )
    module = llvm.parse_assembly(ir_text(target, "store", dtype, dtype, name))
    assembly = machine.emit_assembly(module)
    assert "store_tile:" in assembly
    assert not re.search(r"^\s+(call\w*|blr?|jmp\s+\*)\s", assembly, re.MULTILINE)
