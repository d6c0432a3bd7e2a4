"""How much of a GPU a product keeps busy: its tiles, in waves of one for each multiprocessor."""

from __future__ import annotations

from functools import lru_cache

#: (rows, columns, rate over the best tile): what a vendor's library chooses from. 16-bit rates as
#: measured for our own kernel of these shapes; the vendor's are not documented.
TENSOR_TILES = (
    (128, 256, 1.0), (256, 128, 1.0), (128, 192, 0.98), (128, 128, 0.96), (64, 256, 0.93),
    (128, 64, 0.9), (64, 64, 0.85),
)  # fmt: skip
SCALAR_TILES = ((128, 128, 1.0), (128, 64, 0.97), (64, 64, 0.9), (32, 64, 0.7))


@lru_cache(maxsize=4096)
def used(M: int, N: int, batch: int, multiprocessors: int, sixteen_bit: bool) -> float:
    """Share of its best rate that the best tile reaches: edges, and the last wave, idle.

    >>> used(4096, 4096, 1, 132, True)
    0.969...
    >>> used(128, 128, 1, 132, False) < 0.05
    True
    """
    tiles = TENSOR_TILES if sixteen_bit else SCALAR_TILES
    return max(rate * share(M, N, batch, multiprocessors, m, n) for m, n, rate in tiles)


def share(M: int, N: int, batch: int, workers: int, m: int, n: int) -> float:
    """Useful part of the time of ``workers`` that compute m × n tiles one after the other."""
    tiles = -(-M // m) * -(-N // n) * batch
    waves = -(-tiles // workers)
    return M * N * batch / (m * n * workers * waves)
