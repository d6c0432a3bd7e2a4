"""The work of a call, prepared once and repeated on other memory.

Choosing kernels, slicing blocks and letting Triton look at every argument takes longer than many a
product, and what comes out depends on sizes, strides and alignment alone. So work is written down
for *stand-ins*: tensors without memory, views into an address space in which every tensor of the
call has a part of its own. Repeating it adds the tensors' addresses to those of the stand-ins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
from torch import Tensor
from triton.runtime import driver

from tiercel.targets.gpu.failure import building

#: Bytes of the address space for each tensor of a call.
SPAN = 1 << 40

#: Addresses count modulo this: Triton compiles other kernels for other alignments.
ALIGNMENT = 16

#: Triton from 3.3 on launches a compiled kernel with all its arguments, the compile-time ones too.
_DIRECT = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 3)


def stand_in(
    slot: int, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, start: int = 0
) -> Tensor:
    """A tensor without memory, ``start`` elements into the part of the call's tensor ``slot``."""
    space = torch.empty((slot + 1) * SPAN // dtype.itemsize, dtype=dtype, device="meta")
    return space.as_strided(shape, strides, slot * SPAN // dtype.itemsize + start)


def place(x: Tensor) -> tuple[int, int]:
    """(slot, bytes from the start of its tensor) of a stand-in or a view of one.

    >>> place(stand_in(3, (8, 8), (8, 1), torch.float32)[2:, 1:])
    (3, 68)
    """
    return divmod(x.storage_offset() * x.element_size(), SPAN)


class Memory:
    """The tensors of one call by slot, None where it has none; for the current stream.

    Complex tensors are as stored, without a conjugation that is still to be done.
    """

    def __init__(self, tensors: Sequence[Tensor | None]) -> None:
        self.tensors = tensors
        self.addresses = [0 if x is None else x.data_ptr() for x in tensors]
        # With the stand-in, which must live on: another one could else get its id.
        self._views: dict[int, tuple[Tensor, Tensor]] = {}

    def view(self, x: Tensor) -> Tensor:
        """The memory that a stand-in stands for."""
        found = self._views.get(id(x))
        if found is None:
            slot, offset = place(x)
            tensor = self.tensors[slot]
            assert tensor is not None, f"work on tensor {slot} of a call without one"
            if tensor.dtype != x.dtype:
                is_complex = tensor.is_complex()
                tensor = torch.view_as_real(tensor) if is_complex else tensor.view(x.dtype)
            start = tensor.storage_offset() + offset // x.element_size()
            found = self._views[id(x)] = x, tensor.as_strided(x.shape, x.stride(), start)
        return found[1]


#: What a call does with its tensors, on a stream.
Work = Callable[[Memory, int], None]


class Launch:
    """One Triton kernel with its arguments, tensors being stand-ins.

    The first launch is Triton's, which compiles and looks at the arguments. The others call what it
    compiled, with addresses in place of tensors.
    """

    def __init__(self, kernel: Any, blocks: int, *arguments: Any, **constants: Any) -> None:
        self.kernel, self.grid = kernel, (blocks, 1, 1)
        self.arguments, self.constants = arguments, constants
        self._run: Any = None
        self._values: list[Any] = []
        self._places: list[tuple[int, int, int]] = []

    def __call__(self, memory: Memory, stream: int) -> None:
        if self._run is None:
            self._first(memory)
            return
        values, addresses = self._values.copy(), memory.addresses
        for position, slot, offset in self._places:
            values[position] = addresses[slot] + offset
        self._run(*values, stream=stream)

    def _first(self, memory: Memory) -> None:
        values = [memory.view(x) if isinstance(x, Tensor) else x for x in self.arguments]
        with building():
            compiled = self.kernel[self.grid](*values, **self.constants)
        if compiled is None or not _DIRECT:  # Triton's interpreter compiles nothing
            return
        rest = self.kernel.arg_names[len(self.arguments) :]
        self._values = [*self.arguments, *(self.constants[name] for name in rest)]
        self._places = [
            (position, *place(x)) for position, x in enumerate(self._values)
            if isinstance(x, Tensor)
        ]  # fmt: skip
        self._run = compiled[self.grid]


def current_stream(x: Tensor) -> int:
    """The stream that work on ``x`` goes to."""
    if not x.is_cuda:
        return 0
    # torch.cuda.current_stream makes an object: 8 us instead of 0.2
    try:
        return driver.active.get_current_stream(x.get_device())
    except Exception:  # which builds the driver's part in C, once
        with building():
            raise
