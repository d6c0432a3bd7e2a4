"""A decoder-only language model with random weights, in plain PyTorch: what the examples run.

Root-mean-square norms, rotary positions, grouped-query attention and, where ``gated``, SwiGLU: with
the right sizes it has the linear layers of Llama 3 or GPT-2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Sizes:
    """``hidden``: width of the residual stream; ``inner``: of the feed-forward layer."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    gated: bool = True


MODELS = {
    "tiny": Sizes(2, 512, 8, 4, 1536, 1024),
    "gpt2": Sizes(12, 768, 12, 12, 3072, 50257, gated=False),
    "llama-3-8b": Sizes(32, 4096, 32, 8, 14336, 128256),
    "llama-3-70b": Sizes(80, 8192, 64, 8, 28672, 128256),
}


class Attention(nn.Module):
    """Causal self-attention of (batch, tokens, hidden)."""

    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = s.heads, s.kv_heads, s.hidden // s.heads
        self.query = nn.Linear(s.hidden, s.heads * self.width, bias=False)
        self.key = nn.Linear(s.hidden, s.kv_heads * self.width, bias=False)
        self.value = nn.Linear(s.hidden, s.kv_heads * self.width, bias=False)
        self.output = nn.Linear(s.heads * self.width, s.hidden, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        def heads(projection: nn.Linear, count: int) -> torch.Tensor:
            return projection(x).unflatten(-1, (count, self.width)).transpose(1, 2)

        query = rotated(heads(self.query, self.heads), cos, sin)
        key = rotated(heads(self.key, self.kv_heads), cos, sin)
        value = heads(self.value, self.kv_heads)
        # Fused kernels take groups of heads in 16 bits; in float32 they take repeated heads.
        grouped = self.heads != self.kv_heads
        if grouped and query.dtype is torch.float32:
            grouped = False
            key, value = (x.repeat_interleave(self.heads // self.kv_heads, 1) for x in (key, value))
        mixed = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=grouped
        )
        return self.output(mixed.transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    """SwiGLU, or GELU without a gate."""

    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.gate = nn.Linear(s.hidden, s.inner, bias=False) if s.gated else None
        self.up = nn.Linear(s.hidden, s.inner, bias=False)
        self.down = nn.Linear(s.inner, s.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up = self.up(x)
        return self.down(F.gelu(up) if self.gate is None else F.silu(self.gate(x)) * up)


class Block(nn.Module):
    """Attention and feed-forward, each with its norm, on a residual stream."""

    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.before_attention, self.attention = nn.RMSNorm(s.hidden), Attention(s)
        self.before_feed_forward, self.feed_forward = nn.RMSNorm(s.hidden), FeedForward(s)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before_attention(x), cos, sin)
        return x + self.feed_forward(self.before_feed_forward(x))


class Decoder(nn.Module):
    """Tokens (batch, tokens) -> logits (batch, tokens or 1, vocabulary)."""

    def __init__(self, s: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(s.vocabulary, s.hidden)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.norm = nn.RMSNorm(s.hidden)
        self.head = nn.Linear(s.hidden, s.vocabulary, bias=False)
        self.width = s.hidden // s.heads

    def forward(self, tokens: torch.Tensor, last_only: bool = False) -> torch.Tensor:
        """``last_only``: logits of the last token, as a prefill needs them."""
        x = self.embedding(tokens)
        cos, sin = rotations(tokens.shape[1], self.width, x)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x[:, -1:] if last_only else x))


def rotations(tokens: int, width: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the rotary positions, each (tokens, width / 2)."""
    frequencies = 10000.0 ** -(torch.arange(0, width, 2, device=like.device) / width)
    angles = torch.outer(torch.arange(tokens, device=like.device), frequencies)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x (..., tokens, width) with each pair of halves turned by its position's angle."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
