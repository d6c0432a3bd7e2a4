"""One 2-D product, as far as a planner must know it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

#: dtype -> (compute dtype, storage of one real plane, bytes of an element, complex)
DTYPES = {
    "float32": ("float32", "float32", 4, False),
    "float64": ("float64", "float64", 8, False),
    "complex64": ("float32", "float32", 8, True),
    "complex128": ("float64", "float64", 16, True),
    "float16": ("float32", "float16", 2, False),
    "bfloat16": ("float32", "bfloat16", 2, False),
}

#: The same of products on a GPU. "tfloat32" are float32 operands of which 11 bits are multiplied.
GPU_DTYPES = {**DTYPES, "tfloat32": ("float32", "float32", 4, False)}

#: What people write for a dtype.
SHORT_NAMES = {
    "fp32": "float32", "fp64": "float64", "fp16": "float16", "bf16": "bfloat16", "tf32": "tfloat32",
}  # fmt: skip


#: Layout of the transpose.
_TURNED = {"row": "col", "col": "row", "strided": "strided"}


@dataclass(frozen=True)
class Problem:
    """C (M, N) = epilogue(A (M, K) · B (K, N) + bias) in ``dtype``.

    ``layout_*``: "row", "col" or "strided". ``accuracy``: "classical", "standard", "fast", or a
    bound on the RMS error growth. ``workspace``: bytes of extra memory allowed, None for the
    default. ``scheme``: a name or a ``Scheme`` that must be used, None to choose. ``static_b``: B
    is packed once and its packing costs nothing. ``must_use``: a named scheme may not be replaced
    by NumPy's product where that is faster (it may when the scheme comes with a packed operand).
    """

    M: int
    N: int
    K: int
    dtype: str = "float32"
    layout_a: str = "row"
    layout_b: str = "row"
    layout_c: str = "row"
    epilogue: str | None = None
    bias: bool = False
    accuracy: str | float = "standard"
    workspace: int | None = None
    scheme: Any = None
    threads: int = 1
    static_b: bool = False
    must_use: bool = True

    @cached_property
    def flops(self) -> int:
        """Real operations of the classical product: 2MNK, four times that for complex."""
        return 2 * self.M * self.N * self.K * (4 if self.is_complex else 1)

    @property
    def swapped(self) -> Problem:
        """The same product as Cᵀ = Bᵀ Aᵀ.

        >>> turned = Problem(2, 3, 4, layout_a="col").swapped
        >>> turned.M, turned.layout_a, turned.layout_b, turned.layout_c
        (3, 'col', 'row', 'col')
        """
        a, b, c = (_TURNED[x] for x in (self.layout_a, self.layout_b, self.layout_c))
        return replace(self, M=self.N, N=self.M, layout_a=b, layout_b=a, layout_c=c)

    @property
    def compute(self) -> str:
        return GPU_DTYPES[self.dtype][0]

    @property
    def storage(self) -> str:
        return GPU_DTYPES[self.dtype][1]

    @property
    def itemsize(self) -> int:
        return GPU_DTYPES[self.dtype][2]

    @property
    def is_complex(self) -> bool:
        return GPU_DTYPES[self.dtype][3]

    @property
    def array_dtype(self) -> str:
        """The dtype of the operands as arrays.

        >>> Problem(2, 2, 2, "tfloat32").array_dtype
        'float32'
        """
        return "float32" if self.dtype == "tfloat32" else self.dtype

    @property
    def crossed(self) -> bool:
        """Whether neither operand is contiguous along K."""
        return self.layout_a == "col" and self.layout_b == "row"

    @property
    def operand_bytes(self) -> int:
        """Bytes of A and B."""
        return self.itemsize * (self.M * self.K + self.K * self.N)
