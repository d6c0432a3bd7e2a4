"""``torch.distributed`` programs of 2 and 4 processes (gloo): see ranks.py for the cases."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

CASES = (
    "tensor_parallel",
    "patched_before_it_is_sharded",
    "sequence_parallel",
    "compiled_tensor_parallel",
    "data_parallel",
    "fully_sharded",
    "sharded_in_two_dimensions",
    "products_of_sharded_tensors",
)


@pytest.fixture(scope="module", params=[2, 4])
def outputs(request, tmp_path_factory) -> list[str]:
    """What each rank of a program of so many processes printed."""
    world, folder = request.param, tmp_path_factory.mktemp("ranks")
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(HERE / "ranks.py")]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(world), str(folder)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        )
        for rank in range(world)
    ]  # fmt: skip
    return [rank.communicate(timeout=280)[0] for rank in ranks]


@pytest.mark.parametrize("case", CASES)
def test_every_rank_agrees_with_one_process(case, outputs):
    for rank, output in enumerate(outputs):
        assert f"{case} ok" in output, f"rank {rank}:\n{output}"
