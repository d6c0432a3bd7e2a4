"""torch's switches for float32."""

import torch

from tiercel.frontends.torch.tensors.precision import in_tf32, tf32_allowed


def test_tf32_follows_torchs_switches():
    matmul, before = torch.backends.cuda.matmul, torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        assert not tf32_allowed()
        torch.set_float32_matmul_precision("high")
        assert tf32_allowed()
        assert not in_tf32(torch.ones(2, 2)), "that of the CPU is another switch"
    finally:
        torch.set_float32_matmul_precision(before)
    assert matmul.allow_tf32 is (before != "highest")
