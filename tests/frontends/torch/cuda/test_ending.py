"""What follows a product: in place, and traced for the kernel."""

import numpy as np
import pytest
import torch

from tiercel.frontends.torch.cuda import ending
from tiercel.frontends.torch.epilogues.named import with_epilogue


@pytest.mark.parametrize("name", [None, "relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("biased", [False, True])
def test_bias_and_epilogue_in_place(name, biased):
    out, bias = torch.randn(5, 7), torch.randn(7) if biased else None
    expected = with_epilogue(out + bias if biased else out, name)
    ending.finish(out, bias, name)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh", "silu"])
def test_traced_epilogues_are_the_named_ones(name):
    x, bias = torch.randn(4, 6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    found = ending.traced(name, True)(x.numpy(), bias=bias.numpy())
    np.testing.assert_allclose(found, with_epilogue(x + bias, name).numpy(), atol=1e-12)
    found = ending.traced(name, False)(x.numpy())
    np.testing.assert_allclose(found, with_epilogue(x, name).numpy(), atol=1e-12)
