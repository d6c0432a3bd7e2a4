"""Every kind of kernel compiles for NVIDIA and AMD GPUs, on a machine without one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_kernels_compile_and_move_16_bytes_at_a_time(target: str, tmp_path: Path):
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.targets.gpu.ahead", target]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(lines) == 32
    for name, dtype, width in lines:
        if name != "classical" and dtype in ("fp32", "fp64"):
            assert int(width) == 16, (name, dtype, width)
