"""Modes and defaults of torch's that a program may have set before its first product."""

import subprocess
import sys

import pytest
import torch

from tiercel.frontends.torch.cuda.refusals import Refusals
from tiercel.frontends.torch.tensors.memory import kept_on_host


def python(program: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize(
    "default", ["device('meta')", "dtype(torch.bfloat16)", "dtype(torch.float64)"]
)
def test_the_first_product_under_a_default(default: str):
    program = f"""
import torch, tiercel
torch.set_default_{default}
a = torch.randint(-2, 3, (700, 700), dtype=torch.float32, device="cpu")
w = torch.nn.Parameter(a.clone())
assert torch.equal(tiercel.matmul(a, a, scheme="strassen"), a @ a)
tiercel.linear(a, w, scheme="classical", verify=True).sum().backward()
assert torch.equal(w.grad, a.sum(0).expand(700, 700))
assert tiercel.matmul(a.to("meta"), a.to("meta")).is_meta
print(*tiercel.stats())
"""
    assert {"classical", "strassen"} <= {*python(program).split()}


def test_what_is_kept_was_not_made_for_the_mode_of_the_first_call():
    with torch.inference_mode(), torch.device("meta"):
        kept = kept_on_host((2,), torch.int32)
    assert kept.device.type == "cpu"
    kept.copy_(torch.tensor([1, 2]))
    assert kept.tolist() == [1, 2]


def test_a_refusal_is_heard_inside_and_outside_of_inference_mode():
    site = Refusals()
    with torch.inference_mode():
        site.tell(lambda heard: bool(heard.any()), torch.zeros(1, dtype=torch.int32))
    assert not site.resting()
    site.tell(lambda heard: bool(heard.any()), torch.ones(1, dtype=torch.int32))
    assert site.resting()
