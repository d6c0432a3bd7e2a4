"""Options as the text that an operator of ``torch.library`` can take, and back.

Operators take numbers and strings, and graphs that hold them are printed, stored and loaded: so
options are written as ``"accuracy=fast epilogue=relu"``, "" being the default.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import torch

from tiercel.errors import TiercelValueError
from tiercel.options import DEFAULT, Options

#: Schemes that are objects, not names, by the text that stands for them in this process.
_schemes: dict[str, Any] = {}

#: The word that says what an operand is packed for where a graph is made; no option.
PACKED = "packed"

_NAMES = [field.name for field in fields(Options)]


def encode(options: Options) -> str:
    """The text of some options; see ``decode``."""
    if options is DEFAULT:
        return ""
    # The compiler follows no cache, and says so in a warning.
    return _written(options) if torch.compiler.is_compiling() else _cached(options)


def _written(options: Options) -> str:
    words = []
    for name in _NAMES:
        value = getattr(options, name)
        if value != getattr(DEFAULT, name):
            words.append(f"{name}={value if isinstance(value, str) else _text(name, value)}")
    return " ".join(words)


_cached = lru_cache(maxsize=256)(_written)


def _text(name: str, value: Any) -> str:
    if name != "scheme":
        return repr(value)
    text = f"object-{hash(value):x}"
    _schemes[text] = value
    return text


@lru_cache(maxsize=256)
def decode(text: str) -> Options:
    """The options that ``encode`` wrote as ``text``.

    Raises ``TiercelValueError`` for a scheme that another process gave as an object.

    >>> decode("epilogue=relu workspace=1024").workspace
    1024
    """
    found: dict[str, Any] = {}
    for word in text.split():
        name, _, value = word.partition("=")
        if name == PACKED:
            continue
        found[name] = _READ.get(name, str)(value)
    return replace(DEFAULT, **found)


def _accuracy(value: str) -> str | float:
    return value if value.isalpha() else float(value)


def _scheme(value: str) -> Any:
    if value.startswith("object-"):
        if value not in _schemes:
            raise TiercelValueError(
                f"scheme {value!r} was given as an object in another process; allowed in a stored "
                "graph: the name of a scheme"
            )
        return _schemes[value]
    return value


_READ = {
    "accuracy": _accuracy,
    "workspace": int,
    "threads": int,
    "scheme": _scheme,
    "batch_invariant": lambda value: value == "True",
    "verify": lambda value: value == "True",
}


@lru_cache(maxsize=256)
def without_epilogue(text: str) -> str:
    """The same options without the epilogue, which autograd follows by itself."""
    return encode(replace(decode(text), epilogue=None))


@lru_cache(maxsize=256)
def of_derivatives(text: str, classical: bool = False) -> str:
    """The options of the products that differentiate this one: planned anew, no epilogue.

    ``classical``: by no scheme.
    """
    options = replace(decode(text), epilogue=None, scheme=None)
    return encode(options.with_accuracy("classical") if classical else options)


def with_packed(text: str, algorithm: str) -> str:
    """The text of options for a right operand that is kept packed for an algorithm.

    >>> with_packed("accuracy=fast", "winograd")
    'accuracy=fast packed=winograd'
    """
    return f"{text} {PACKED}={algorithm}".strip()


@lru_cache(maxsize=256)
def packed_for(text: str) -> str | None:
    """What the right operand was kept packed for when the text was written; None if it was not.

    >>> packed_for("accuracy=fast packed=winograd"), packed_for("accuracy=fast")
    ('winograd', None)
    """
    words = (word.partition("=") for word in text.split())
    return next((value for name, _, value in words if name == PACKED), None)
