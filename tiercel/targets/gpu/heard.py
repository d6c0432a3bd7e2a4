"""The guard's verdict, as the host can tell it from the records that a product leaves behind."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tiercel.lower.recipe import Guard

#: Gets a ``Judge`` and the tensors, on the device, whose elements it is to judge one day.
Report = Callable[..., Any]

#: Bits of infinity, by the bytes of a float.
INFINITY = {4: 0x7F800000, 8: 0x7FF0000000000000}

_FORMATS = {4: ("<i", "<f"), 8: ("<q", "<d")}


@dataclass(frozen=True)
class Judge:
    """Says what ``guard.refused`` has said on the device. ``item_bytes``: of a record's floats."""

    guard: Guard
    item_bytes: int

    def refuses(self, words: Sequence[int]) -> bool:
        """``words``: the record of A in four integers, that of B in four; a packed B's in three.

        Records are as ``guard.segment_means`` leaves them. (A packed B's follows four of none.)

        >>> ones, small = bits_of(1.0, 4), bits_of(0.01, 4)
        >>> even, uneven = [ones, INFINITY[4] - ones, 0, 0], [ones, INFINITY[4] - small, 0, 0]
        >>> judge = Judge(Guard(16.0, 1e30), 4)
        >>> judge.refuses(even + even), judge.refuses(even + uneven)
        (False, True)
        """
        most_a, least_a = self._extremes(words)
        most_b, least_b = self._extremes(words[4:] if len(words) == 8 else words[8:])
        even = most_a * most_b <= self.guard.limit * least_a * least_b
        small = max(most_a, most_b, most_a * most_b) <= self.guard.headroom
        sane = math.isfinite(most_a) and math.isfinite(most_b) and least_a > 0 and least_b > 0
        return not (even and small and sane)

    def _extremes(self, record: Sequence[int]) -> tuple[float, float]:
        integer, floating = _FORMATS[self.item_bytes]
        bits = record[0], INFINITY[self.item_bytes] - record[1]
        most, least = (struct.unpack(floating, struct.pack(integer, x))[0] for x in bits)
        return most, least


def bits_of(value: float, item_bytes: int) -> int:
    """The bits of a float, as an integer."""
    integer, floating = _FORMATS[item_bytes]
    return struct.unpack(integer, struct.pack(floating, value))[0]
