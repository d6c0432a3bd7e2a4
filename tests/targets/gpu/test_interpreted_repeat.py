"""Repeated calls: kernels get addresses in place of tensors, and must find the same matrices there.

In Triton's interpreter, which takes tensors only: an address is made one again.
"""

import ctypes

import pytest
import torch
from torch import Tensor

from tiercel.schemes import get
from tiercel.targets.gpu import launch, pack, product, ready, steps
from tiercel.targets.gpu.launch import Launch


@pytest.fixture(autouse=True)
def addressed(monkeypatch) -> list[int]:
    """Launches after the first get addresses; the list has one entry for each of them."""
    ran: list[int] = []
    first = Launch._first

    def compiled(self: Launch, memory) -> None:
        first(self, memory)
        names, count = self.kernel.arg_names, len(self.arguments)

        def run(*values, stream):
            ran.append(stream)
            arguments = [
                _at(value, stand_in.dtype) if isinstance(stand_in, Tensor) else value
                for value, stand_in in zip(values, self.arguments, strict=False)
            ]
            constants = dict(zip(names[count:], values[count:], strict=True))
            self.kernel[self.grid](*arguments, **{**self.constants, **constants})

        self._values = [*self.arguments, *(self.constants[name] for name in names[count:])]
        self._places = [
            (i, *launch.place(x)) for i, x in enumerate(self._values) if isinstance(x, Tensor)
        ]
        self._run = run

    monkeypatch.setattr(Launch, "_first", compiled)
    monkeypatch.setattr(ready, "_known", {})
    steps.prepare.cache_clear()
    yield ran
    steps.prepare.cache_clear()


def _at(address: int, dtype: torch.dtype) -> Tensor:
    """A tensor of one element at an address."""
    return torch.frombuffer((ctypes.c_byte * dtype.itemsize).from_address(address), dtype=dtype)


def whole(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Small whole numbers: products of them are exact."""
    x = torch.randint(-2, 3, shape)
    return (x + 1j * torch.randint(-2, 3, shape) if dtype.is_complex else x).to(dtype)


@pytest.mark.parametrize(
    ("dtype", "turned", "workspace"),
    [
        (torch.float32, False, None),
        (torch.float32, True, 30_000),
        (torch.complex64, True, None),
        (torch.bfloat16, False, None),
    ],
)
def test_new_operands_give_their_own_product(dtype, turned, workspace, addressed):
    for turn in range(2):
        a, b, out = (whole(*size, dtype=dtype) for size in ((40, 24), (24, 56), (40, 56)))
        if turned:
            a, b = a.mT.contiguous().mT, b.mT.contiguous().mT
        product(a, b, get("strassen"), out=out, workspace=workspace)
        assert torch.equal(out, a @ b)
        assert bool(addressed) == (turn > 0)


def test_a_bias_and_a_level_in_a_loop(addressed):
    for _ in range(2):
        a, b, bias, out = whole(16, 24), whole(24, 16), whole(16), torch.empty(16, 16)
        product(a, b, get("strassen"), out=out, c=bias, beta=1.0, workspace=8_000)
        assert torch.equal(out, a @ b + bias)
    assert len(addressed) > 20


def test_a_packed_operand(addressed):
    b = whole(24, 56)
    packed = pack(b, get("strassen"))
    addressed.clear()
    for _ in range(2):
        a, out = whole(40, 24), torch.empty(40, 56)
        product(a, packed, get("strassen"), out=out)
        assert torch.equal(out, a @ b)
    assert addressed


def test_work_takes_tensors_that_lie_like_the_matrices(addressed):
    """As the front end repeats a linear layer: a weight for its transpose, rows in batches."""
    settings = {"c": None, "beta": 0.0, "workspace": None}
    for biased in (False, True):
        x, w, bias = whole(2, 20, 24), whole(56, 24), whole(56)
        if biased:
            settings.update(c=bias, beta=1.0)
        out = torch.empty(40, 56)
        product(x.view(40, 24), w.t(), get("strassen"), out=out, **settings)
        prepared = ready.find(x.view(40, 24), w.t(), get("strassen"), 1, out=out, **settings)
        assert prepared is not None
        for _ in range(2):
            x, w, out = whole(2, 20, 24), whole(56, 24), torch.empty(2, 20, 56)
            prepared.run(x, w, out, bias if biased else None, None)
            assert torch.equal(out, x @ w.t() + (bias if biased else 0))
    assert addressed


@pytest.mark.parametrize("packed", [False, True])
def test_the_host_can_tell_what_the_guard_has_said(packed):
    heard = []

    def report(judge, *parts):
        heard.append(judge.refuses([word for part in parts for word in part.tolist()]))

    a, b = torch.randn(64, 256), torch.randn(256, 64)
    right = pack(b, get("strassen")) if packed else b
    product(a, right, get("strassen"), report=report)
    a[3] *= 1e-3
    product(a, right, get("strassen"), report=report)
    a[3] = float("nan")
    product(a, right, get("strassen"), report=report)
    assert heard == [False, True, True]
