"""Kernels whose thread blocks wait for each other, while others want the same multiprocessors."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

SECONDS = 150  # a few are enough, but for compiling: a hang is a failure, and ends


@pytest.mark.timeout(SECONDS + 20)
@pytest.mark.parametrize("scenario", ["two", "four", "graphs", "held", "green"])
def test_products_end_as_they_do_alone(scenario: str):
    script = Path(__file__).with_name("streams.py")
    command = [sys.executable, str(script), scenario]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert run.returncode == 0, run.stderr[-3000:]
