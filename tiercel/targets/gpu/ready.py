"""Calls like one before: its prepared work is found again without judging the operands anew.

Checking operands, choosing a recipe and finding its limits takes as long as four launches, and
depends on layouts and settings alone.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tiercel.targets.gpu.layout import Layout
from tiercel.targets.gpu.packed import Packed
from tiercel.targets.gpu.steps import Prepared

MOST_KEYS = 1024

#: Key of a call → its work, and the objects that the key names by address.
_known: dict[Any, tuple[Prepared, Any]] = {}


def _key(
    a: Tensor, b: Tensor, out: Tensor, c: Tensor | None, packed: Packed | None, settings: Any
) -> Any:
    scheme, *others = settings
    recipe = None if packed is None else id(packed.recipe)
    of_c = None if c is None else Layout.of(c)
    return id(scheme), recipe, Layout.of(a), Layout.of(b), Layout.of(out), of_c, *others


def _ordinary(*tensors: Tensor | None) -> bool:
    """Whether these are tensors without a negation that is still to be done."""
    return all(x is None or (isinstance(x, Tensor) and not x.is_neg()) for x in tensors)


def repeat(
    a: Tensor, b: Tensor, out: Tensor, c: Tensor | None, packed: Packed | None, settings: Any
) -> Prepared | None:
    """The work of ``out = alpha · a · b + beta · c`` if such a call of matrices is known."""
    if not _ordinary(a, b, out, c):
        return None
    found = _known.get(_key(a, b, out, c, packed, settings))
    return None if found is None else found[0]


def remember(
    a: Tensor,
    b: Tensor,
    out: Tensor,
    c: Tensor | None,
    packed: Packed | None,
    settings: Any,
    prepared: Prepared,
) -> None:
    """Let calls like this one find ``prepared``."""
    if not _ordinary(a, b, out, c) or (c is not None and c.is_conj()):
        return
    if len(_known) >= MOST_KEYS:
        _known.clear()
    kept = settings[0], None if packed is None else packed.recipe
    _known[_key(a, b, out, c, packed, settings)] = prepared, kept


def find(
    a: Tensor,
    b: Tensor,
    scheme: Any,
    levels: int,
    *,
    out: Tensor,
    c: Tensor | None,
    beta: float,
    workspace: int | None,
) -> Prepared | None:
    """The work that ``product`` has prepared for such a call, whose ``run`` takes like tensors.

    For operands that share no memory with ``out``.
    """
    settings = (scheme, levels, 1.0, beta, workspace, True)
    return repeat(a, b, out, None if beta == 0 else c, None, settings)
