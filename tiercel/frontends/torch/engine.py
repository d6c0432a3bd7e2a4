"""Who multiplies the tensors of a device: one engine per device type, found by its name.

An engine plans and runs products of ordinary tensors. Everything above it (autograd, autocast,
``torch.compile``, ``patch``) is the same for all devices; one without an engine is torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import torch

from tiercel.options import Options
from tiercel.planner.plan import Plan

#: Device type -> the module that is its engine, imported when a tensor of that type comes.
ENGINES = {
    "cpu": "tiercel.frontends.torch.cpu",
    "cuda": "tiercel.frontends.torch.cuda.engine",
}


class Product(NamedTuple):
    """One product (M, K) · (K, N) as a planner must know it; strides in elements."""

    M: int
    K: int
    N: int
    dtype: torch.dtype
    strides_a: tuple[int, int]
    strides_b: tuple[int, int]
    bias: bool = False

    @classmethod
    def of_rows(cls, rows: int, w: torch.Tensor, bias: bool) -> Product:
        """The product of a linear layer: ``rows`` contiguous inputs times ``w.T``, w (N, K)."""
        N, K = w.shape
        return cls(rows, K, N, w.dtype, (K, 1), (w.stride(1), w.stride(0)), bias)


@dataclass(frozen=True, slots=True)
class Request:
    """What is multiplied and how: a and b are (M, K) and (K, N), or (B, M, K) and (B, K, N).

    One dtype and device for a, b and bias (N,). ``packed`` is b in packed form (``packed.py``,
    ``models/frozen.py``). ``tracked``: whatever changes a is counted by torch, as outside of
    compiled graphs. ``calls``: where calls with this b, which lives as long, are kept
    (``routing/repeated.py``).
    """

    a: torch.Tensor
    b: torch.Tensor
    bias: torch.Tensor | None
    options: Options
    packed: Any = None
    tracked: bool = False
    calls: dict[Any, Any] | None = None

    @property
    def product(self) -> Product:
        """Each product of the stack."""
        a, b = self.a, self.b
        return Product(
            M=a.shape[-2], K=a.shape[-1], N=b.shape[-1], dtype=a.dtype,
            strides_a=(a.stride(-2), a.stride(-1)), strides_b=(b.stride(-2), b.stride(-1)),
            bias=self.bias is not None,
        )  # fmt: skip


class Engine(Protocol):
    """What a module must offer to multiply the tensors of a device type."""

    #: dtype -> multiplications below which torch is called at once; other dtypes are torch's.
    LEAST_WORK: Mapping[torch.dtype, int]

    #: Least predicted seconds of a layer's product that autograd follows, which takes more of the
    #: host.
    LEAST_FOLLOWED: float

    #: Whether a plan depends on nothing but the product, its options and the device.
    STEADY: bool

    def begin(self) -> None:
        """What must precede the first product of the process."""
        ...

    def why_not(self, dtype: torch.dtype) -> str:
        """Why torch is the faster one in ``dtype`` whatever the shape; "" if it may not be."""
        ...

    def predict(self, product: Product, options: Options, packed_for: str | None) -> Plan:
        """The plan of one product; ``packed_for`` names the algorithm that b is packed for.

        A plan whose choice is "vendor" leaves the product to torch.
        """
        ...

    def plan(self, request: Request) -> Plan | None:
        """The plan of each product of a request; None where it is best left to torch."""
        ...

    def run(self, plan: Plan, request: Request, out: torch.Tensor) -> None:
        """``epilogue(a @ b + bias)`` into ``out``, which is contiguous and overlaps no operand.

        Raises ``TiercelRuntimeError`` where the caller named a scheme and the data forbid it.
        """
        ...

    def direct(
        self, plan: Plan, request: Request, given: tuple[Any, ...], result: torch.Tensor
    ) -> Callable[..., torch.Tensor | None] | None:
        """A shorter way to repeat what ``run`` did: from the operands to a new result.

        ``given``: a, b and bias as the caller gave them, of which others with the same layouts will
        come, and ``result``. The function gives None where it cannot be used; None is none at all.
        """
        ...

    def why_not_packed(self, w: torch.Tensor) -> str:
        """Why a weight (N, K) has no packed form here; "" if it has one."""
        ...

    def pack(self, w: torch.Tensor, options: Options) -> Any:
        """The packed form of ``w.T``: ``algorithm``, ``panels`` (None: no gain) and ``nbytes``."""
        ...


@cache
def engine_for(device_type: str) -> Engine | None:
    """The engine for tensors of "cpu", "cuda", …; None where torch multiplies them itself."""
    name = ENGINES.get(device_type)
    if name is None:
        return None
    engine: Any = import_module(name)
    engine.begin()
    return engine
