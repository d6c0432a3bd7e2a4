"""What generated code needs to repeat a product of the own kernels; see ``own.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.targets.cpu import threads, workspace
from tiercel.targets.cpu.shortcut import words

if TYPE_CHECKING:
    from tiercel.targets.cpu.shortcut.repeat import Repeat

#: Memory for all products that are repeated so, which run one at a time. It is enough for those of
#: up to 10 ms; in longer ones the 8 µs that Python takes are less than a thousandth.
ROOM = 4 << 20

#: So many products are repeated so in a process. Their frames are never freed: generated code may
#: be using one while Python forgets it.
MOST = 256

_all: list[Alone] = []
_room: list[workspace.Buffer] = []


class Alone:
    """The words of one product (``words.py``), at ``address``; ``times``, ``nanoseconds``: counts.

    For a repeat on one thread of a classical product, which no data are refused for.
    """

    def __init__(self, repeat: Repeat) -> None:
        if not _room:
            _room.append(workspace.Buffer(ROOM))
        self._frame = repeat.frame(_room[0].address)
        setting, limited = threads.as_now()
        self._setting = setting
        self._memory = bytearray(words.ALONE_WORDS * words.WORD)
        self.words = memoryview(self._memory).cast("q")
        self.address = workspace.address_of(self._memory)
        for place, word in (
            (words.AGAIN, repeat.again_address), (words.FRAME, self._frame.address),
            (words.SWAPPED, repeat.swapped), (words.LIMITED, limited),
            (words.SETTING, 0 if setting is None else id(setting)),
        ):  # fmt: skip
            self.words[place] = word

    def taken(self) -> tuple[int, float]:
        """Calls since this was asked last, and seconds in them."""
        counted = self.words[words.TIMES], self.words[words.NANOSECONDS]
        self.words[words.TIMES] = self.words[words.NANOSECONDS] = 0
        return counted[0], counted[1] * 1e-9


def alone(repeat: Repeat) -> Alone | None:
    """``repeat`` for generated code; None where it needs Python, or there are too many."""
    if not repeat.is_simple or repeat.nbytes > ROOM or len(_all) >= MOST:
        return None
    _all.append(Alone(repeat))
    return _all[-1]
