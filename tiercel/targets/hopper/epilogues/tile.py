"""Which tile for a product with a traced epilogue: cooperative tiles show it, PingPong hides it.

A cooperative tile of 128x256 multiplies faster than PingPong's 128x128 (fewer bytes for each
product), but both its consumers are in the epilogue at nearly the same time, and then nobody
multiplies.
"""

from __future__ import annotations

from functools import lru_cache

from tiercel.lower.epilogue import Instance
from tiercel.targets.hopper.config import Tile
from tiercel.targets.hopper.products import heuristic

# Instructions of a multiprocessor in a cycle, in lanes. The special functions run at an eighth of
# that, so that one counts as 8.
LANES = 128
#: Operation → what it takes for an element, counted in the machine code; 1 where nothing is said.
SLOTS = {
    "exp": 18, "log": 18, "tanh": 24, "erf": 24, "normal_cdf": 26, "sigmoid": 19, "sqrt": 14,
    "rsqrt": 10, "divide": 16, "cast": 2,
}  # fmt: skip
FREE = ("acc", "constant", "operand", "repeat", "index", "even", "odd", "interleave")
TILE_OPERAND = 4  # slots for an element: address and load
BROUGHT_OPERAND = 2  # of an operand that TMA brings to shared memory
EIGHTS_OPERAND = 1  # of one that is loaded in 16 bytes for 8 columns
FURTHER_OUTPUT = 3  # or: pack, stage
REDUCTION = {"sum": 2, "max": 2, "logsumexp": 26}
ARRIVAL = 4_500  # cycles for a tile whose rows are reduced: a fence, and counters
WAIT = 14_000  # cycles in which the operands of a tile of 128x256 are waited for
# What a tile of PingPong takes longer, where a cooperative one could load 8 columns at a time:
# the time of `residual_rms` and RoPE of K = 4096 was underestimated by 4 to 5 %.
OPERANDS = 2_200
TURNS = 500  # cycles of an epilogue beside which the other consumer multiplies, see mainloop.cuh
# Of an epilogue that is hidden, what the other consumer's products lose by it: both use the
# registers. Set with TURNS, ARRIVAL and SLOWER to times of 22 products of Llama-3 8B and 70B: the
# tile chosen is the fastest of four but for 0.2 % in the mean, 1.2 % at most.
DISTURBED = 0.3

#: PingPong with fewer bytes for each product. The accumulators of the first leave no registers for
#: operands of a tile, the columns of the second divide few matrices and need B along K.
WIDEST = Tile(128, 192, 4, "pingpong", cluster_m=2)
WIDE = Tile(128, 160, 5, "pingpong", cluster_m=2)
#: Time of their products over what ``heuristic`` estimates.
SLOWER = {WIDEST: 1.02, WIDE: 1.04, heuristic.CANDIDATES[1]: 0.98}


def cycles_per_element(
    instance: Instance, brought: str = "", eights: tuple[str, ...] = ()
) -> float:
    """Of a multiprocessor, for an element of the product, beyond a plain store.

    ``brought``: the operand of a tile that TMA brings. ``eights``: operands that are loaded 8
    columns at once.

    >>> from tiercel.lower.epilogue import bind, library
    >>> gelu, swiglu = (bind(x, (64, 64), {}, dtype="bfloat16")
    ...                 for x in (library.gelu, library.swiglu))
    >>> cycles_per_element(gelu) > cycles_per_element(swiglu) > 0.05
    True
    """
    slots = 0.0
    for x in instance.nodes:
        wide = instance.width[x]
        if x.op not in FREE and wide is not None:
            slots += SLOTS.get(x.op, 1) * 2.0**wide
    for x in instance.operands:
        if x.kind == "tile":
            each = BROUGHT_OPERAND if x.name == brought else TILE_OPERAND
            each = EIGHTS_OPERAND if x.name in eights else each
            slots += each * 2.0 ** (x.width or 0)
    slots += FURTHER_OUTPUT * max(0, len(instance.outputs) - 1)
    slots += sum(REDUCTION[x.kind] * 2.0**x.width for x in instance.partials)
    return slots / LANES


def choose(
    instance: Instance, M: int, N: int, K: int, batches: int, sms: int, k_major: bool = True,
    brought: str = "", eights: tuple[str, ...] = (),
) -> Tile:  # fmt: skip
    """The candidate with the least estimated time; ``K`` as in ``heuristic.choose``.

    ``k_major``: B is contiguous along K. ``brought``: the operand of a tile that TMA brings, but
    not where a cooperative tile loads operands of ``eights`` 8 columns at once.
    """
    reduced = any(x.over == "row" for x in instance.partials)
    loads = any(x.kind == "tile" and x.name != brought for x in instance.operands)
    tiles = list(heuristic.CANDIDATES)
    # To leave columns out of a largest value takes registers. Where they are left out of a sum,
    # `residual_rms` of 8192³ is at 1.038 of cuBLAS's product with this tile, 1.021 with WIDE.
    bounded = any(x.over == "row" and x.kind != "sum" for x in instance.partials)
    if not loads and not (bounded and N % WIDEST.n):
        tiles.append(WIDEST)
    if k_major and not any(x.width < 0 for x in instance.outputs):
        tiles.append(WIDE)
    each = cycles_per_element(instance, brought)
    cooperative = cycles_per_element(instance, brought, eights)
    waits = WAIT if loads and not eights else 0
    reads = OPERANDS if eights else 0
    return _choose(tuple(tiles), each, cooperative, waits, reads, reduced, M, N, K, batches, sms)


@lru_cache(maxsize=4096)
def _choose(
    tiles: tuple[Tile, ...], each: float, cooperative: float, waits: int, reads: int,
    reduced: bool, M: int, N: int, K: int, batches: int, sms: int,
) -> Tile:  # fmt: skip
    def cycles(tile: Tile) -> float:
        plain = heuristic.estimate(tile, 1, M, N, K, batches, sms).cycles * SLOWER.get(tile, 1.0)
        count = -(-M // tile.m) * -(-N // tile.n) * batches
        waves = -(-count // (sms // tile.cluster * tile.cluster))
        if tile.schedule == "cooperative":
            shown = tile.m * tile.n * cooperative + ARRIVAL * reduced
            return plain + (shown + waits) * waves - min(shown, TURNS) * (waves - 1)
        shown = tile.m * tile.n * each + ARRIVAL * reduced
        return plain + shown * (1 + DISTURBED * (waves - 1)) + reads * waves

    return min(tiles, key=cycles)
