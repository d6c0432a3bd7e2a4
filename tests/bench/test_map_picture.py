"""The crossover map: a plan for every point, drawn with a colour for each algorithm."""

from pathlib import Path

import pytest

from tests.planner.machines import MACHINE
from tiercel.bench import map_picture
from tiercel.planner.choose import make_plan


def test_sizes_are_multiples_of_eight():
    found = map_picture.sizes(64, 4000, 9)
    assert all(size % 8 == 0 for size in found)
    assert (found[0], found[-1]) == (64, 4000)


def test_a_map_of_a_made_up_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(map_picture, "plan_for", lambda problem: make_plan(problem, MACHINE))
    grid = map_picture.plans([64, 700, 4096], [64, 1024, 3000, 6000], "float32", 4)
    assert [len(row) for row in grid] == [4, 4, 4]
    names = map_picture.algorithms(grid)
    assert names[0] == "vendor"
    assert len(names) > 2
    map_picture.write_map(grid, tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 5000
