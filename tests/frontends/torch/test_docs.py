"""The code in docs/pytorch.md runs as written, and the examples do."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_code_of_the_guide():
    guide = (ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert len(blocks) >= 4
    exec(compile("\n".join(blocks), "docs/pytorch.md", "exec"), {})


@pytest.mark.parametrize(
    "arguments",
    [
        ["llm_prefill.py", "--tokens", "64", "--layers", "1", "--repeats", "1"],
        ["train_step.py", "--tokens", "64", "--layers", "1", "--repeats", "1"],
        ["train_step.py", "--curve", "2"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_examples(arguments):
    script = ROOT / "examples" / arguments[0]
    run = subprocess.run(
        [sys.executable, str(script), *arguments[1:]],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "torch" in run.stdout
    assert "tiercel" in run.stdout
