"""What one product on the GPU does: which levels loop, which are computed at once, and its memory.

Pure Python: nothing here needs PyTorch or a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce

from tiercel.lower.blocking import ceil_div
from tiercel.lower.program import Program, lower
from tiercel.schemes import Scheme, tensor

#: Sides of a plane are multiples of this many elements. The vendor's kernels load 16 bytes at once
#: (8 elements of 16 bits), and Triton compiles a kernel anew, for seconds, if a size is a multiple
#: of 8 only.
ALIGN = 16

#: Most real products and blocks of the levels that one combination kernel handles: two levels of a
#: 2×2×2 scheme have 49 and 16, one level for complex numbers 21 and 8. Two complex levels (147 and
#: 32) spilled 6 KB a thread.
MOST_PRODUCTS = 72
MOST_BLOCKS = 36

#: Bytes between planes. Where their rows are a power of two long, planes one after the other fall
#: into the same sets of caches: cuBLAS multiplies 49 float32 ones of 1024 × 1024 at 50.4 TFLOP/s
#: with a gap and at 49.9 without, other planes at the same rate (H200). Writing them takes 7 %
#: longer if they do not begin at multiples of 512 bytes.
GAP = 512

BYTES = {
    "float16": (2, 4),
    "bfloat16": (2, 4),
    "float32": (4, 4),
    "float64": (8, 8),
    "complex64": (4, 4),
    "complex128": (8, 8),
}


@dataclass(frozen=True)
class Recipe:
    """Products of ``outer`` one after the other, each through all products of ``inner`` at once.

    ``outer`` adds multiples of a finished product to blocks of C, which costs time (C is read
    again) and saves memory (planes are as small as its blocks). ``batched``: the products of
    ``inner`` are one strided-batched call of the vendor's library, the fastest way; else they are
    one call each, and operands that are plain blocks are used where they lie, which saves memory.
    """

    outer: Program
    inner: Program
    batched: bool

    @property
    def grid(self) -> tuple[int, int, int]:
        """(m, k, n) of both levels together."""
        outer, inner = self.outer, self.inner
        return outer.m * inner.m, outer.k * inner.k, outer.n * inner.n

    @property
    def products(self) -> int:
        """Real products that the vendor's library computes."""
        return len(self.outer.products) * len(self.inner.products)

    def __str__(self) -> str:
        how = "batched" if self.batched else "one by one"
        return f"{self.outer.name} × [{self.inner.name}, {how}]"


def plane_sizes(M: int, N: int, K: int, recipe: Recipe) -> tuple[int, int, int]:
    """(M, N, K) of one real product: the blocks' sides, rounded up to multiples of ``ALIGN``."""
    m, k, n = recipe.grid
    return _side(M, m), _side(N, n), _side(K, k)


def _side(size: int, parts: int) -> int:
    return ceil_div(size, parts * ALIGN) * ALIGN


def read_in_place(
    recipe: Recipe,
    operand: str,
    size: tuple[int, int],
    grid: tuple[int, int],
    plane: tuple[int, int],
    *,
    sources: int | None = None,
) -> frozenset[int]:
    """Inner products whose operand ``"a"`` or ``"b"`` is a block used where it lies.

    That takes a block with coefficient 1, products that run one by one, blocks that need no
    padding, and a single source (default: in every outer product).
    """
    if sources is None:
        sources = recipe.outer.widest(operand)
    exact = size == (grid[0] * plane[0], grid[1] * plane[1])
    if recipe.batched or recipe.inner.planes > 1 or sources > 1 or not exact:
        return frozenset()
    terms = [getattr(product, operand) for product in recipe.inner.products]
    return frozenset(r for r, found in enumerate(terms) if len(found) == 1 and found[0][1] == 1.0)


def workspace_bytes(
    M: int,
    N: int,
    K: int,
    dtype: str,
    recipe: Recipe | None,
    *,
    packed: bool = False,
) -> int:
    """Bytes of device memory that one 2-D product (M, K) · (K, N) takes beyond its operands.

    Args:
        M: rows of A and C.
        N: columns of B and C.
        K: columns of A, rows of B.
        dtype: name of the operands' dtype, a key of ``BYTES``.
        recipe: what is run; None is the vendor's product, which takes nothing.
        packed: B is packed already, so that its planes do not count.

    >>> from tiercel.schemes import get
    >>> both = recipe_for([get("strassen")] * 2, 8192, 8192, 8192, "float32")
    >>> round(workspace_bytes(8192, 8192, 8192, "float32", both) / 8192**2 / 4, 3)
    9.188
    """
    if recipe is None:
        return 0
    operand, result = BYTES[dtype]
    h, w, d = plane_sizes(M, N, K, recipe)
    m, k, n = recipe.grid
    count = len(recipe.inner.products)
    a_planes = count - len(read_in_place(recipe, "a", (M, K), (m, k), (h, d)))
    b_planes = count - len(read_in_place(recipe, "b", (K, N), (k, n), (d, w)))
    total = a_planes * (h * d * operand + GAP) + count * (h * w * result + GAP)
    return total + (0 if packed else b_planes * (d * w * operand + GAP))


def recipe_for(
    levels: Sequence[Scheme],
    M: int,
    N: int,
    K: int,
    dtype: str,
    *,
    workspace: int | None = None,
    packed: bool = False,
) -> Recipe | None:
    """The fastest way to run ``levels`` (outermost first) within ``workspace`` bytes.

    As many of the inner levels as one kernel can hold are computed at once; each level that is
    moved to the outer loop divides the memory by its number of products. 16-bit results are rounded
    once, so that their levels cannot move out, and their planes are float16, never blocks in place.

    Returns None when not even one product at a time fits: then the vendor's routine, which needs no
    memory, is the way.

    >>> from tiercel.schemes import get
    >>> three = [get("strassen"), get("winograd"), get("strassen")]
    >>> print(recipe_for(three, 8192, 8192, 8192, "float32"))
    strassen × [winograd*strassen, batched]
    >>> print(recipe_for(three, 8192, 8192, 8192, "float32", workspace=100 << 20))
    strassen*winograd × [strassen, batched]
    """
    is_complex = dtype.startswith("complex")
    for split in range(len(levels) + 1):
        inner = _program(tuple(levels[split:]), is_complex)
        blocks = max(inner.m * inner.k, inner.k * inner.n, inner.m * inner.n) * inner.planes
        if len(inner.products) > MOST_PRODUCTS or blocks > MOST_BLOCKS:
            continue
        if split and BYTES[dtype][0] == 2:
            break
        outer = _program(tuple(levels[:split]), False)
        for batched in (True, False) if BYTES[dtype][0] > 2 else (True,):
            recipe = Recipe(outer, inner, batched)
            needed = workspace_bytes(M, N, K, dtype, recipe, packed=packed)
            if workspace is None or needed <= workspace:
                return recipe
    return None


@lru_cache(maxsize=256)
def _program(levels: tuple[Scheme, ...], is_complex: bool) -> Program:
    scheme = reduce(tensor, levels) if levels else None
    return lower(scheme, is_complex=is_complex)
