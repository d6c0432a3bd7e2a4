"""The memory of one running call: parameter block, records of operands, words threads share.

Frames are filled anew at every call and used again: what a recipe's calls have in common is written
once, when a frame is made.
"""

from __future__ import annotations

import ctypes
import struct

import numpy as np

from tiercel.lower.steps import Step, View
from tiercel.targets.cpu import params
from tiercel.targets.cpu.packed import Packed
from tiercel.targets.cpu.params import LINE
from tiercel.targets.cpu.shortcut.address import address

OPERANDS = struct.Struct(f"={len(params.OPERAND_FIELDS)}q")
LENT = struct.Struct(f"={len(params.LENT_FIELDS)}q")
TERM = struct.Struct("=qdqq")  # params.TERM
TARGET = struct.Struct("=qdqqqqq")  # params.TARGET


class Frame:
    """Parameter block and records for the steps of one recipe, at a fixed address.

    ``constants``: the block's ``params.CONSTANT_FIELDS``; ``widest``: most views of A, B
    and C in a step; ``threads``: that may take part; ``tickets``: counters of shared tasks.
    ``lent``: what a user of the frame remembers of the memory that it lent last.
    """

    lent: tuple[int, int] | None = None

    def __init__(
        self, constants: bytes, widest: tuple[int, int, int], threads: int, tickets: int
    ) -> None:
        a, b, c = widest
        variable = OPERANDS.size + LENT.size
        self._a = variable + len(constants)
        self._b = self._a + a * TERM.size
        self._c = self._b + b * TERM.size
        records = self._c + c * TARGET.size
        # barrier, "gave up", one line of statistics per thread, then the tickets
        lines = 2 + threads + tickets
        self._zeros = bytes(lines * LINE)
        self._buffer = bytearray(records + (lines + 1) * LINE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))
        self._shared = records + -(self.address + records) % LINE
        self._threads = threads
        self._buffer[variable : self._a] = constants

    @property
    def stats(self) -> int:
        """Address of the threads' statistics records, ``LINE`` bytes apart."""
        return self.address + self._shared + 2 * LINE

    def fill(
        self,
        step: Step,
        a: np.ndarray | None,
        b: np.ndarray | None,
        c: np.ndarray | None,
        bias: np.ndarray | None,
    ) -> None:
        """Describe the operands of a step; None for one that the driver will not touch."""
        OPERANDS.pack_into(
            self._buffer, 0, step.K,
            *(_NOTHING if a is None else self._terms(self._a, a, step.a)),
            *(_NOTHING if b is None else self._terms(self._b, b, step.b)),
            *(_NOTHING if c is None else self._targets(c, step, bias)),
        )  # fmt: skip

    def lend(
        self, threads: int, private: int, packed_a: int, packed_b: int, packed_step: int = 0
    ) -> None:
        """Memory for a pass that packs B itself; resets what the threads share."""
        self._lend(packed_b, packed_step, 0, packed_a, private, threads, self.stats, threads)

    def lend_packed(self, threads: int, private: int, packed_a: int, b: Packed, index: int) -> None:
        """The same for step ``index`` with an operand that is packed already."""
        at, step = b.address(index), b.recipe.blocking.packed
        self._lend(at, step, 1, packed_a, private, threads, b.scales_address, 1)

    def _lend(
        self, packed_b: int, packed_step: int, ready: int, packed_a: int, private: int,
        threads: int, stats: int, stats_count: int,
    ) -> None:  # fmt: skip
        sync = self.address + self._shared
        tickets = sync + (2 + self._threads) * LINE
        LENT.pack_into(
            self._buffer, OPERANDS.size,
            packed_b, packed_step, ready, packed_a, private,
            threads, sync, tickets, stats, stats_count,
        )  # fmt: skip
        self._buffer[self._shared : self._shared + len(self._zeros)] = self._zeros

    def _terms(self, offset: int, x: np.ndarray, views: tuple[View, ...]) -> tuple[int, ...]:
        """Write records of views; returns the fields that describe the operand."""
        at, (rs, cs) = address(x), x.strides
        to = offset
        for v in views:
            TERM.pack_into(self._buffer, to, at + v.row * rs + v.col * cs, v.coef, v.rows, v.cols)
            to += TERM.size
        return self._fields(offset, len(views), x)

    def _targets(self, c: np.ndarray, step: Step, bias: np.ndarray | None) -> tuple[int, ...]:
        at, (rs, cs) = address(c), c.strides
        bias_at = 0 if bias is None else address(bias)
        to = self._c
        for target in step.c:
            v, column = target.view, 0
            if bias is not None and target.last:
                column = bias_at + v.col * bias.itemsize
            TARGET.pack_into(
                self._buffer, to, at + v.row * rs + v.col * cs, v.coef, v.rows, v.cols,
                not target.first, column, target.last,
            )  # fmt: skip
            to += TARGET.size
        return self._fields(self._c, len(step.c), c)

    def _fields(self, offset: int, count: int, x: np.ndarray) -> tuple[int, ...]:
        """Records, their number, strides in bytes; a complex matrix is planes half an item apart.

        A stride is never used along a dimension of length 1, where NumPy may report anything; the
        kernels choose their path by it, so say "contiguous".
        """
        (rs, cs), itemsize = x.strides, x.itemsize
        if x.shape[1] == 1:
            cs = itemsize
        return self.address + offset, count, rs, cs, itemsize // 2


_NOTHING = (0, 0, 0, 0, 0)
