"""Every named scheme is exact, has its known rank and accuracy, and is built only on request."""

import subprocess
import sys
from pathlib import Path

import pytest

from tiercel.errors import TiercelValueError
from tiercel.schemes import find, get, load, names, phi, stability_factor

ROOT = Path(__file__).parents[2]

# name: rank, additions, Φ, E. Those of <2,2,2> by hand; the others keep the data from drifting.
KNOWN = {
    "strassen": (7, 18, 32, 12),
    "winograd": (7, 24, 56, 18),
    "accurate": (7, 36, 22.6484375, 13),
    "laderman": (23, 98, 219, 35),
    "sparse-3x3x3": (23, 86, 179, 35),
    "strassen-2x2x3": (11, 20, 36, 12),
    "strassen2": (49, 318, 1024, 144),
    "hopcroft-kerr-2x3x3": (15, 58, 114, 23),
    "hopcroft-kerr-2x3x4": (20, 82, 184, 43),
}


@pytest.mark.parametrize("name", names())
def test_member_multiplies_exactly(name, multiplies):
    scheme = get(name)
    assert multiplies(scheme)
    assert scheme.name == name
    assert scheme.provenance


@pytest.mark.parametrize("name", KNOWN)
def test_member_has_its_known_figures(name):
    scheme = get(name)
    figures = (scheme.rank, scheme.additions, phi(scheme), stability_factor(scheme))
    assert figures == KNOWN[name]


def test_accurate_rounds_nothing_but_sums_and_nears_the_optimum():
    scheme = get("accurate")
    assert scheme.U.is_power_of_two
    assert scheme.V.is_power_of_two
    assert scheme.W.is_power_of_two
    assert 200 / 9 < phi(scheme) < 22.7


def test_entries_tell_grid_and_rank_without_building():
    from tiercel.schemes.catalogue import _entries

    for name, entry in _entries().items():
        assert (entry.grid, entry.rank) == (get(name).grid, get(name).rank)


@pytest.mark.parametrize(
    ("grid", "ranks"),
    [((2, 2, 2), {7}), ((3, 2, 3), {15}), ((4, 3, 2), {20}), ((2, 3, 2), {11}), ((7, 7, 7), set())],
)
def test_find_gives_the_oriented_schemes(grid, ranks):
    found = find(*grid)
    assert {x.rank for x in found} == ranks
    assert all(x.grid == grid for x in found)


def test_get_is_cached():
    assert get("laderman") is get("laderman")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Strasen", r"'Strasen' \(did you mean 'strassen'"),
        ("zzz", "'zzz'; `tiercel schemes` lists"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name, said):
    with pytest.raises(TiercelValueError, match=said):
        get(name)


def test_import_builds_nothing():
    script = (
        "import sys, tiercel.schemes as s; s.names();"
        "assert not [m for m in sys.modules if m.startswith('tiercel.schemes.known')]"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


def test_found_schemes_fit_two_megabytes_and_tell_their_origin():
    files = list((ROOT / "tiercel/schemes/found").glob("*.json"))
    assert 0 < sum(path.stat().st_size for path in files) < 2e6
    for path in files:
        scheme = load(path)
        family, sizes, rank = path.stem.rsplit("-", 2)
        assert family in ("lean", "accurate")
        assert (sizes, int(rank)) == ("x".join(map(str, scheme.grid)), scheme.rank)
        assert "seed" in scheme.provenance
        assert scheme.provenance.startswith("tiercel search ")


def test_found_schemes_come_in_every_order_but_are_listed_once():
    assert get("lean-4x2x3").grid == (4, 2, 3)
    assert "lean-2x3x4" in names()
    assert "lean-4x2x3" not in names()
