"""How much of a GPU a product keeps busy: its tiles, in waves of one for each multiprocessor."""

from __future__ import annotations

import math
from functools import lru_cache

#: (rows, columns, rate over the best tile), as measured for our own 16-bit kernels of these shapes.
TENSOR_TILES = (
    (128, 256, 1.0), (256, 128, 1.0), (128, 192, 0.98), (128, 128, 0.96), (64, 256, 0.93),
    (128, 64, 0.9), (64, 64, 0.85),
)  # fmt: skip
SCALAR_TILES = ((128, 128, 1.0), (128, 64, 0.97), (64, 64, 0.9), (32, 64, 0.7))

#: The tiles of the vendor's single 16-bit products (cuBLAS 13.0, B stored along K), with the rates
#: by which it chooses: the tile whose waves, at its rate, take least. For 9 of 10 of 1428 products
#: that is the tile which ran; K, from 512 to 16384, hardly matters. Fitted to half of them.
VENDOR_TILES = (
    (192, 192, 1.0), (128, 320, 0.992), (128, 256, 0.971), (128, 192, 0.936), (192, 128, 0.935),
    (128, 176, 0.925), (256, 128, 0.921), (160, 128, 0.909), (128, 144, 0.897), (128, 168, 0.896),
    (128, 128, 0.846), (128, 112, 0.848), (128, 96, 0.758), (80, 128, 0.77), (64, 128, 0.706),
    (64, 96, 0.694),
)  # fmt: skip

#: Of these, PingPong tiles have at most so many elements: they hide their start and end.
MOST_HIDING = 128 * 176

#: Exponent of the share of multiprocessors which those waves keep busy: where some are idle, power
#: lets the clock rise for the others.
IDLE = 0.6

#: Such products, and TF32 ones, have at least as many tiles as this size makes.
SMALLEST = (64, 64)

#: The tile of the vendor's single float32 products, complex ones included, where the result fills
#: more than so many waves of it; it does not look for one that leaves fewer multiprocessors idle at
#: the end. H200, float32, 97 products with 0.9 to 2.7 waves: 18432 × 512 × 4096 fills 2.2 and runs
#: at 39.5 TFLOP/s, what 3 waves would take, as do 3072³ (39.2) and 15360 × 576 × 7168 (37.3);
#: 14848 × 576 × 7168 fills 1.98 (2.2 with its edges) and runs at 51.9.
SCALAR_TILE, WAVES = ((256, 128), (128, 256)), 2.0

#: With fewer waves it splits a long K: 1024 × 576 × 7168 runs at 46.1 TFLOP/s, where whole tiles of
#: any shape would come to 28; so do 1536² × 7168 (47.7) and 7680 × 576 × 7168 (45.5).
SPLIT_K, SPLIT_USED = 4096, 0.88

#: What its batched float32 routine chooses from, by the edges that are wasted and not by what the
#: last wave leaves idle: 7 planes of 4096 × 512 make 3.4 waves of 256 × 128 and run at 43.8
#: TFLOP/s, where 49 of 2048 × 256 run at 50.2. Over 545 shapes of planes, K from 128 to 9216, the
#: rates that follow are off by 1.9 % in the mean; those of the tile that would be best by 4.1 %.
#: With 0.84 for 128 × 64 ten products by planes of 192 or 288 columns took 4.8 % longer.
BATCHED_TILES = (
    (256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.88), (128, 64, 0.8), (64, 128, 0.84),
    (64, 64, 0.73), (32, 128, 0.6), (128, 32, 0.6),
)  # fmt: skip


#: Columns of a tile from which our kernel's multiprocessors share the last turn, and how much of
#: a turn that takes: over 41 products of 1 to 4.5 turns the gain predicted over cuBLAS is off by
#: 6.1 % instead of 6.4, and 3584 × 3072 × 15360, 2.5 turns, is no longer left to cuBLAS (1.045).
SHARED_COLUMNS, SHARING = 192, 0.3


