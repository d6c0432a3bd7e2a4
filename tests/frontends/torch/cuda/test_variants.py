"""Products by a scheme inside the kernel as the engine runs them; recorders instead of kernels."""

from types import SimpleNamespace

import pytest
import torch

from tiercel.frontends.torch.cuda import variants
from tiercel.frontends.torch.cuda.packed import Packed
from tiercel.frontends.torch.engine import Request
from tiercel.options import checked_options


def test_last_rows_that_do_not_divide_are_torchs():
    rows = []

    def multiply(a, out, any_scale, tracked):
        rows.append((len(a), any_scale))
        torch.mm(a, w.t(), out=out)

    a, w = torch.randn(35, 32).bfloat16(), torch.randn(48, 32).bfloat16()
    packed = Packed("winograd", SimpleNamespace(multiply=multiply), 0, "fused")
    plan = SimpleNamespace(
        chosen=SimpleNamespace(fringe=3), problem=SimpleNamespace(accuracy="fast")
    )
    out = torch.empty(35, 48, dtype=torch.bfloat16)
    request = Request(a, w.t(), None, checked_options(epilogue="relu"), packed)
    variants.fused(plan, request, out)
    assert rows == [(32, True)]
    torch.testing.assert_close(out, torch.relu(a @ w.t()))


@pytest.mark.parametrize(("biased", "name"), [(True, None), (False, "relu"), (True, "gelu")])
def test_bias_and_epilogue_are_the_schemes_kernels(biased, name):
    ended = []

    def end(a, out, epilogue, operands, any_scale):
        ended.append((epilogue.name, list(operands), any_scale))

    a, b = torch.randn(32, 32).bfloat16(), torch.randn(32, 48).bfloat16()
    bias = torch.randn(48).bfloat16() if biased else None
    packed = Packed("winograd", SimpleNamespace(multiply_and_end=end), 0, "fused")
    plan = SimpleNamespace(
        chosen=SimpleNamespace(fringe=0), problem=SimpleNamespace(accuracy="standard")
    )
    request = Request(a, b, bias, checked_options(epilogue=name), packed)
    variants.fused(plan, request, torch.empty(32, 48, dtype=torch.bfloat16))  # type: ignore[arg-type]
    expected = "_".join(x for x in ("bias" if biased else "", name or "") if x)
    assert ended == [(expected, ["bias"] if biased else [], False)]
