"""``tiercel tune``, ``regret`` and ``map``: what is measured, kept, shared and drawn."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tiercel import runtime
from tiercel.bench import candidates
from tiercel.cli import main
from tiercel.planner import winners

pytestmark = pytest.mark.usefixtures("own_cache")

SHAPES = ["--shapes", "200x210x220,208", "--dtype", "f32", "--threads", "1", "--seconds", "0.01"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="tiercel")


def test_products_are_measured_once_and_then_used(monkeypatch: pytest.MonkeyPatch):
    measured = []
    real = candidates.measure
    monkeypatch.setattr(
        candidates, "measure", lambda plan, *a, **k: measured.append(plan) or real(plan, *a, **k)
    )
    first = run("tune", *SHAPES, "--regret")
    assert first.exit_code == 0, first.output
    assert "2 products: regret mean" in first.output
    assert len(measured) == 2
    assert run("tune", *SHAPES).exit_code == 0
    assert len(measured) == 2
    assert run("tune", *SHAPES, "--again").exit_code == 0
    assert len(measured) == 4
    known = winners.known(runtime.machine(("float32",)).fingerprint)
    assert {(m.M, m.N, m.K) for m in known.values()} == {(200, 210, 220), (208, 208, 208)}


def test_measurements_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file, other = tmp_path / "tuned.json", tmp_path / "cache"
    result = run("tune", *SHAPES, "--export", str(file))
    assert result.exit_code == 0, result.output
    assert "1 profiles, 2 products" in result.output
    monkeypatch.setenv("TIERCEL_CACHE_DIR", str(other))
    runtime.forget()
    result = run("tune", "--import", str(file))
    assert "1 profiles, 2 products" in result.output
    assert len(winners.known(runtime.fingerprint("float32"))) == 2

    plot = tmp_path / "scatter.svg"
    result = run("regret", str(file), "--plot", str(plot))
    assert result.exit_code == 0, result.output
    assert "2 products: regret mean" in result.output
    assert plot.exists()


def test_a_file_without_products_has_no_regret(tmp_path: Path):
    file = tmp_path / "profile.json"
    assert run("tune", "--export", str(file), "--dtype", "f32").exit_code == 0
    result = run("regret", str(file))
    assert result.exit_code == 1
    assert "holds no measured product" in result.output


def test_the_machine_is_measured_and_printed():
    result = run("tune", "--dtype", "f32")
    assert result.exit_code == 0, result.output
    assert "float32: peak" in result.output


def test_a_file_of_another_machine_is_refused(tmp_path: Path):
    file = tmp_path / "tuned.json"
    run("tune", *SHAPES, "--export", str(file))
    data = json.loads(file.read_text())
    data["profiles"][0]["fingerprint"] = "elsewhere"
    file.write_text(json.dumps(data))
    result = run("tune", "--import", str(file))
    assert result.exit_code == 1
    assert "run `tiercel tune` here" in result.output


def test_map_draws_a_picture(tmp_path: Path):
    path = tmp_path / "map.png"
    arguments = ["--least", "64", "--most", "512", "--steps", "4", "--dtype", "f64"]
    result = run("map", *arguments, "-o", str(path))
    assert result.exit_code == 0, result.output
    assert path.stat().st_size > 5000


def test_a_limit_ends_the_measuring():
    result = run("tune", *SHAPES, "--limit", "0")
    assert result.exit_code == 0
    assert len(winners.known(runtime.fingerprint("float32"))) <= 1


def test_map_of_a_gpu(tmp_path: Path):
    path = tmp_path / "map.png"
    facts = ["--device", "NVIDIA H200", "--dtype", "bf16", "--static-b"]
    result = run(
        "map", *facts, "--least", "512", "--most", "16384", "--steps", "4", "-o", str(path)
    )
    assert result.exit_code == 0, result.output
    assert path.stat().st_size > 5000
