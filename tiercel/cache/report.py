"""What the cache holds, for ``tiercel env`` and ``tiercel cache``."""

from dataclasses import dataclass
from pathlib import Path

from tiercel.cache import budget, lookup
from tiercel.cache.entry import FILE_NAME
from tiercel.cache.folder import cache_dir, refusal


@dataclass(frozen=True)
class KindInfo:
    """Entries of one kind: how many files, and their size in bytes, headers included."""

    files: int
    bytes: int


@dataclass(frozen=True)
class CacheInfo:
    """What :func:`info` found.

    ``files`` and ``bytes`` count entries on disk, ``in_memory`` those that could not be written
    there, and ``refused`` says why the folder is not used (``None`` when it is).
    """

    path: Path
    files: int
    bytes: int
    kinds: dict[str, KindInfo]
    in_memory: int
    refused: str | None


def info() -> CacheInfo:
    """Count what is stored. Creates nothing.

    >>> from tiercel.cache import store
    >>> store("demo", "counted", b"12345")
    >>> info().kinds["demo"].files >= 1
    True
    """
    folder = cache_dir()
    sizes: dict[str, list[int]] = {}
    for name, status in budget.files(folder):
        match = FILE_NAME.fullmatch(name)
        if match and not match["litter"]:
            sizes.setdefault(match["kind"], []).append(status.st_size)
    kinds = {kind: KindInfo(len(of_kind), sum(of_kind)) for kind, of_kind in sorted(sizes.items())}
    return CacheInfo(
        path=folder,
        files=sum(of_kind.files for of_kind in kinds.values()),
        bytes=sum(of_kind.bytes for of_kind in kinds.values()),
        kinds=kinds,
        in_memory=lookup.in_memory(),
        refused=refusal(folder),
    )