@lru_cache(maxsize=4096)
def used(M: int, N: int, batch: int, multiprocessors: int, dtype: str, K: int = 0) -> float:
    """Share of its best rate that a product reaches: edges, and the last wave, idle.

    ``K``: of a single product, whose K may be split.

    >>> [round(used(4096, 4096, 1, 132, dtype), 2) for dtype in ("bfloat16", "float32")]
    [0.98, 0.97]
    >>> used(128, 128, 1, 132, "float32") < 0.05
    True
    """
    if batch > 1 and dtype in ("float32", "complex64"):
        m, n, rate = max(BATCHED_TILES, key=lambda tile: tile[2] * _inside(M, N, *tile[:2]))
        return rate * share(M, N, batch, multiprocessors, m, n)
    if batch == 1 and dtype in ("float16", "bfloat16", "tfloat32"):
        full = 1.0 if dtype == "tfloat32" else vendors(M, N, multiprocessors)[0] ** IDLE
        return min(full, waves(M, N, multiprocessors, *SMALLEST))
    if batch == 1 and dtype in ("float32", "complex64"):
        fixed = max(share(M, N, 1, multiprocessors, *tile) for tile in SCALAR_TILE)
        filled = M * N / (multiprocessors * SCALAR_TILE[0][0] * SCALAR_TILE[0][1])
        if filled > WAVES:
            return fixed
    if dtype in ("float16", "bfloat16"):
        return busy(M, N, batch, multiprocessors)
    best = max(rate * share(M, N, batch, multiprocessors, m, n) for m, n, rate in SCALAR_TILES)
    splits = batch == 1 and dtype == "float32" and K >= SPLIT_K
    return max(best, SPLIT_USED) if splits else best


def vendors(M: int, N: int, multiprocessors: int) -> tuple[float, bool]:
    """Of the tile that the vendor takes in 16 bits: the share of the multiprocessors' time that it
    uses, and whether it hides its start and end.

    >>> vendors(3584, 12288, 132)  # 14.85 waves of 128 × 176
    (0.9873278236914601, True)
    """
    tiles = [(share(M, N, 1, multiprocessors, m, n), m * n, rate) for m, n, rate in VENDOR_TILES]
    used, area, _ = max(tiles, key=lambda tile: tile[0] * tile[2])
    return used, area <= MOST_HIDING


def busy(M: int, N: int, batch: int, multiprocessors: int) -> float:
    """Share of the multiprocessors' time that the best of ``TENSOR_TILES`` uses."""
    return max(rate * share(M, N, batch, multiprocessors, m, n) for m, n, rate in TENSOR_TILES)


def busy_alone(M: int, N: int, multiprocessors: int) -> float:
    """The same of our 16-bit kernel, whose multiprocessors share a last turn that is not full."""
    return max(rate * _shared(M, N, multiprocessors, m, n) for m, n, rate in TENSOR_TILES)


def _shared(M: int, N: int, workers: int, m: int, n: int) -> float:
    tiles = waves(M, N, workers, m, n)
    turns = math.ceil(tiles)
    if turns > 1 and n >= SHARED_COLUMNS:
        turns = min(turns, tiles + SHARING)
    return M * N / (m * n * workers * turns)


def _inside(M: int, N: int, m: int, n: int) -> float:
    """Share of the tiles' area that lies inside."""
    return M * N / (-(-M // m) * m * -(-N // n) * n)


def waves(M: int, N: int, workers: int, m: int, n: int) -> float:
    """Tiles of m × n for each of the workers."""
    return -(-M // m) * -(-N // n) / workers


def full_rows(M: int, N: int, workers: int, m: int, n: int) -> int:
    """Most of M rows whose tiles of m × n are whole turns of the workers, about.

    >>> full_rows(19456, 7168, 66, 512, 512)  # 8 turns of 66 and not 8.06
    18944
    """
    across = -(-N // n)
    turns = -(-M // m) * across // workers
    return min(M, turns * workers // across * m)


def share(M: int, N: int, batch: int, workers: int, m: int, n: int) -> float:
    """Useful part of the time of ``workers`` that compute m × n tiles one after the other."""
    tiles = -(-M // m) * -(-N // n) * batch
    return M * N * batch / (m * n * workers * -(-tiles // workers))
