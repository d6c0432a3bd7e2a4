"""Which products are measured: named sets, lists such as ``512x512x512``, files, random shapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tiercel.bench.bars import bar_cases
from tiercel.bench.case import Case
from tiercel.bench.layers import sample
from tiercel.errors import TiercelValueError

SHAPE = re.compile(r"(\d+)(?:[x×*](\d+)[x×*](\d+))?$")
LARGEST_RANDOM_SIZE = 4096
LLM_SHAPES = ((128, 4096, 4096), (512, 4096, 4096), (1024, 4096, 4096), (2048, 11008, 4096))


@dataclass(frozen=True)
class ShapeSet:
    """A named list of cases and the time (seconds, all cases together) that it deserves."""

    cases: Callable[[], list[Case]]
    seconds: float
    about: str


def _squares(*sizes: int, dtype: str = "float32") -> list[Case]:
    return [Case(n, n, n, dtype, group="squares") for n in sizes]


def _llm(*shapes: tuple[int, int, int]) -> list[Case]:
    return [Case(*shape, group="LLM layers") for shape in shapes]


def _quick() -> list[Case]:
    return [
        *_squares(512, 1024, 2048, 4096),
        *_llm(*LLM_SHAPES[:3]),
        *_squares(2048, dtype="float64"),
    ]


def _full() -> list[Case]:
    sizes = (256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144)
    return [*_squares(*sizes), *_llm(*LLM_SHAPES), *_squares(*sizes[1:-1], dtype="float64")]


SETS = {
    "quick": ShapeSet(_quick, 45.0, "squares 512…4096, three LLM layers, one float64 row"),
    "full": ShapeSet(_full, 900.0, "squares 256…6144, LLM layers, float64 squares"),
    "issue": ShapeSet(bar_cases, 2400.0, "every row of the table of speed bars"),
}
SECONDS_PER_LISTED_SHAPE = 8.0
SECONDS_PER_RANDOM_SHAPE = 0.7


def parse(text: str, *, seed: int = 0) -> tuple[list[Case], float]:
    """Cases named by ``text``, and the seconds that measuring them deserves.

    ``text`` is a set (``"quick"``, ``"full"``, ``"issue"``), one group of a set
    (``"issue:packed"``), ``"random:200"``, ``"layers:48"`` (so many products of the linear layers
    of ``layers.py``; ``"layers:48/4"``: with all sizes divided by 4), a comma-separated list of
    ``MxNxK`` or ``N`` (a square), or the path of a file with one such shape per line (``#`` starts
    a comment).

    >>> [case.label for case in parse("512,128x4096x1024")[0]]
    ['512³', '128×4096×1024']
    >>> len(parse("random:5")[0])
    5
    """
    name, _, group = text.partition(":")
    if name == "random":
        cases = random_cases(_positive(group or "200", text), seed)
        return cases, SECONDS_PER_RANDOM_SHAPE * len(cases)
    if name == "layers":
        count, _, divisor = group.partition("/")
        cases = sample(_positive(count or "48", text), _positive(divisor or "1", text), seed)
        return cases, SECONDS_PER_LISTED_SHAPE * len(cases)
    if name in SETS:
        return _from_set(name, group)
    path = Path(text)
    words = _words(path.read_text()) if path.is_file() else [w.strip() for w in text.split(",")]
    cases = [_listed(word) for word in words]
    if not cases:
        raise TiercelValueError(f"shapes: no shape found in {text!r}; write e.g. 512x4096x4096")
    return cases, SECONDS_PER_LISTED_SHAPE * len(cases)


def random_cases(count: int, seed: int = 0) -> list[Case]:
    """Sizes log-uniform on 1…4096, all four pairs of layouts; the same seed, the same list."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(0, np.log(LARGEST_RANDOM_SIZE + 1), size=(count, 3))).astype(int)
    layouts = rng.choice(["row", "col"], size=(count, 2))
    return [
        Case(int(m), int(n), int(k), layout_a=str(la), layout_b=str(lb), group="random")
        for (m, n, k), (la, lb) in zip(sizes, layouts, strict=True)
    ]


def vary(
    cases: Sequence[Case],
    *,
    dtypes: Sequence[str] = (),
    threads: Sequence[int] = (),
    layouts: Sequence[str] = (),
    static_b: bool = False,
) -> list[Case]:
    """Each case once per requested dtype, thread count and layout pair (``"row,col"`` is A, B).

    An empty request leaves that property as the case has it.
    """
    varied = list(cases)
    if dtypes:
        varied = [replace(c, dtype=dtype) for dtype in dtypes for c in varied]
    if layouts:
        pairs = [_layout_pair(text) for text in layouts]
        varied = [replace(c, layout_a=a, layout_b=b) for a, b in pairs for c in varied]
    if static_b:
        varied = [replace(c, static_b=True) for c in varied]
    if threads:
        varied = [replace(c, threads=t) for t in threads for c in varied]
    return list(dict.fromkeys(varied))


def _from_set(name: str, group: str) -> tuple[list[Case], float]:
    chosen = SETS[name]
    cases = chosen.cases()
    if not group:
        return cases, chosen.seconds
    groups = list(dict.fromkeys(case.group for case in cases))
    kept = [case for case in cases if case.group == group]
    if not kept:
        raise TiercelValueError(
            f"shapes: set {name!r} has no group {group!r}; it has {', '.join(groups)}"
        )
    return kept, chosen.seconds * len(kept) / len(cases)


def _layout_pair(text: str) -> tuple[str, str]:
    a, _, b = text.partition(",")
    b = b or a
    if {a, b} <= {"row", "col"}:
        return a, b
    raise TiercelValueError(
        f"layouts: got {text!r}; write the layouts of A and B, e.g. row,col (row or col each)"
    )


def _listed(word: str) -> Case:
    match = SHAPE.match(word)
    if not match:
        raise TiercelValueError(
            f"shapes: {word!r} is no shape; write MxNxK (512x4096x4096), N for a square, one of "
            f"{', '.join(SETS)}, random:COUNT, layers:COUNT, or the path of a file with one shape "
            "per line"
        )
    m, n, k = match.groups()
    return Case(_positive(m, word), _positive(n or m, word), _positive(k or m, word))


def _positive(digits: str, text: str) -> int:
    if digits.isdigit() and int(digits) > 0:
        return int(digits)
    raise TiercelValueError(f"shapes: {text!r} needs positive whole numbers, got {digits!r}")


def _words(text: str) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]
