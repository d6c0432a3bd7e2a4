"""The cache when nothing goes wrong: what is kept, for how long, in how many files."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tiercel import cache
from tiercel.errors import TiercelValueError


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def build_never() -> bytes:
    raise AssertionError("the entry should have been found")


@pytest.mark.parametrize("data", [b"", b"\0", bytes(range(256)) * 500])
def test_get_builds_once_then_reads(empty_cache: Path, data: bytes):
    assert cache.get("kernel", "key", lambda: data) == data
    assert cache.get("kernel", "key", build_never) == data
    assert cache.info().in_memory == 0


def test_entries_of_other_kinds_and_keys_stay_apart(empty_cache: Path):
    cache.store("kernel", "a", b"1")
    cache.store("kernel", "b", b"2")
    cache.store("profile", "a", b"3")
    loaded = [cache.load("kernel", "a"), cache.load("kernel", "b"), cache.load("profile", "a")]
    assert loaded == [b"1", b"2", b"3"]
    assert cache.load("profile", "b") is None


def test_store_replaces(empty_cache: Path):
    cache.store("profile", "cpu", b"old")
    cache.store("profile", "cpu", b"new, and longer")
    assert cache.load("profile", "cpu") == b"new, and longer"
    assert cache.info().files == 1


@pytest.mark.parametrize("kind", ["", "Kernel", "../kernel", "a-b", "a\n", "1st"])
def test_kind_must_be_a_word(empty_cache: Path, kind: str):
    with pytest.raises(TiercelValueError, match="lower-case word"):
        cache.load(kind, "key")


def test_any_text_is_a_key(empty_cache: Path):
    for key in ("", "/etc/passwd", "Ω" * 5000, "a\0b"):
        cache.store("kernel", key, key.encode())
        assert cache.load("kernel", key) == key.encode()


def test_builder_error_passes_through_and_stores_nothing(empty_cache: Path):
    def fail() -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cache.get("kernel", "key", fail)
    assert names(empty_cache) == set()
    assert cache.get("kernel", "key", lambda: b"second try") == b"second try"


def test_one_file_per_entry_and_no_lock_file_remains(empty_cache: Path):
    for call in range(200):
        cache.get("kernel", f"variant {call % 3}", lambda: b"code")
    assert len(names(empty_cache)) == 3


@pytest.mark.skipif(os.name != "posix", reason="permission bits are POSIX")
def test_folder_and_entries_are_private(empty_cache: Path):
    cache.store("kernel", "key", b"code")
    assert empty_cache.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in empty_cache.iterdir()} == {0}


def test_looking_creates_nothing(empty_cache: Path):
    assert cache.load("kernel", "key") is None
    assert cache.info() == cache.CacheInfo(empty_cache, 0, 0, {}, in_memory=0, refused=None)
    assert cache.clear() == 0
    assert not empty_cache.exists()


def test_info_counts_per_kind(empty_cache: Path):
    for key in "abc":
        cache.store("kernel", key, b"x" * 100)
    cache.store("profile", "cpu", b"y")
    found = cache.info()
    assert {kind: of_kind.files for kind, of_kind in found.kinds.items()} == {
        "kernel": 3,
        "profile": 1,
    }
    assert found.files == 4
    assert found.bytes == sum(path.stat().st_size for path in empty_cache.iterdir())


def test_clear_removes_only_its_own_files(empty_cache: Path):
    cache.store("kernel", "key", b"code")
    (empty_cache / "kernel-thesis.tiercel").write_text("not an entry")
    assert cache.clear() == 1
    assert names(empty_cache) == {"kernel-thesis.tiercel"}
    assert cache.load("kernel", "key") is None


def entry(folder: Path, key: str) -> Path:
    """File that storing ``key`` would write, or has written."""
    before = names(folder) if folder.exists() else set()
    cache.store("kernel", key, b"x" * 300_000)
    (new,) = names(folder) - before
    return folder / new


def test_oldest_entries_make_room(empty_cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIERCEL_CACHE_MIB", "1")
    now = time.time()
    for age, key in ((30, "second"), (50, "first"), (10, "third")):
        os.utime(entry(empty_cache, key), (now - age, now - age))
    cache.store("kernel", "fourth", b"x" * 300_000)
    kept = [key for key in ("first", "second", "third", "fourth") if cache.load("kernel", key)]
    assert kept == ["second", "third", "fourth"]
    assert cache.info().bytes <= 1 << 20


def test_entry_larger_than_the_limit_stays_in_memory(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    cache.store("kernel", "small", b"code")
    monkeypatch.setenv("TIERCEL_CACHE_MIB", "1")
    cache.store("kernel", "huge", bytes(2 << 20))
    assert cache.load("kernel", "huge") == bytes(2 << 20)
    assert cache.load("kernel", "small") == b"code"
    assert cache.info().files == 1


def test_entry_in_use_is_marked_young(empty_cache: Path):
    path = entry(empty_cache, "old")
    os.utime(path, (0, 0))
    cache.load("kernel", "old")
    assert time.time() - path.stat().st_mtime < 60


def test_files_of_a_killed_process_are_swept(empty_cache: Path):
    path = entry(empty_cache, "key")
    fresh, stale = path.with_name(f"{path.name}.ab.tmp"), path.with_name(f"{path.name}.lock")
    fresh.write_bytes(b"being written")
    stale.write_bytes(b"")
    os.utime(stale, (0, 0))
    cache.store("kernel", "other", b"code")
    assert fresh.exists()
    assert not stale.exists()


def test_default_folder_is_per_user_and_not_shared(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TIERCEL_CACHE_DIR")
    home = Path.home()
    assert home in cache.cache_dir().parents or "XDG_CACHE_HOME" in os.environ
    assert cache.cache_dir().parent != Path("/tmp")


def test_relative_override_does_not_follow_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIERCEL_CACHE_DIR", "here")
    assert cache.cache_dir() == tmp_path / "here"


def test_a_hit_loads_no_lock_library(empty_cache: Path):
    cache.store("kernel", "key", b"code")
    program = (
        "import sys; from tiercel import cache; assert 'platformdirs' not in sys.modules;"
        "assert cache.get('kernel', 'key', None) == b'code'; assert 'filelock' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_hit_takes_less_than_a_millisecond(empty_cache: Path):
    cache.store("kernel", "key", bytes(50_000))  # a typical object file

    def seconds() -> float:
        start = time.perf_counter()
        cache.load("kernel", "key")
        return time.perf_counter() - start

    assert min(seconds() for _ in range(50)) < 1e-3


def test_a_limit_that_is_none_is_named(empty_cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIERCEL_CACHE_MIB", "1 GB")
    with pytest.warns(RuntimeWarning, match="TIERCEL_CACHE_MIB='1 GB' is not a size; allowed: "):
        cache.store("kernel", "key", b"code")
    assert cache.info().files == 1
