"""The products of a PyTorch model's linear layers, as benchmark cases.

The model is built on the meta device: its sizes count, it needs no memory and no weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from tiercel.bench.case import Case
from tiercel.bench.optional import require
from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.planner.problem import DTYPES

HOW = (
    "write MODULE:FUNCTION, a function without arguments that returns a model, or the path of a "
    "Transformers config.json"
)


def model_cases(text: str, rows: Sequence[int]) -> list[Case]:
    """Every distinct product of the linear layers of the model that ``text`` names.

    ``text`` is ``"module:function"`` or a configuration of Transformers; ``rows``: rows of input,
    as batch size times sequence length. Raises ``TiercelValueError`` or ``TiercelTypeError``.
    """
    return layer_cases(build(text), rows)


def layer_cases(model: Any, rows: Sequence[int]) -> list[Case]:
    """The cases of a model that is there; weights are transposed right operands.

    >>> import torch
    >>> layer_cases(torch.nn.Linear(256, 512), [64])[0].label
    '64×512×256 Bᵀ'
    """
    sizes = dict.fromkeys(_sizes(model))
    if not sizes:
        raise TiercelValueError(
            f"{type(model).__name__} has no linear layer of a dtype that is accelerated: "
            f"{', '.join(DTYPES)}"
        )
    return [
        Case(M, N, K, dtype, layout_b=layout, group="model")
        for N, K, dtype, layout in sizes
        for M in rows
    ]


def build(text: str) -> Any:
    """The model that ``text`` names, on the meta device."""
    torch = require("torch", "a model's layers", "'tiercel[torch]'")
    path = Path(text)
    with torch.device("meta"):
        model = _configured(path) if path.suffix == ".json" else _called(text)
    if not isinstance(model, torch.nn.Module):
        raise TiercelTypeError(f"model: {text} made a {type(model).__name__}; {HOW}")
    return model


def _called(text: str) -> Any:
    module, _, function = text.partition(":")
    try:
        return getattr(import_module(module), function)()
    except (ImportError, AttributeError, ValueError) as reason:
        raise TiercelValueError(f"model: {text!r} cannot be built: {reason}; {HOW}") from reason


def _configured(path: Path) -> Any:
    transformers = require("transformers", "a model of its configuration", "transformers")
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        config = transformers.AutoConfig.for_model(**facts)
    except (OSError, ValueError, KeyError, TypeError) as reason:
        raise TiercelValueError(f"model: {path} cannot be read: {reason}; {HOW}") from reason
    return transformers.AutoModelForCausalLM.from_config(config)


def _sizes(model: Any) -> Iterator[tuple[int, int, str, str]]:
    """(N, K, dtype, layout of the right operand) of each layer."""
    from tiercel.frontends.torch.models.layers import kind_of

    for module in model.modules():
        kind = kind_of(module)
        if kind is None:
            continue
        w = kind.weight(module)
        (N, K), dtype = w.shape, str(w.dtype).removeprefix("torch.")
        if dtype in DTYPES:
            yield N, K, dtype, "row" if kind.transposed else "col"
