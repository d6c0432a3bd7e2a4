"""Where the cache lives, and whether code found there may be trusted."""

import os
import stat
import warnings
from pathlib import Path

_warned = False


def cache_dir() -> Path:
    """Return the cache folder, which need not exist yet.

    ``TIERCEL_CACHE_DIR`` when set, else the platform's per-user cache folder.

    >>> import os
    >>> os.environ["TIERCEL_CACHE_DIR"] == str(cache_dir())
    True
    """
    chosen = os.environ.get("TIERCEL_CACHE_DIR")
    if chosen:
        return Path(os.path.abspath(os.path.expanduser(chosen)))
    import platformdirs

    return Path(platformdirs.user_cache_dir("tiercel", appauthor=False))


def refusal(folder: Path) -> str | None:
    """Why code from this folder must not be run; ``None`` when it may, or when it is missing."""
    if not folder.is_absolute():
        return "this user has no home folder"
    try:
        status = folder.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return str(error)
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a folder"
    if os.name == "posix":  # elsewhere these bits say nothing, and profiles are private
        if status.st_uid != os.geteuid():
            return f"it belongs to user {status.st_uid}, and this process runs as {os.geteuid()}"
        if status.st_mode & stat.S_IWOTH:
            return "every user of this machine can write to it"
    return None


def prepare(folder: Path) -> None:
    """Make the folder, or raise ``OSError`` when it cannot be made or must not be used."""
    refused = refusal(folder)
    if refused is None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        refused = refusal(folder)  # another user may have made it in between
    if refused is not None:
        raise PermissionError(refused)


def warn_once(folder: Path, reason: str) -> None:
    """Say why the folder is not used, the first time only."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"tiercel cannot use its cache folder {folder}: {reason}. Compiled code is kept in "
            "memory and built again by the next process. Set TIERCEL_CACHE_DIR to a folder that "
            "you own, that nobody else can write to, and that has space left",
            RuntimeWarning,
            stacklevel=2,
        )
