"""``scaled_matmul`` away from a Hopper: float32 of the scaled operands; and what it refuses."""

import numpy as np
import pytest
import torch

import tiercel
from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.targets.hopper.operands.scales import scales_of

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
M, N, K = 130, 144, 272


@pytest.fixture
def operands() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randint(-3, 4, (rows, K), generator=generator).float() for rows in (M, N))
    return a.to(E4M3), b.to(E4M3).t()


def test_numbers_and_vectors(operands):
    a, b = operands
    rows, columns = 2.0 ** torch.arange(M)[:, None].remainder(3), torch.full((1, N), 0.25)
    half = torch.tensor([0.5])
    wide = a.float().double() @ b.float().double()
    for scale_a, scale_b in ((rows, columns), (half, half), (rows, half)):
        got = tiercel.scaled_matmul(a, b, scale_a, scale_b, out_dtype=torch.float32)
        assert torch.equal(got.double(), wide * scale_a * scale_b)
    assert tiercel.scaled_matmul(a, b, half, half).dtype is torch.bfloat16


def test_scales_of_blocks_multiply_their_part_of_K(operands):
    a, b = operands
    scale_a = 2.0 ** torch.randint(-1, 2, (M, 3)).float()
    scale_b = 2.0 ** torch.randint(-1, 2, (3, 2)).float()
    wanted = torch.zeros(M, N, dtype=torch.float64)
    for k in range(3):
        for n in range(2):
            within, columns = slice(128 * k, 128 * k + 128), slice(128 * n, 128 * n + 128)
            part = a[:, within].float().double() @ b[within, columns].float().double()
            wanted[:, columns] += part * scale_a[:, k : k + 1] * scale_b[k, n]
    out = torch.full((M, N), float("nan"))
    assert tiercel.scaled_matmul(a, b, scale_a, scale_b, out=out) is out
    assert torch.equal(out.double(), wanted)


def test_blocks_of_single_columns(operands):
    a, b = operands
    scale_a = 2.0 ** torch.randint(-1, 2, (M, 3)).float()
    scale_b = 2.0 ** torch.randint(-1, 2, (3, N)).float()
    wanted = torch.zeros(M, N, dtype=torch.float64)
    for k in range(3):
        within = slice(128 * k, 128 * k + 128)
        part = a[:, within].float().double() @ b[within].float().double()
        wanted += part * scale_a[:, k : k + 1] * scale_b[k]
    got = tiercel.scaled_matmul(a, b, scale_a, scale_b, out_dtype=torch.float32)
    assert torch.equal(got.double(), wanted)


def test_two_kinds_of_float8(operands):
    a, b = operands
    one = torch.ones(())
    got = tiercel.scaled_matmul(a.float().to(E5M2), b, one, one, out_dtype=torch.float32)
    assert torch.equal(got, a.float() @ b.float())


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        ({"a": torch.ones(M, K)}, TiercelTypeError, "float8_e5m2"),
        ({"b": torch.ones(K - 16, N).to(E4M3)}, TiercelValueError, "must agree"),
        ({"scale_a": torch.ones(M)}, TiercelValueError, "one number or"),
        ({"scale_a": torch.ones(M, 3)}, TiercelValueError, "one number or"),
        ({"scale_b": torch.ones((), dtype=torch.float64)}, TiercelTypeError, "scales are float32"),
        ({"scale_b": 1.0}, TiercelTypeError, "scale_b is on float"),
        ({"out_dtype": torch.int32}, TiercelTypeError, "out_dtype is"),
        ({"out": torch.ones(M, N + 1)}, TiercelValueError, "out is"),
        ({"scale_a": torch.ones((), requires_grad=True)}, TiercelTypeError, "not differentiable"),
    ],
)
def test_refusals(operands, change, error, reason):
    call = {
        "a": operands[0],
        "b": operands[1],
        "scale_a": torch.ones(()),
        "scale_b": torch.ones(()),
    }
    call |= change
    positional = [call.pop(name) for name in ("a", "b", "scale_a", "scale_b")]
    with pytest.raises(error, match=reason):
        tiercel.scaled_matmul(*positional, **call)


def test_arrays_are_refused():
    with pytest.raises(TiercelTypeError, match="PyTorch tensors"):
        tiercel.scaled_matmul(np.ones((2, 2)), np.ones((2, 2)), 1.0, 1.0)


def test_strides_of_scales():
    assert scales_of(torch.ones(1), torch.ones(()), M, N, K).scaling == "number"
    vectors = scales_of(torch.ones(M, 5)[:, 1:2], torch.ones(()), M, N, K)
    assert (vectors.scaling, vectors.a_row_stride, vectors.b_column_stride) == ("vectors", 5, 0)
    blocks = scales_of(torch.ones(3, M).t(), torch.ones(2, 3).t(), M, N, K)
    assert blocks.scaling == "blocks"
    assert (blocks.a_row_stride, blocks.a_k_stride) == (1, M)
    assert (blocks.b_k_stride, blocks.b_column_stride) == (1, 3)
    columns = scales_of(torch.ones(3, M).t(), torch.ones(3, N), M, N, K)
    assert columns.scaling == "column blocks"
    assert (columns.b_k_stride, columns.b_column_stride) == (N, 1)
