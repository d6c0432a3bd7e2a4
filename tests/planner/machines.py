"""Machines with made-up speeds, so that plans do not depend on where the tests run."""

from dataclasses import replace
from typing import Any

from tiercel.lower.blocking import Tile
from tiercel.planner.machine import Machine, Rates

#: One core of an AVX2 machine: NumPy at 90 % of the peak, both kernels as measured on Zen 3.
USUAL = Rates(
    peak=100, kernel=0.97, tile=14, update=11, sum_a=40, sum_b=40, stage=9, store=7, read=14,
    vendor=90, half=(12, 12, 12), half_columns=(12, 12), vendor_all_cores=340,
    half_all_cores=(12, 12, 12), scaling=3.8, memory_scaling=2.5,
)  # fmt: skip

TILES = {"float32": Tile(6, 16, 8, 4), "float64": Tile(6, 8, 8, 8)}

MACHINE = Machine(
    name="Made-up CPU", isa="avx2", cores=4, l1=32 << 10, l2=512 << 10, l3=32 << 20, tiles=TILES,
    rates={"float32": USUAL, "float64": replace(USUAL, peak=50, vendor=45, vendor_all_cores=170)},
    fingerprint="made-up", measured=False,
)  # fmt: skip

#: No kernels: an instruction set that is not supported, or no compiler.
BARE = replace(MACHINE, tiles={}, notes={"unavailable": "no compiler"})


def with_rates(machine: Machine, **rates: Any) -> Machine:
    """The same machine with other speeds for both compute dtypes."""
    changed = {dtype: replace(old, **rates) for dtype, old in machine.rates.items()}
    return replace(machine, rates=changed)


#: Additions and write-back cost nothing and NumPy is slow: every level pays off at any size.
EAGER = with_rates(
    MACHINE, tile=0, update=0, sum_a=1e6, sum_b=1e6, stage=1e6, store=1e6,
    vendor=10, half=(0, 0, 0), half_columns=(0, 0), half_all_cores=(0, 0, 0),
)  # fmt: skip
