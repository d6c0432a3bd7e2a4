"""The crossover map: a plan for every point, drawn with a colour for each algorithm."""

from pathlib import Path

import pytest

from tests.planner.machines import MACHINE
from tiercel.bench import map_picture
from tiercel.planner.choose import make_plan
from tiercel.planner.gpu import GpuMachine, required
from tiercel.planner.gpu import make_plan as make_gpu_plan
from tiercel.planner.machine import Machine
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem


def test_sizes_are_multiples_of_eight():
    found = map_picture.sizes(64, 4000, 9)
    assert all(size % 8 == 0 for size in found)
    assert (found[0], found[-1]) == (64, 4000)


@pytest.mark.parametrize("machine", [MACHINE, required("NVIDIA H200")])
def test_a_map_shows_what_wins_where(tmp_path: Path, machine: Machine | GpuMachine):
    def plan(M: int, n: int) -> Plan:
        problem = Problem(M, n, n, threads=4)
        if isinstance(machine, Machine):
            return make_plan(problem, machine)
        return make_gpu_plan(problem, machine)

    grid = [[plan(M, n) for n in (64, 1024, 3000, 6000)] for M in (64, 700, 4096, 16384)]
    names = map_picture.algorithms(grid)
    assert names[0] == "vendor"
    assert len(names) > 2
    map_picture.write_map(grid, tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 5000
