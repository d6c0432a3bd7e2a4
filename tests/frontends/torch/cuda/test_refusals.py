"""Products whose data the guard has refused rest for a while, and the host never waits."""

import pytest
import torch

from tiercel.frontends.torch.cuda import refusals
from tiercel.frontends.torch.cuda.refusals import MOST_REST, REST, WATCHED, Refusals, of_site

FINE, REFUSED = torch.tensor([0]), torch.tensor([1])


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch):
    monkeypatch.setattr(refusals, "capturing", lambda: False)
    monkeypatch.setattr(
        torch, "zeros", lambda size, pin_memory=False, **kw: torch.full(size, 0, **kw)
    )


def tell(site: Refusals, flag: torch.Tensor) -> None:
    """One product that runs, the device's verdict being ``flag``."""
    if site.due():
        site.tell(lambda heard: bool(heard.item()), flag)


def rested(site: Refusals) -> int:
    """Calls until the next one that may run."""
    count = 0
    while not site.allows():
        count += 1
    return count


def test_a_refusal_is_followed_by_rest():
    site = Refusals()
    assert site.allows()
    tell(site, FINE)
    assert rested(site) == 0
    for _ in range(WATCHED - 1):
        tell(site, REFUSED)  # not watched
    assert not site.resting()
    tell(site, REFUSED)
    assert site.resting()
    assert rested(site) == REST
    assert site.allows()


def test_each_further_refusal_doubles_the_rest_until_products_are_fine():
    site, found = Refusals(), []
    for _ in range(12):
        tell(site, REFUSED)
        found.append(rested(site))
    assert found[:3] == [REST, 2 * REST, 4 * REST]
    assert found[-1] == MOST_REST
    for _ in range(2 * WATCHED + 1):
        tell(site, FINE)
    for _ in range(WATCHED):
        tell(site, REFUSED)
    assert rested(site) == REST


def test_nothing_is_heard_from_a_captured_graph_or_with_deterministic_algorithms(monkeypatch):
    site = Refusals()
    monkeypatch.setattr(refusals, "capturing", lambda: True)
    tell(site, REFUSED)
    assert site.allows()
    monkeypatch.setattr(refusals, "capturing", lambda: False)
    site = Refusals()
    tell(site, REFUSED)
    torch.use_deterministic_algorithms(True)
    try:
        assert site.allows()
    finally:
        torch.use_deterministic_algorithms(False)
    assert not site.allows()


def test_sites_are_found_again_and_bounded(monkeypatch):
    monkeypatch.setattr(refusals, "_sites", {})
    monkeypatch.setattr(refusals, "MOST_SITES", 2)
    first = of_site("a")
    assert of_site("a") is first
    of_site("b")
    of_site("c")
    assert of_site("a") is not first
