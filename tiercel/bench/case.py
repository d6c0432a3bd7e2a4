"""One product to be measured: sizes, dtype, layouts, threads and what is asked of tiercel."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.errors import TiercelValueError

DTYPES = {
    "float32": "float32",
    "fp32": "float32",
    "f32": "float32",
    "float64": "float64",
    "fp64": "float64",
    "f64": "float64",
}


def canonical_dtype(name: str) -> str:
    """The NumPy name of a dtype that the benchmark can measure.

    >>> canonical_dtype("fp32")
    'float32'
    """
    try:
        return DTYPES[name.lower()]
    except KeyError:
        raise TiercelValueError(
            f"dtype: got {name!r}; the benchmark measures float32 and float64 "
            "(also written fp32, f32, fp64, f64)"
        ) from None


@dataclass(frozen=True)
class Case:
    """``C = A @ B`` with A of shape (M, K), B of shape (K, N) and C of shape (M, N).

    ``layout_a`` and ``layout_b`` are ``"row"`` (C order) or ``"col"`` (the transpose of a C-ordered
    array, as a PyTorch weight is). C is always written in C order. ``static_b`` packs B once with
    `tiercel.pack` outside the timed region; peers multiply B as it is. ``workspace`` (bytes),
    ``scheme`` and ``accuracy`` are handed to `tiercel.matmul`. ``bar`` is the least acceptable
    ratio to the best peer.

    >>> Case(4096, 4096, 4096).label
    '4096³'
    >>> Case(128, 4096, 1024, layout_b="col", static_b=True).label
    '128×4096×1024 Bᵀ packed'
    """

    m: int
    n: int
    k: int
    dtype: str = "float32"
    layout_a: str = "row"
    layout_b: str = "row"
    static_b: bool = False
    threads: int = 1
    group: str = "listed"
    bar: float | None = None
    workspace: int | None = None
    scheme: str | None = None
    accuracy: str | None = None

    @property
    def flops(self) -> int:
        """Operations of the classical product, 2·M·N·K: what an effective rate is counted in."""
        return 2 * self.m * self.n * self.k

    @property
    def is_square(self) -> bool:
        return self.m == self.n == self.k

    @property
    def size_label(self) -> str:
        return f"{self.m}³" if self.is_square else f"{self.m}×{self.n}×{self.k}"

    @property
    def label(self) -> str:
        """The sizes (M×N×K), then whatever differs from a plain product."""
        marks = [self.size_label]
        if self.layout_a == "col":
            marks.append("Aᵀ")
        if self.layout_b == "col":
            marks.append("Bᵀ")
        if self.static_b:
            marks.append("packed")
        if self.workspace is not None:
            marks.append(f"ws {self.workspace / 2**20:.0f} MiB")
        marks += [value for value in (self.scheme, self.accuracy) if value]
        return " ".join(marks)
