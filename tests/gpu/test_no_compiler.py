"""Triton without what it needs: a C compiler, and a folder to write to."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu

PROGRAM = """
import warnings, torch, tiercel
a, b = (torch.randint(-2, 3, (8192, 8192), device="cuda").float() for _ in range(2))
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("always")
    for _ in range(3):
        assert torch.equal(tiercel.matmul(a, b), a @ b)
    model = torch.nn.Linear(8192, 8192, bias=False, device="cuda").requires_grad_(False)
    model.weight.copy_(b)
    tiercel.patch(model, pack_weights=True)
    for _ in range(3):
        assert torch.equal(model(a), a @ b.t())
    x, y = a.bfloat16(), b.bfloat16()
    for _ in range(3):
        assert torch.equal(tiercel.matmul(x, y), x @ y)
assert sum("Triton builds no kernels" in str(each.message) for each in heard) == 1, heard
try:
    tiercel.matmul(a, b, scheme="strassen")
except tiercel.TiercelRuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize("lacking", ["compiler", "folder"])
def test_torch_multiplies_where_triton_builds_nothing(lacking: str, tmp_path):
    lacks = {
        "compiler": {"CC": "/bin/false", "TRITON_CACHE_DIR": str(tmp_path)},
        "folder": {"TRITON_CACHE_DIR": "/dev/null/below"},
    }
    env = {**os.environ, **lacks[lacking]}
    command = [sys.executable, "-c", PROGRAM]
    ran = subprocess.run(command, capture_output=True, text=True, env=env)
    assert ran.returncode == 0, ran.stderr
    assert "Triton builds no kernels here" in ran.stdout
