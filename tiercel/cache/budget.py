"""The size of the cache: listing its files, and deleting the oldest to stay within the limit."""

import os
import time
import warnings
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from tiercel.cache.entry import FILE_NAME, remove

DEFAULT_MIB = 256
# Lock and temporary files of a killed process: no build lasts this long.
LITTER_SECONDS = 3_600.0


def limit_bytes() -> int:
    """Size limit of the folder: ``TIERCEL_CACHE_MIB``, 0 meaning that nothing is written."""
    return _mebibytes(os.environ.get("TIERCEL_CACHE_MIB", "")) << 20


@lru_cache(maxsize=1)
def _mebibytes(text: str) -> int:
    if text.isdecimal():
        return int(text)
    if text:
        warnings.warn(
            f"TIERCEL_CACHE_MIB={text!r} is not a size; allowed: a whole number of MiB, 0 to keep "
            f"nothing on disk; {DEFAULT_MIB} is used",
            RuntimeWarning,
            stacklevel=2,
        )
    return DEFAULT_MIB


def files(folder: Path) -> list[tuple[str, os.stat_result]]:
    """Files in the folder that this module made, oldest first."""
    found = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # removed by another process meanwhile
                if FILE_NAME.fullmatch(entry.name):
                    found.append((entry.name, entry.stat(follow_symlinks=False)))
    return sorted(found, key=lambda named: named[1].st_mtime)


def evict(newest: Path, limit: int) -> None:
    """Delete the oldest entries until ``limit`` bytes hold the rest, and old litter."""
    found = files(newest.parent)
    total = sum(status.st_size for _, status in found)
    now = time.time()
    for name, status in found:
        litter = name.endswith((".lock", ".tmp"))
        if litter:
            doomed = now - status.st_mtime > LITTER_SECONDS
        else:
            doomed = total > limit and name != newest.name
        if doomed and remove(newest.parent / name):
            total -= status.st_size
