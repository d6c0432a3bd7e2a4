"""From the text of a generated Triton kernel to a kernel that can be launched.

Triton reads a kernel's source through ``inspect``, which in turn asks ``linecache``: a text that is
registered there needs no file. ``TIERCEL_DUMP=folder`` writes the texts out.
"""

from __future__ import annotations

import linecache
from hashlib import sha256
from typing import Any

from tiercel.cache import dump

HEADER = (
    "import triton\nimport triton.language as tl\n\n"
    "from tiercel.targets.gpu.scale import power_of_two\n\n\n@triton.jit\n"
)


def kernel(name: str, text: str) -> Any:
    """The Triton kernel ``name`` that ``text`` (a whole ``def``) defines."""
    text = HEADER + text
    filename = f"<tiercel {name} {sha256(text.encode()).hexdigest()[:12]}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    dump(f"{filename[1:-1].replace(' ', '-')}.py", text)
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile(text, filename, "exec"), namespace)
    return namespace[name]


def weighted_sum(terms: tuple[tuple[str, float], ...]) -> str:
    """Source of Σ coef · name.

    >>> weighted_sum((("x0", 1.0), ("x3", -1.0), ("x4", -0.5)))
    'x0 - x3 - 0.5 * x4'
    """
    text = ""
    for name, coef in terms:
        factor = name if abs(coef) == 1 else f"{abs(coef)!r} * {name}"
        if text:
            text += f" {'-' if coef < 0 else '+'} {factor}"
        else:
            text = f"-{factor}" if coef < 0 else factor
    return text
