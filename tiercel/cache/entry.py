"""One entry, one file: ``<kind>-<hash of the key>.tiercel``.

A header (magic, payload length, SHA-256) is followed by the payload. Nothing is flushed to the
device: after a power cut the checksum finds the torn file, and rebuilding it is cheaper than an
fsync of every entry.
"""

import hashlib
import os
import re
import struct
import time
from contextlib import suppress
from pathlib import Path

from tiercel.errors import TiercelValueError

HEADER = struct.Struct("<8sQ32s")
FILE_NAME = re.compile(
    r"(?P<kind>[a-z][a-z0-9_]*)-[0-9a-f]{32}\.tiercel(?P<litter>\.lock|\.\w+\.tmp)?"
)
# Entries in use are marked as young once a day, so that "oldest" means "longest unused".
TOUCH_SECONDS = 86_400.0

_MAGIC = b"tiercel\x01"
_KIND = re.compile(r"[a-z][a-z0-9_]*")


def file_name(kind: str, key: str) -> str:
    """Name of the entry's file; the key is hashed, so any text will do."""
    if not _KIND.fullmatch(kind):
        raise TiercelValueError(
            f"cache kind {kind!r} is not allowed: it becomes part of a file name, so use a "
            "lower-case word of letters, digits and underscores, such as 'kernel'"
        )
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    return f"{kind}-{digest}.tiercel"


def _header(name: str, payload: bytes | memoryview) -> bytes:
    """Header of a payload. The file's name is hashed too: a renamed entry must not pass."""
    digest = hashlib.sha256(name.encode())
    digest.update(payload)
    return HEADER.pack(_MAGIC, len(payload), digest.digest())


def read(path: Path) -> bytes | None:
    """Verified payload of an entry file; a damaged file is deleted."""
    try:
        with path.open("rb") as file:
            blob = file.read()
            age = time.time() - os.fstat(file.fileno()).st_mtime
    except OSError:
        return None
    payload = memoryview(blob)[HEADER.size :]
    if blob[: HEADER.size] != _header(path.name, payload):
        remove(path)
        return None
    if age > TOUCH_SECONDS:
        with suppress(OSError):
            os.utime(path)
    return bytes(payload)


def publish(path: Path, data: bytes) -> None:
    """Write aside and rename, so that no reader ever meets half an entry."""
    aside = path.with_name(f"{path.name}.{os.urandom(8).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(aside, flags, 0o600)
    try:
        try:
            left = memoryview(_header(path.name, data) + data)
            while left:
                left = left[os.write(descriptor, left) :]
        finally:
            os.close(descriptor)
        os.replace(aside, path)
    except BaseException:  # KeyboardInterrupt included: leave no litter
        remove(aside)
        raise


def remove(path: Path) -> bool:
    """Delete a file; ``False`` when that is not possible, or another process did."""
    try:
        path.unlink()
    except OSError:
        return False
    return True
