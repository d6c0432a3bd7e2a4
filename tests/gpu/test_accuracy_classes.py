"""Predicted error growth, and the accuracy class on unkind data, as a GPU's products keep them."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.gpu.portable import normal, wide
from tests.planner.test_accuracy import KINDS, uniform
from tiercel.frontends.torch.cuda import engine
from tiercel.frontends.torch.engine import Request
from tiercel.options import checked_options
from tiercel.planner import accuracy
from tiercel.planner.gpu.accuracy import growth
from tiercel.planner.gpu.variants import named
from tiercel.schemes import get, names
from tiercel.targets.gpu import product
from tiercel.targets.gpu.recipe import recipe_for

pytestmark = pytest.mark.gpu

Kind = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]

#: Sides of the blocks that a scheme adds. C of 2048 × 2048 and more keeps the vendor from splitting
#: K, which would make its errors, the unit, those of a shorter sum.
SIDE, DEPTH = 1024, 512


def fits(name: str) -> bool:
    """Whether one combination kernel holds the scheme's products."""
    m, k, n = get(name).grid
    return recipe_for([get(name)], m * SIDE, n * SIDE, k * DEPTH, "float32") is not None


def row_errors(c: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """RMS error of each row, in units of the row's largest exact entry."""
    size = exact.abs().amax(1, keepdim=True)
    return ((c.to(exact.dtype) - exact) / size).square().mean(1).sqrt()


@pytest.mark.parametrize("name", list(filter(fits, names())))
def test_growth_is_predicted(name: str):
    scheme = get(name)
    m, k, n = scheme.grid
    a = normal(m * SIDE, k * DEPTH, dtype=torch.float32)
    b = normal(k * DEPTH, n * SIDE, dtype=torch.float32, seed=1)
    exact = wide(a) @ wide(b)
    ours, vendors = ((wide(c) - exact).norm().item() for c in (product(a, b, scheme), a @ b))
    assert 0.3 < ours / vendors / accuracy.growth(scheme, False) < 1.5


@pytest.mark.parametrize(
    "name", ["strassen", "strassen2", "strassen3", "winograd2", "strassen*lean-4x2x4"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_growth_of_levels_is_predicted(name: str, dtype: torch.dtype):
    a, b = normal(2048, 2048, dtype=dtype), normal(2048, 2048, dtype=dtype, seed=1)
    variant = named(name)
    rows = slice(0, 2048, 32)  # of which float64's are summed exactly enough on the host
    wider = np.longdouble if dtype is torch.float64 else np.float64
    exact = a[rows].cpu().numpy().astype(wider) @ b.cpu().numpy().astype(wider)

    def error(c: torch.Tensor) -> float:
        return float(np.linalg.norm((c[rows].cpu().numpy() - exact).astype("f8")))

    ours = product(a, b, variant.schemes)
    ratio = error(ours) / error(a @ b)
    assert 0.3 < ratio / growth(variant, str(dtype).removeprefix("torch.")) < 1.5


@pytest.mark.parametrize("kind", [*KINDS, uniform])
@pytest.mark.parametrize("levels", [1, 2, 3])
def test_no_data_exceed_the_class(kind: Kind, levels: int):
    a, b = (torch.tensor(x.astype("f4"), device="cuda") for x in kind(np.random.default_rng(0)))
    exact = wide(a) @ wide(b)
    ours, vendors = (row_errors(c, exact) for c in (product(a, b, get("strassen"), levels), a @ b))
    limit = accuracy.bound("standard")
    assert ours.square().mean().sqrt() <= limit * vendors.square().mean().sqrt()
    assert (ours <= 1.5 * limit * vendors).all()


@pytest.mark.parametrize("kind", [*KINDS, uniform])
def test_no_data_exceed_the_class_inside_the_kernel(kind: Kind):
    """A packed bfloat16 weight, whose products run inside the Hopper kernel."""
    a, b = kind(np.random.default_rng(0))
    a, b = (torch.tensor(x, device="cuda").bfloat16() for x in (a[:1024, :512], b[:512, :512]))
    options = checked_options(scheme="winograd")
    request = Request(a, b, None, options, engine.pack(b.t(), options))
    plan, out = engine.plan(request), torch.empty_like(a)
    assert plan is not None
    engine.run(plan, request, out)
    exact = wide(a) @ wide(b)
    ours, vendors = (row_errors(c, exact) for c in (out, a @ b))
    judged = exact.abs().amax(1).clamp(max=3e38) > 1e-37  # beyond which bfloat16 ends
    limit = accuracy.bound("standard")
    ours, vendors = ours[judged], vendors[judged]
    assert ours.square().mean().sqrt() <= limit * vendors.square().mean().sqrt()
    assert (ours <= 1.5 * limit * vendors).all()
