"""Finding, building and storing entries, whatever else goes wrong."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tiercel.cache import budget, entry
from tiercel.cache.folder import cache_dir, prepare, refusal, warn_once

# A kernel takes about 0.3 s to build: a loser that waited this long expects a stuck holder.
LOCK_SECONDS = 2.0

# Entries that could not be written to disk.
_memory: dict[tuple[str, str], bytes] = {}


def get(kind: str, key: str, build: Callable[[], bytes]) -> bytes:
    """Return the payload stored under ``(kind, key)``, building and storing it when absent.

    ``kind`` groups entries (``[a-z][a-z0-9_]*``); ``key`` is any text and must name everything that
    the payload depends on, versions and CPU features included. What ``build`` raises passes
    through, and nothing is stored. A :class:`TiercelValueError` reports a malformed kind.

    >>> get("demo", "answer", lambda: b"42")
    b'42'
    >>> get("demo", "answer", lambda: b"not called")
    b'42'
    """
    data = load(kind, key)
    if data is not None:
        return data
    with _build_lock(_entry_path(kind, key)):
        data = load(kind, key)  # the previous holder of the lock may have built it
        if data is None:
            data = build()
            store(kind, key, data)
    return data


def load(kind: str, key: str) -> bytes | None:
    """Return the payload stored under ``(kind, key)``, or ``None``.

    A damaged entry is deleted and counts as absent.

    >>> load("demo", "never stored") is None
    True
    """
    path = _entry_path(kind, key)
    data = _memory.get((kind, key))
    if data is not None:
        return data
    refused = refusal(path.parent)
    if refused is not None:
        warn_once(path.parent, refused)
        return None
    return entry.read(path)


def store(kind: str, key: str, data: bytes) -> None:
    """Publish ``data`` under ``(kind, key)``, replacing what was there; last writer wins.

    >>> store("demo", "colour", b"slate")
    >>> load("demo", "colour")
    b'slate'
    """
    path = _entry_path(kind, key)
    limit = budget.limit_bytes()
    if entry.HEADER.size + len(data) > limit:
        _memory[kind, key] = data
        return
    try:
        prepare(path.parent)
        entry.publish(path, data)
    except OSError as error:
        # Windows refuses to replace a file that another process reads: then its copy is as good.
        if load(kind, key) != data:
            _memory[kind, key] = data
            warn_once(path.parent, str(error))
        return
    _memory.pop((kind, key), None)
    budget.evict(path, limit)


def clear() -> int:
    """Forget every entry, on disk and in memory; return how many files were removed.

    Only files that this module names are touched, whatever else the folder holds.
    """
    _memory.clear()
    folder = cache_dir()
    if refusal(folder) is not None:
        return 0
    return sum(entry.remove(folder / name) for name, _ in budget.files(folder))


def in_memory() -> int:
    """How many entries live in memory because they could not be written."""
    return len(_memory)


def _entry_path(kind: str, key: str) -> Path:
    return cache_dir() / entry.file_name(kind, key)


@contextmanager
def _build_lock(path: Path) -> Iterator[None]:
    """Hold the lock of one entry, or go on without it: a second build wastes time, no more.

    The holder unlinks the lock file before letting go. A waiter that still holds the unlinked file
    is harmless: the entry was published first, and is looked for again under the lock.
    """
    import filelock

    lock = filelock.FileLock(f"{path}.lock")
    try:
        prepare(path.parent)
        lock.acquire(timeout=LOCK_SECONDS, poll_interval=0.01)
    except (OSError, RuntimeError):  # timed out, read-only, or no locks on this file system
        pass
    try:
        yield
    finally:
        if lock.is_locked:
            entry.remove(Path(lock.lock_file))
            lock.release()
