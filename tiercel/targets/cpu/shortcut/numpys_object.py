"""``PyArrayObject`` as generated code reads it: bytes from an array object's head.

Part of NumPy's binary interface: data, number of axes (int), shape, strides, base, dtype, flags
(int).
"""

from __future__ import annotations

from tiercel.targets.cpu.shortcut.address import AT

AXES, SHAPE, STRIDES, DTYPE, FLAGS = AT + 8, AT + 16, AT + 24, AT + 40, AT + 48
TYPE = AT - 8  # the last word of an object's head

ALIGNED, WRITEABLE = 0x100, 0x400  # bits of the flags
