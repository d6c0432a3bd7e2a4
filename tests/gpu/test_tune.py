"""``tiercel tune`` and ``explain --measure`` on a GPU: measured, kept, taken over and used."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from tiercel.bench import gpu_candidates
from tiercel.cli import main
from tiercel.frontends.torch.cuda import engine
from tiercel.frontends.torch.engine import Request
from tiercel.options import DEFAULT
from tiercel.planner import winners
from tiercel.planner.problem import Problem
from tiercel.planner.winners import Measured

pytestmark = pytest.mark.gpu


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TIERCEL_CACHE_DIR", str(tmp_path / "cache"))
    winners.forget()
    engine._plan.cache_clear()
    yield
    winners.forget()
    engine._plan.cache_clear()


def test_candidates_are_measured_and_kept(tmp_path: Path):
    file = tmp_path / "gpu.json"
    shapes = ["--shapes", "3072,1024x4096x2048", "--dtype", "fp32", "--seconds", "0.05"]
    found = run("tune", "--device", "cuda", *shapes, "--regret", "--export", str(file))
    assert "2 products: regret mean" in found.output
    fingerprint = gpu_candidates.machine("float32").fingerprint
    known = {(m.M, m.N, m.K): m for m in winners.known(fingerprint).values()}
    large = known[3072, 3072, 3072]
    assert {"vendor", "strassen"} <= large.seconds.keys()
    # Others may use the GPU at the same time: times are long then, but never too short.
    assert all(0.01 < large.predicted[x] / t < 2 for x, t in large.seconds.items())
    assert "NVIDIA" in run("regret", str(file)).output
    assert "1 profiles, 2 products" in run("tune", "--import", str(file)).output


def test_packed_weights_are_measured_in_every_kernel_that_has_them():
    problem = Problem(4096, 4096, 4096, "bfloat16", layout_b="col", static_b=True)
    plan = gpu_candidates.predicted_plan(problem)
    allowed = [c for c in plan.candidates if not c.rejected]
    times = gpu_candidates.measure(plan, allowed, seconds=0.02)
    assert times.keys() == {c.algorithm for c in allowed}


def test_measured_times_outrank_predictions():
    a, b = torch.empty(2, 4096, 4096, device="cuda")
    request = Request(a, b, None, DEFAULT)
    plan = engine.plan(request)
    assert plan is not None
    assert plan.chosen.algorithm != "vendor"
    seconds = {plan.chosen.algorithm: 2.0, "vendor": 1.0}
    slow = Measured(4096, 4096, 4096, "float32", "row", "row", False, 1,
                    plan.chosen.algorithm, seconds, seconds, {})  # fmt: skip
    winners.add(plan.machine.fingerprint, [slow])
    engine._plan.cache_clear()
    assert engine.plan(request) is None


def test_explain_measures_the_gpu():
    found = run("explain", "2048", "2048", "2048", "--device", "cuda", "--measure", "--json",
                "--seconds", "0.05")  # fmt: skip
    rows = {c["algorithm"]: c for c in json.loads(found.output)["candidates"]}
    assert rows["vendor"]["measured_ms"] > 0
