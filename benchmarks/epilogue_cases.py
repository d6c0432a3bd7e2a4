"""The products of Llama-3 with their epilogues, and what PyTorch does in the epilogues' place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

import tiercel
from tiercel import epilogues as ep

HEAD = 128


@tiercel.epilogue(bias="row")
def bias_gelu(acc: Any, bias: Any) -> Any:
    """The first half of a classical feed-forward block."""
    return ep.gelu(acc + bias)


def split_gelu(y: torch.Tensor, bias: torch.Tensor) -> Any:
    """PyTorch's of `bias_gelu`."""
    return F.gelu(y + bias)


def split_swiglu(y: torch.Tensor) -> Any:
    """Gates in the first half of the columns: what PyTorch does fastest."""
    gate, up = y.chunk(2, -1)
    return F.silu(gate) * up


def split_rms(y: torch.Tensor, residual: torch.Tensor, gamma: torch.Tensor) -> Any:
    """The residual stream, the operand of the next product, and what its norm needs."""
    hidden = y + residual
    return hidden * gamma, hidden, hidden.float().square().sum(-1, keepdim=True)


def split_rope(y: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Any:
    """Of queries and keys; the values stay in the product."""
    heads = y.unflatten(-1, (-1, HEAD // 2, 2))
    even, odd = heads.unbind(-1)
    cos, sin = cos[:, None], sin[:, None]
    turned = torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1)
    return turned.flatten(1).to(y.dtype)  # of float32 tables


def split_loss(y: torch.Tensor, target: torch.Tensor) -> Any:
    """Log-sum-exp, and the logit at the target."""
    y = y.float()
    return y.logsumexp(-1, keepdim=True), y.gather(-1, target)


@dataclass(frozen=True)
class Case:
    """A product (M, N, K), its epilogue, and the same in PyTorch for ``columns`` of the product."""

    name: str
    N: int
    K: int
    epilogue: Any
    split: Callable[..., Any]
    columns: int | None = None

    def operands(self, M: int) -> dict[str, Any]:
        """Random operands of the epilogue."""
        made: dict[str, Any] = {}
        if self.name == "bias+GELU":
            made["bias"] = normal(self.N)
        if self.name.startswith("residual"):
            made |= {"residual": normal(M, self.N), "gamma": normal(self.N)}
        if self.name == "RoPE":
            angle = torch.rand(M, HEAD // 2, device="cuda") * 6
            made |= {"cos": angle.cos(), "sin": angle.sin()}
        if self.name == "cross-entropy":
            made["target"] = torch.randint(self.N, (M, 1), device="cuda")
        return made

    @property
    def settings(self) -> dict[str, float]:
        """Operands of the fused epilogue that are numbers."""
        return {"rotated": float(self.columns)} if self.columns else {}


def cases(model: str) -> list[Case]:
    """The products of a model."""
    width, hidden, qkv = {"8B": (4096, 14336, 6144), "70B": (8192, 28672, 10240)}[model]
    rms = ("residual+RMS", split_rms, ep.residual_rms)
    return [
        Case("bias+GELU", hidden, width, bias_gelu, split_gelu),
        Case("SwiGLU", 2 * hidden, width, ep.swiglu, split_swiglu),
        Case(rms[0], width, width, rms[2], rms[1]),
        Case(rms[0], width, hidden, rms[2], rms[1]),
        Case("RoPE", qkv, width, ep.rope, split_rope, columns=qkv - 8 * HEAD),
        Case("cross-entropy", 128256, width, ep.cross_entropy, split_loss),
    ]


def normal(*shape: int) -> torch.Tensor:
    """Random bfloat16 numbers on the device."""
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)
