"""Linear layers of three published models: the products that judge FalconGEMM (arXiv 2605.06057).

(N, K) of every distinct linear layer, from the sizes stated beside each model; M runs over
512, 1024, …, 20480 rows of input. Divided by a whole number, the grid fits a small machine.
"""

from __future__ import annotations

import numpy as np

from tiercel.bench.case import Case
from tiercel.lower.blocking import ceil_div

#: Hidden size 7168, 128 heads of 128 + 64, latent ranks 1536 and 512, MLPs of 18432 and 2048.
DEEPSEEK_R1 = (
    (1536, 7168), (24576, 1536), (576, 7168), (32768, 512), (7168, 16384),
    (18432, 7168), (7168, 18432), (2048, 7168), (7168, 2048),
)  # fmt: skip

#: Hidden size 4096; gated attention of 32 heads (2 for K and V) of 256; gated DeltaNet of 64 heads
#: for V and 16 for Q and K of 128; experts of 1024.
QWEN35_397B = (
    (16384, 4096), (512, 4096), (4096, 8192), (12288, 4096), (8192, 4096), (1024, 4096),
    (4096, 1024),
)  # fmt: skip

#: Hidden size 3072, MLP of 12288; blocks of two streams, and of one with fused layers.
HUNYUAN_VIDEO = (
    (9216, 3072), (3072, 3072), (12288, 3072), (3072, 12288), (21504, 3072), (3072, 15360),
)  # fmt: skip

LAYERS = DEEPSEEK_R1 + QWEN35_397B + HUNYUAN_VIDEO
ROWS = range(512, 20480 + 1, 512)


def layer_cases(divisor: int = 1) -> list[Case]:
    """Every layer with every number of rows, all sizes divided by ``divisor`` (rounded up).

    >>> len(layer_cases()), layer_cases(4)[0].label
    (880, '128×384×1792')
    """
    sizes = ([ceil_div(x, divisor) for x in (M, N, K)] for N, K in LAYERS for M in ROWS)
    return [Case(M, N, K, group="layers") for M, N, K in sizes]


def sample(count: int, divisor: int = 1, seed: int = 0) -> list[Case]:
    """``count`` of `layer_cases`, drawn without repetition; the same seed, the same list.

    A smaller sample of the same seed is the beginning of a larger one.
    """
    cases = layer_cases(divisor)
    chosen = np.random.default_rng(seed).permutation(len(cases))[:count]
    return [cases[i] for i in chosen]
