"""Products like an earlier one: a frame that is filled but for the addresses, run by one call."""

from __future__ import annotations

import ctypes

import numpy as np

from tiercel.lower.recipe import Recipe
from tiercel.lower.steps import steps
from tiercel.targets.cpu import workspace
from tiercel.targets.cpu.frame import Frame
from tiercel.targets.cpu.kernel import prepare
from tiercel.targets.cpu.params import DONE, REFUSED
from tiercel.targets.cpu.pool.pool import Team, pool
from tiercel.targets.cpu.shortcut import address


def repeatable(recipe: Recipe) -> bool:
    """Whether `Repeat` can run a recipe: one of a single step."""
    return address.READABLE and len(steps(recipe)) == 1


class Repeat:
    """``repeat(a, b, c)`` for arrays of the shapes, strides and dtype of the first three.

    Computes C in place and returns DONE; REFUSED where the guard refused the data (C is then
    undefined), or there is no memory; UNLIKE, having done nothing, where c overlaps a or b, or one
    is not aligned.
    """

    __slots__ = ("_idle", "_like", "_packed_a", "_prepared", "_private", "_threads", "nbytes")

    def __init__(self, recipe: Recipe, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
        blocking = recipe.blocking
        self._prepared = prepare(recipe)
        self._threads = recipe.threads
        self._private = recipe.threads * blocking.private
        self._packed_a = blocking.packed_a
        self.nbytes = self._private + blocking.packed_a + blocking.packed
        if recipe.swapped:
            a, b, c = b.T, a.T, c.T
        self._like = _hollow(a), _hollow(b), _hollow(c)
        self._idle: list[Frame] = []

    def __call__(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> int:
        if self._prepared.recipe.swapped:
            a, b = b, a
        if self._threads == 1:
            return self._run(1, id(a), id(b), id(c))
        with Team(self._threads) as threads:
            return self._run(threads, id(a), id(b), id(c))

    def _run(self, threads: int, a: int, b: int, c: int) -> int:
        try:
            buffer = workspace.take(self.nbytes)
        except MemoryError:
            return REFUSED
        try:
            frame = self._idle.pop()
        except IndexError:  # the first call, or more at once than ever before
            frame = self._frame()
        try:
            if frame.lent != (buffer.address, threads):
                self._lend(frame, buffer.address, threads)
            kernels = self._prepared.library
            state = kernels.again(frame.address, a, b, c, threads == 1)
            if threads > 1 and state == DONE:
                state = pool().run(kernels.gemm, kernels.address, frame.address, threads)
            return state
        finally:
            self._idle.append(frame)
            workspace.give(buffer)

    @property
    def is_simple(self) -> bool:
        """Whether it runs on one thread, and no data are refused."""
        return self._threads == 1 and self._prepared.recipe.guard is None

    @property
    def swapped(self) -> bool:
        """Whether A and B change places."""
        return self._prepared.recipe.swapped

    @property
    def again_address(self) -> int:
        """Of the function that computes with a filled frame, see ``renew.py``."""
        return ctypes.cast(self._prepared.library.again, ctypes.c_void_p).value or 0

    def frame(self, memory: int) -> Frame:
        """A frame for one thread, to be used with ``nbytes`` of memory."""
        frame = self._frame()
        self._lend(frame, memory, 1)
        return frame

    def _frame(self) -> Frame:
        frame = self._prepared.frame()
        frame.fill(self._prepared.steps[0], *self._like, None)
        return frame

    def _lend(self, frame: Frame, private: int, threads: int) -> None:
        behind = private + self._private
        frame.lend(threads, private, self._packed_a and behind, behind + self._packed_a)
        frame.lent = private, threads


def _hollow(x: np.ndarray) -> np.ndarray:
    """An array of the shape, strides and dtype of x, without memory for more than one element."""
    return np.lib.stride_tricks.as_strided(np.empty(1, x.dtype), x.shape, x.strides)
