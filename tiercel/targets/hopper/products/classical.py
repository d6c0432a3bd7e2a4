"""The classical product as a kernel program: how A is read, how sums are made, how D is stored."""

from __future__ import annotations

from dataclasses import replace

from tiercel.targets.hopper import source, wgmma
from tiercel.targets.hopper.config import Config

WARP_ROWS = 16  # that a warp of a consumer stores at once, see ``by_warps``


def program(config: Config) -> source.KernelProgram:
    """What producer and consumers do for one tile.

    >>> from tiercel.targets.hopper.config import Tile
    >>> tile = Tile(128, 128, 6, "cooperative", cluster_k=2)
    >>> print(*program(Config(tile, "float32", "float32", True, False, fragments=True)).consume)
    tile.multiply_fragments<tf32>(acc); tile.drain(acc);
    if (!gather(tile, acc)) return; store(tile, acc, p, p.d[0], 0, 0, 1.0f);
    """
    before, after = (), ()
    plain = source.plain_program(config.operand)
    multiply, drain, store = plain.consume
    kind = wgmma.KINDS[config.operand][0]
    if config.operand_bytes and config.tile.schedule == "cooperative":
        early = "[&] { Store<Config>::bring_own(tile, p); }"
        multiply = multiply.replace("(acc)", f"(acc, {early})")
    if config.fragments:
        multiply = f"tile.multiply_fragments<{kind}>(acc);"
    if config.promoted:
        scales = "BlockScales<Config>(tile)" if config.by_blocks else "NoScales()"
        multiply = f"tile.multiply_promoted<{kind}>(acc, {scales});"
    if config.neighbours:
        load = "[&] { loaded = StoreNeighbours<Config>::load(tile, p); }"
        before = ("StoreNeighbours<Config>::Loaded loaded;",)
        multiply = f"tile.multiply_until<{kind}, From::zero>(acc, {load});"
        store = "StoreNeighbours<Config>::run(tile, acc, p, loaded);"
    if by_warps(config):
        store = "StoreWarps<Config>::run(tile, acc, p, p.d[0], 1.0f);"
    if config.swapped:
        store = "StoreTransposed<Config>::run(tile, acc, p, p.d[0]);"
    if config.tile.cluster_k > 1:
        after = ("if (!gather(tile, acc)) return;",)
    if config.stream_k:
        after = ("if (!exchange(tile, acc, p)) return;",)
    if config.scaling == "number":
        before = ("const float number = number_scale(p);",)
        store = store.replace("1.0f", "number")
    if config.scaling == "vectors":
        before = ("const VectorScales<Config> scales(tile, p);",)
        after = (*after, "scales.apply(tile, acc);")
    return replace(plain, consume=(*before, multiply, drain, *after, store))


def by_warps(config: Config) -> bool:
    """Whether each warp stores its own rows, without the others: ``kernels/store_warps.cuh``."""
    return config.promoted and not config.direct


def text(config: Config) -> str:
    """The translation unit of the kernel."""
    return source.text(config, program(config))
