"""Proof that a program multiplies matrices, independent of the scheme that it came from."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tiercel.errors import TiercelRuntimeError
from tiercel.lower.accumulator.program import (
    AccumulatorProgram,
    Load,
    Multiply,
    Plane,
    Save,
    Store,
)


def verify(program: AccumulatorProgram) -> AccumulatorProgram:
    """The program itself, if it computes C = A · B block by block and stores each block once.

    The steps are followed with symbolic products: the accumulator is a coefficient for each
    multiply. Each stored block must then satisfy the Brent equations. Exact as long as the
    coefficients are sums of few powers of two, as those of schemes in use are; with others, a
    deviation of 1e-9 is accepted.

    Raises:
        TiercelRuntimeError: a block is wrong, missing or stored twice.
    """
    multiplies = [step for step in program.steps if isinstance(step, Multiply)]
    stored, counts = _outputs(program, len(multiplies))
    if counts != dict.fromkeys(range(program.m * program.n), 1):
        raise TiercelRuntimeError(
            f"program {program.name} must store each of its {program.m * program.n} blocks of C "
            f"once: got {counts}"
        )
    a = _rows(program.a_planes, program.m * program.k)[[step.a for step in multiplies]]
    b = _rows(program.b_planes, program.k * program.n)[[step.b for step in multiplies]]
    wanted = np.zeros((program.m, program.n, program.m, program.k, program.k, program.n))
    i, inner, j = np.indices((program.m, program.k, program.n))
    wanted[i, j, i, inner, inner, j] = 1.0
    for c, target in enumerate(wanted.reshape(len(stored), *wanted.shape[2:])):
        got = (a * stored[c][:, None]).T @ b
        off = np.abs(got - target.reshape(got.shape)).max()
        if off > 1e-9:
            raise TiercelRuntimeError(
                f"program {program.name} does not multiply: block {c} of C is off by {off:g} in "
                "some coefficient"
            )
    return program


def _outputs(program: AccumulatorProgram, products: int) -> tuple[np.ndarray, dict[int, int]]:
    """Coefficient of each multiply in each block of C, and how often each block is stored."""
    unit = iter(np.eye(products))
    stored = np.zeros((program.m * program.n, products))
    counts: dict[int, int] = {}
    slots: dict[int, np.ndarray] = {}
    acc = np.zeros(products)
    for step in program.steps:
        match step:
            case Multiply(clear=clear):
                acc = next(unit) + (0 if clear else acc)
            case Save(slot):
                slots[slot] = acc
            case Load(slot, scale, clear):
                acc = scale * slots[slot] + (0 if clear else acc)
            case Store(c, scale):
                stored[c] = scale * acc
                counts[c] = counts.get(c, 0) + 1
    return stored, dict(sorted(counts.items()))


def _rows(planes: Iterable[Plane], blocks: int) -> np.ndarray:
    planes = tuple(planes)
    rows = np.zeros((len(planes), blocks))
    for row, plane in zip(rows, planes, strict=True):
        for block, coefficient in plane.terms:
            row[block] = coefficient
    return rows
