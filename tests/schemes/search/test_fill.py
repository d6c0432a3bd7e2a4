"""Filling a folder with schemes, as the catalogue was made."""

from pathlib import Path

import pytest

from tiercel.schemes import load, phi
from tiercel.schemes.search.fill import fill


@pytest.mark.slow
def test_fill_files_both_families_and_continues(tmp_path: Path):
    output, state = tmp_path / "found", tmp_path / "state"
    fill(8, 1, output, state, grids=((2, 2, 2),))
    assert {path.name for path in output.iterdir()} == {
        "accurate-2x2x2-7.json",
        "lean-2x2x2-7.json",
    }
    before = phi(load(output / "accurate-2x2x2-7.json"))
    fill(8, 1, output, state, grids=((2, 2, 2),))
    assert phi(load(output / "accurate-2x2x2-7.json")) <= before
