"""``tiercel tune``, ``regret`` and ``map``: what is measured, kept, shared and drawn."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tiercel import runtime
from tiercel.bench import candidates
from tiercel.bench.model_layers import model_cases
from tiercel.cli import main
from tiercel.planner import winners
from tiercel.planner.machine import keep

SHAPES = ["--shapes", "200x210x220,208", "--dtype", "f32", "--threads", "1", "--seconds", "0.01"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), prog_name="tiercel")


@pytest.fixture(autouse=True)
def own_cache(empty_cache: Path, monkeypatch: pytest.MonkeyPatch):
    """A cache that holds profiles of this machine and no measured product."""
    monkeypatch.undo()
    profile = [runtime.machine((dtype,)) for dtype in runtime.DTYPES]
    monkeypatch.setenv("TIERCEL_CACHE_DIR", str(empty_cache))
    for machine in profile:
        keep(machine)
    runtime.forget()
    yield
    monkeypatch.undo()
    runtime.forget()


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


def test_map(tmp_path: Path):
    path = tmp_path / "map.png"
    arguments = ["--least", "64", "--most", "512", "--steps", "4", "--dtype", "f64"]
    result = run("map", *arguments, "-o", str(path))
    assert result.exit_code == 0, result.output
    assert path.stat().st_size > 5000


def two_layers():
    """A model for ``--model``."""
    from torch import nn

    return nn.Sequential(nn.Linear(192, 200), nn.ReLU(), nn.Linear(200, 208), nn.Linear(192, 200))


def test_a_model_s_layers_are_measured():
    options = ["--rows", "64", "--rows", "96", "--threads", "1", "--seconds", "0.01"]
    result = run("tune", "--model", f"{__name__}:two_layers", *options)
    assert result.exit_code == 0, result.output
    known = winners.known(runtime.machine(("float32",)).fingerprint).values()
    assert {(m.M, m.N, m.K, m.layout_b) for m in known} == {
        (M, N, K, "col") for M in (64, 96) for N, K in ((200, 192), (208, 200))
    }


def test_a_config_of_transformers_is_a_model(tmp_path: Path):
    config = tmp_path / "config.json"
    sizes = {"hidden_size": 64, "intermediate_size": 160, "vocab_size": 96}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    facts = {"model_type": "llama", **sizes, **heads}
    config.write_text(json.dumps(facts))
    cases = model_cases(str(config), [256])
    assert {(c.n, c.k) for c in cases} == {(64, 64), (32, 64), (160, 64), (64, 160), (96, 64)}


@pytest.mark.parametrize("text", ["no.such.module:model", "json:nothing", "missing.json"])
def test_other_models_are_refused(text: str):
    result = run("tune", "--model", text)
    assert result.exit_code == 1
    assert "write MODULE:FUNCTION" in result.output


def test_what_makes_no_model_is_refused():
    result = run("tune", "--model", "os:getcwd")
    assert "os:getcwd made a str" in result.output


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
