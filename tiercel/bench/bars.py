"""The speeds that the CPU target must reach, as ratios to the best peer at the same threads.

Stated for a two-core AVX2 machine. Each row becomes measured cases; `Case.bar` carries the number
so that the table and the picture can say which were met.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tiercel.bench.case import Case


@dataclass(frozen=True)
class Bar:
    """Least ratios for one shape: one thread, two threads, and one thread with B packed once."""

    m: int
    n: int
    k: int
    one_thread: float
    two_threads: float
    packed: float | None
    dtype: str = "float32"


BARS = (
    Bar(1024, 1024, 1024, 1.08, 1.08, 1.15),
    Bar(2048, 2048, 2048, 1.17, 1.17, 1.25),
    Bar(4096, 4096, 4096, 1.25, 1.25, 1.30),
    Bar(6144, 6144, 6144, 1.28, 1.28, 1.30),
    Bar(2048, 11008, 4096, 1.22, 1.20, 1.28),
    Bar(1024, 4096, 4096, 1.16, 1.14, 1.30),
    Bar(512, 4096, 4096, 1.06, 1.05, 1.22),
    Bar(128, 4096, 4096, 1.00, 1.00, 1.13),
    Bar(2048, 2048, 2048, 1.15, 1.12, None, "float64"),
    Bar(4096, 4096, 4096, 1.30, 1.25, None, "float64"),
)

TRANSPOSED_ALLOWANCE = 0.96  # a transposed operand may cost 4 % of the plain ratio
ODD_ALLOWANCE = 0.97  # an odd size may cost 3 % of its even neighbour's ratio
ODD_NEIGHBOURS = {(2047, 2047, 2047): BARS[1], (4095, 4097, 4099): BARS[2]}
CLASSICAL_SIZES = (1024, 2048, 4096)


def bar_cases() -> list[Case]:
    """Every case that the table of bars asks for, in groups named after its columns and rows.

    >>> sorted({case.group for case in bar_cases()})
    ['classical', 'odd', 'packed', 'plain', 'transposed', 'workspace']
    """
    plain = [case for bar in BARS for case in _plain(bar)]
    return [
        *plain,
        *(_packed(bar) for bar in BARS if bar.packed),
        *(_transposed(case, side) for side in "ba" for case in plain),
        *(case for shape, bar in ODD_NEIGHBOURS.items() for case in _odd(shape, bar)),
        *_classical(),
        *_small_workspace(),
    ]


def _plain(bar: Bar) -> list[Case]:
    case = Case(bar.m, bar.n, bar.k, bar.dtype, group="plain")
    return [
        replace(case, threads=1, bar=bar.one_thread),
        replace(case, threads=2, bar=bar.two_threads),
    ]


def _packed(bar: Bar) -> Case:
    return Case(bar.m, bar.n, bar.k, bar.dtype, static_b=True, group="packed", bar=bar.packed)


def _transposed(case: Case, side: str) -> Case:
    bar = round((case.bar or 1.0) * TRANSPOSED_ALLOWANCE, 3)
    layout = {"a": {"layout_a": "col"}, "b": {"layout_b": "col"}}[side]
    return replace(case, group="transposed", bar=bar, **layout)


def _odd(shape: tuple[int, int, int], neighbour: Bar) -> list[Case]:
    ratios = {1: neighbour.one_thread, 2: neighbour.two_threads}
    return [
        Case(*shape, threads=threads, group="odd", bar=round(ratio * ODD_ALLOWANCE, 3))
        for threads, ratio in ratios.items()
    ]


def _classical() -> list[Case]:
    """Our own kernel without a scheme: it must already match the best BLAS."""
    return [
        Case(n, n, n, threads=threads, scheme="classical", group="classical", bar=1.0)
        for threads in (1, 2)
        for n in CLASSICAL_SIZES
    ]


def _small_workspace() -> list[Case]:
    """Extra memory of a quarter of the operands, and none: no bar, but the speed is recorded."""
    n = 4096
    quarter = 2 * n * n * 4 // 4
    return [
        Case(n, n, n, threads=threads, workspace=workspace, group="workspace")
        for threads in (1, 2)
        for workspace in (quarter, 0)
    ]
