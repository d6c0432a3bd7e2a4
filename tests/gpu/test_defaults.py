"""Defaults and modes of torch's that a program has set before its first products on a GPU."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu

PROGRAM = """
import torch, tiercel
DEFAULTS
def integers(size, dtype):
    return torch.randint(-2, 3, (size, size), device="cuda", dtype=torch.int8).to(dtype)

for mode in (torch.inference_mode(), torch.enable_grad(), torch.inference_mode()):
    with mode:
        for size, dtype in ((4096, torch.float32), (8192, torch.bfloat16)):
            a, b = integers(size, dtype), integers(size, dtype)
            expected = a @ b
            for options in ({}, {"verify": True}):
                for _ in range(9):  # the guard tells the host of every eighth product
                    assert torch.equal(tiercel.matmul(a, b, **options), expected), (dtype, options)
        model = torch.nn.Linear(8192, 8192, bias=False, device="cuda", dtype=torch.bfloat16)
        with torch.no_grad():
            model.weight.copy_(b)
        tiercel.patch(model.requires_grad_(False), pack_weights=True)
        for _ in range(9):
            assert torch.equal(model(a), a @ b.t())
print(*tiercel.stats())
"""


@pytest.mark.parametrize("default", ["device('cuda')", "dtype(torch.bfloat16)"])
def test_products_under_a_default(default: str):
    program = PROGRAM.replace("DEFAULTS", f"torch.set_default_{default}")
    command = [sys.executable, "-W", "ignore", "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "strassen" in ran.stdout
