"""The last turn of a persistent kernel, shared by all clusters: ``kernels/stream_k.cuh``.

A product of 1024 tiles takes 66 clusters sixteen turns, of which the last one has 34 tiles: a
thirtieth of the time is lost. Here the clusters without a tile multiply parts of these tiles' K.
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from tiercel.targets.hopper.config import CONSUMERS, Config, Tile
from tiercel.targets.hopper.launching.driver import clear_words
from tiercel.targets.hopper.launching.kernel import Arguments, Kernel
from tiercel.targets.hopper.launching.lasting import lasting
from tiercel.targets.hopper.launching.launch import Launch
from tiercel.targets.hopper.products.paced import NOWHERE
from tiercel.targets.hopper.products.params import Params

if TYPE_CHECKING:
    import torch

# What it costs to write a tile's sums, and to add one, in k-tiles of a tile of 128 x 256.
GIVE, TAKE = 9.0, 3.0
LEAST_OWN = 6  # k-tiles: more than the ring has stages

# 32-bit words for each CTA: sums of the largest tile with one block of rows for each consumer, and
# flags. There are no more slots than clusters.
SUMS, FLAGS = 128 * 256, CONSUMERS


@dataclass(frozen=True)
class Shares:
    """Who multiplies what of the last turn, as in ``kernels/stream_k.cuh``.

    ``saved``: estimated k-tiles that the kernel ends earlier.
    """

    owners: int
    own: int
    each: int
    saved: float

    def pack(self, sums: int, flags: int) -> bytes:
        """The bytes of ``StreamK``, with the addresses of its memory."""
        return struct.pack("<QQiiii", sums, flags, self.owners, self.own, self.each, 0)


def possible(tile: Tile) -> bool:
    """Whether a kernel of this tile can share its last turn."""
    whole = tile.n % 64 == 0  # of the vectors that a thread exchanges at once
    return whole and tile.schedule == "cooperative" and tile.blocks == tile.cluster_k == 1


def division(config: Config, params: Params, blocks: int) -> Shares | None:
    """How a kernel's last turn is shared, or None if nothing is gained."""
    if not possible(config.tile) or config.grouped or config.by_blocks or config.traced:
        return None
    tiles = params.cluster_rows * params.cluster_columns * params.batches
    return shares(tiles, blocks // config.tile.cluster, params.k_tiles)


@lru_cache(maxsize=4096)
def shares(tiles: int, clusters: int, k_tiles: int) -> Shares | None:
    """The division that ends first, or None where it saves less than a k-tile.

    ``tiles``: cluster tiles of the whole product; ``k_tiles``: of one of them.

    >>> shares(1024, 66, 128)
    Shares(owners=34, own=76, each=56, saved=46.0)
    >>> shares(66, 66, 128) is None
    True
    """
    owners = tiles % clusters
    if owners == 0 or tiles < clusters:
        return None
    helpers = clusters - owners

    def ends(rest: int) -> tuple[float, float]:  # a helper's end, an owner's
        each = -(-owners * rest // helpers)
        # A helper's part lies in so many rests, a tile's rest in so many parts.
        helped = each + GIVE * _touched(each, rest, helpers)
        return helped, k_tiles - rest + TAKE * _touched(rest, each, owners)

    low, high = 1, max(1, k_tiles - LEAST_OWN)
    while low < high:  # with longer rests helpers end later and owners earlier
        middle = (low + high) // 2
        helped, owned = ends(middle)
        low, high = (middle + 1, high) if helped < owned else (low, middle)
    near = range(max(1, low - 3), min(k_tiles - LEAST_OWN, low + 2) + 1)
    end, rest = min(((max(ends(rest)), rest) for rest in near), default=(float(k_tiles), 0))
    if k_tiles - end < 1:
        return None
    return Shares(owners, k_tiles - rest, -(-owners * rest // helpers), k_tiles - end)


def _touched(length: int, step: int, count: int) -> int:
    """Most of the intervals [i·step, (i+1)·step) that one of ``count`` intervals of ``length``,
    laid end to end from 0, meets.
    """
    return max(
        ((i + 1) * length - 1) // step - i * length // step + 1 for i in range(min(count, step))
    )


@dataclass(frozen=True)
class SharedLaunch(Launch):
    """A kernel whose clusters meet by way of memory of the stream that it runs on.

    ``blocks`` CTAs; ``arguments`` lack that memory's addresses: of sums and flags, in the words
    from number ``word`` on, where the last turn is shared, and of the counter by which clusters
    keep pace, in the word ``paced_word``. -1: not so.
    """

    device: int = 0
    word: int = -1
    paced_word: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    def run(self, stream: int) -> None:
        """Enqueue on a stream of the current device."""
        import torch

        assert self.kernel is not None
        assert self.arguments is not None
        # A graph has memory of its own: it may be replayed on any stream.
        capturing = torch.cuda.is_current_stream_capturing()
        blocks = self.blocks if self.word >= 0 else 0
        sums = _memory(self.device, stream, blocks, capturing).data_ptr()
        flags = sums + 4 * SUMS * blocks
        words = self.arguments.words
        with self._lock:
            if self.word >= 0:
                words[self.word], words[self.word + 1] = sums, flags
            if self.paced_word >= 0:
                words[self.paced_word] = counter = flags + 4 * FLAGS * blocks
                clear_words(counter, 1, stream)
            self.kernel.launch(self.blocks, self.arguments, stream, self.threads)


def shared_launch(
    kernel: Kernel, blocks: int, params: Params, division: Shares | None, paced: bool, device: int,
    in_epilogue: tuple[int, ...],
) -> Launch:  # fmt: skip
    """The launch of a kernel whose last turn is shared so and whose clusters keep pace, or neither;
    the last as in ``Params.places``.
    """
    if division is not None:
        params = replace(params, stream_k=division.pack(0, 0))
    if paced:
        params = replace(params, paced=NOWHERE)
    arguments, places = Arguments(params.pack()), params.places(in_epilogue)
    if division is None and not paced:
        return Launch(kernel, blocks, arguments, places=places)
    return SharedLaunch(
        kernel, blocks, arguments, places=places, device=device,
        word=-1 if division is None else params.stream_k_word,
        paced_word=params.paced_word if paced else -1,
    )  # fmt: skip


#: By device, stream and number of CTAs: addresses that ready launches hold, so never freed.
_eager: dict[tuple[int, int, int], torch.Tensor] = {}


def _memory(device: int, stream: int, blocks: int, capturing: bool) -> torch.Tensor:
    """Sums of ``blocks`` CTAs, behind them the flags, cleared, which kernels leave cleared, and a
    counter; 32-bit words.

    A graph has memory of its own, which stays in its pool.
    """
    if capturing:
        return _captured(device, stream, blocks)
    kept = _eager.get((device, stream, blocks))
    if kept is None:
        kept = _eager[device, stream, blocks] = lasting(_words(blocks), device, stream)
    return kept


def _captured(device: int, stream: int, blocks: int) -> torch.Tensor:
    import torch

    made = torch.empty(_words(blocks), dtype=torch.int32, device=device)
    clear_words(made.data_ptr() + 4 * SUMS * blocks, FLAGS * blocks + 1, stream)
    return made


def _words(blocks: int) -> int:
    return (SUMS + FLAGS) * blocks + 1
