"""The second stage keeps rank and exactness and never makes the objective worse."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel.errors import TiercelValueError
from tiercel.schemes import change_basis, get, phi, rational, scale_products
from tiercel.schemes.search.objectives import OBJECTIVES, objective, traffic
from tiercel.schemes.search.polish import Polish, minimise, polish

NAMES = ("strassen", "winograd", "accurate", "laderman", "hopcroft-kerr-2x3x3")


@settings(deadline=None, max_examples=25)
@given(
    name=st.sampled_from(NAMES),
    aim=st.sampled_from(sorted(OBJECTIVES)),
    seed=st.integers(1, 2**62),
)
def test_annealing_is_exact_and_never_worse(name, aim, seed):
    scheme = get(name)
    found = minimise(scheme, objective(aim), seed, steps=3000)  # verified when built
    assert found.rank == scheme.rank
    assert objective(aim).value(found) <= objective(aim).value(scheme)


def test_accuracy_finds_the_accurate_basis_of_strassen():
    found = minimise(get("winograd"), objective("accuracy"), seed=1, steps=1_000_000)
    assert phi(found) == phi(get("accurate"))
    assert all(x.is_power_of_two for x in (found.U, found.V, found.W))


def test_nonzeros_leads_from_winograd_to_strassen():
    found = minimise(get("winograd"), objective("nonzeros"), seed=1, steps=200_000)
    assert sum(found.nonzeros) == sum(get("strassen").nonzeros)


def test_polish_wanders_and_anneals():
    done = polish(Polish(get("sparse-3x3x3"), "traffic", True, seed=3))
    assert done.wandered.rank == done.scheme.rank == 23
    assert done.wandered != get("sparse-3x3x3")
    assert traffic(done.scheme) <= traffic(done.wandered)


def test_thirds_are_left_alone():
    thirds = scale_products(get("strassen"), ["1/3"] * 7, [1] * 7)
    assert minimise(thirds, objective("accuracy"), seed=1) is thirds


def test_objectives_are_independent_of_product_scales_or_say_so():
    scaled = scale_products(get("strassen"), [2] * 7, ["1/4"] * 7)
    assert objective("accuracy").value(scaled) == objective("accuracy").value(get("strassen"))
    turned = change_basis(
        get("strassen"), rational([[0, 1], [1, 0]]), *[rational([[1, 0], [0, 1]])] * 2
    )
    assert traffic(turned) == traffic(get("strassen"))


def test_unknown_objective_lists_the_known():
    with pytest.raises(TiercelValueError, match="accuracy, worst-case"):
        objective("speed")
