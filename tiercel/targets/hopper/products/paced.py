"""Whether the clusters of a product keep pace: ``kernels/paced.cuh``.

What clusters read together L2 holds for a while. They drift apart, a little with each k-tile, and
in long products read panels from DRAM again. Sustained, of cuBLAS: 1.080 instead of 1.053 at 16384³
and 1.066 instead of 1.044 at 8192 × 8192 × 28672 in bfloat16, 1.096 instead of 1.034 at 16384³ in
TF32, both row-major; interleaved within 0.01.
"""

from __future__ import annotations

import struct

from tiercel.targets.hopper.config import Config
from tiercel.targets.hopper.products.params import Params

#: K-tiles of a CTA, over all its tiles, from which on clusters keep pace.
LEAST_K_TILES = 3000

#: The bytes of ``PaceCounter`` before its address is known.
NOWHERE = struct.pack("<Q", 0)


def keeps_pace(config: Config, params: Params, blocks: int) -> bool:
    """Whether the clusters of a grid of ``blocks`` CTAs do."""
    if config.grouped or config.traced or config.tile.cluster_k > 1:
        return False
    clusters = blocks // config.tile.cluster
    tiles = params.cluster_rows * params.cluster_columns * params.batches
    return clusters > 1 and -(-tiles // clusters) * params.k_tiles >= LEAST_K_TILES
