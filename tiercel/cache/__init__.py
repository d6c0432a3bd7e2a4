"""One on-disk cache for compiled code and measured machine profiles.

Three rules shape it.

*What is loaded may be executed.* The folder is the user's own, and one that belongs to somebody
else, or that everybody can write to, is refused (``folder.py``).

*A cache never makes a call fail.* A full disk, a read-only home or a missing one costs a single
warning; the entries then live in memory, for as long as the process does (``lookup.py``).

*Any number of processes may share it.* An entry appears whole, and is checked when read
(``entry.py``); one process builds a key while others wait for it, briefly (``lookup.py``); the
oldest entries make room for new ones (``budget.py``).

``TIERCEL_CACHE_DIR`` moves the folder, ``TIERCEL_CACHE_MIB`` sets its size limit.
"""

from tiercel.cache.dump import dump
from tiercel.cache.folder import cache_dir
from tiercel.cache.lookup import clear, get, load, store
from tiercel.cache.report import CacheInfo, KindInfo, info

__all__ = ["CacheInfo", "KindInfo", "cache_dir", "clear", "dump", "get", "info", "load", "store"]
