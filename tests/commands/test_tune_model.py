"""``tiercel tune --model``: the products of a PyTorch model's linear layers."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from torch import nn

from tiercel import runtime
from tiercel.bench.model_layers import model_cases
from tiercel.cli import main
from tiercel.planner import winners

pytestmark = pytest.mark.usefixtures("own_cache")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tune", *arguments], prog_name="tiercel")


def two_layers():
    """A model for ``--model``."""
    return nn.Sequential(nn.Linear(192, 200), nn.ReLU(), nn.Linear(200, 208), nn.Linear(192, 200))


def test_a_model_s_layers_are_measured():
    options = ["--rows", "64", "--rows", "96", "--threads", "1", "--seconds", "0.01"]
    result = run("--model", f"{__name__}:two_layers", *options)
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
    result = run("--model", text)
    assert result.exit_code == 1
    assert "write MODULE:FUNCTION" in result.output


def test_what_makes_no_model_is_refused():
    result = run("--model", "os:getcwd")
    assert "os:getcwd made a str" in result.output
