"""Epilogues by their text: two that compute the same under the same names have the same key.

A compiler's graph, which another process may load, can hold a text and no object.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from tiercel.errors import TiercelValueError
from tiercel.lower.epilogue.graph import Output, Reduction, node_of, topological

if TYPE_CHECKING:
    from tiercel.lower.epilogue.trace import Epilogue

_known: WeakValueDictionary[str, Epilogue] = WeakValueDictionary()


def key_of(
    name: str,
    parameters: tuple[str, ...],
    outputs: Mapping[str, Output],
    defaults: Mapping[str, float],
    pinned: Mapping[str, str],
) -> str:
    """The name and a digest of all that decides what an epilogue computes."""
    nodes = topological([node_of(out) for out in outputs.values()])
    number = {x: i for i, x in enumerate(nodes)}
    parts: list[object] = [parameters, sorted(defaults.items()), sorted(pinned.items())]
    parts += [(x.op, tuple(number[arg] for arg in x.args), x.value) for x in nodes]
    for key, out in outputs.items():
        how = (out.kind, out.over, out.like) if isinstance(out, Reduction) else ()
        parts.append((key, number[node_of(out)], how))
    return f"{name}-{sha256(repr(parts).encode()).hexdigest()[:16]}"


def remember(epilogue: Epilogue) -> None:
    """Let `known` find the epilogue for as long as it exists."""
    _known.setdefault(epilogue.key, epilogue)


def known(key: str) -> Epilogue:
    """The epilogue of this key. Raises ``TiercelValueError`` where this process has none.

    >>> from tiercel.lower.epilogue import known, library
    >>> known.known(library.swiglu.key)
    <epilogue swiglu(acc)>
    """
    found = _known.get(key)
    if found is None:
        raise TiercelValueError(
            f"the epilogue {key!r} is not defined in this process; allowed in a stored graph: "
            "epilogues that are defined, as they were, before the graph runs"
        )
    return found
