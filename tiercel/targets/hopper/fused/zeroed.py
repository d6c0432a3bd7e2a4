"""Flags of many products on one stream, zeroed by one launch."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tiercel.targets.hopper.launching.driver import clear_words

if TYPE_CHECKING:
    import torch

#: Words of one allocation: the flags of 30 to 256 products. Zeroed one by one they cost a call of
#: the driver each, and the linear layers of 8B ran at 1.068 and 1.087 of cuBLAS's speed instead of
#: 1.069 and 1.090 (8192 and 16384 rows, by turns; sustained no difference was seen).
WORDS = 1 << 16

#: Words that an address is a multiple of.
STEP = 128

#: (device, stream) -> words that are zero still.
_left: dict[tuple[int, int], torch.Tensor] = {}
_lock = threading.Lock()


def zeroed(like: torch.Tensor, words: int, stream: int) -> torch.Tensor:
    """New ``words`` (int32) on the device of ``like``, zero for what ``stream`` runs next.

    A graph that is captured zeroes its own, in each replay.
    """
    import torch

    if torch.cuda.is_current_stream_capturing():
        found = like.new_empty(words, dtype=torch.int32)
        clear_words(found.data_ptr(), words, stream)
        return found
    place, taken = (like.get_device(), stream), -(-words // STEP) * STEP
    with _lock:
        left = _left.get(place)
        if left is None or len(left) < taken:
            left = like.new_empty(max(WORDS, taken), dtype=torch.int32)
            clear_words(left.data_ptr(), len(left), stream)
        _left[place] = left[taken:]
    return left[:words]
