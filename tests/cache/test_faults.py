"""The cache when things go wrong: races, damaged files, folders that cannot or must not be used.

The kinds of fault are those that users of compiling libraries report; none may fail a call.
"""

import errno
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import filelock
import platformdirs
import pytest

from tiercel import cache
from tiercel.cache import lookup

CODE = bytes(range(256)) * 40


def only_entry(folder: Path) -> Path:
    (path,) = folder.glob("*.tiercel")
    return path


# Races


def start_all(program: str, *arguments: str, count: int = 8) -> list[int]:
    command = [sys.executable, "-c", program, *arguments]
    processes = [subprocess.Popen(command) for _ in range(count)]
    return [process.wait(60) for process in processes]


def test_processes_that_need_one_key_build_it_once(empty_cache: Path, tmp_path: Path):
    program = """
import os, sys, time
from tiercel import cache
def build():
    open(os.path.join(sys.argv[1], f"built-{os.getpid()}"), "x").close()
    time.sleep(0.2)
    return b"code" * 5000
assert cache.get("kernel", "key", build) == b"code" * 5000
"""
    assert start_all(program, str(tmp_path)) == [0] * 8
    assert len(list(tmp_path.glob("built-*"))) == 1
    assert os.listdir(empty_cache) == [only_entry(empty_cache).name]


def test_threads_that_need_one_key_build_it_once(empty_cache: Path):
    built = []

    def build() -> bytes:
        built.append(1)
        time.sleep(0.05)
        return CODE

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda _: cache.get("kernel", "key", build), range(8)))
    assert got == [CODE] * 8
    assert len(built) == 1


def test_readers_never_see_half_an_entry(empty_cache: Path):
    cache.store("profile", "key", b"a" * 50_000)
    program = """
from tiercel import cache
for turn in range(300):
    cache.store("profile", "key", (b"a", b"b")[turn % 2] * (50_000 + turn % 2))
"""
    with subprocess.Popen([sys.executable, "-c", program]) as writer:
        while writer.poll() is None:
            assert cache.load("profile", "key") in (b"a" * 50_000, b"b" * 50_001)
    assert writer.returncode == 0


def test_a_stuck_holder_delays_others_but_does_not_stop_them(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lookup, "LOCK_SECONDS", 0.2)
    cache.store("kernel", "key", CODE)
    path = only_entry(empty_cache)
    path.unlink()
    with filelock.FileLock(f"{path}.lock"):
        start = time.perf_counter()
        assert cache.get("kernel", "key", lambda: CODE) == CODE
        assert time.perf_counter() - start < 1.5
    assert cache.load("kernel", "key") == CODE


def test_no_locks_on_the_file_system(empty_cache: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    assert cache.get("kernel", "key", lambda: CODE) == CODE
    assert cache.load("kernel", "key") == CODE


# Damaged entries


def cut(length: int) -> Callable[[bytes], bytes]:
    return lambda blob: blob[:length]


def flip(position: int) -> Callable[[bytes], bytes]:
    def flipped(blob: bytes) -> bytes:
        damaged = bytearray(blob)
        damaged[position] ^= 1
        return bytes(damaged)

    return flipped


@pytest.mark.parametrize(
    "damage",
    [
        *map(cut, (0, 7, 20, 47, 48, -1)),
        *map(flip, (0, 9, 30, 48, 5000, -1)),
        lambda blob: blob + b"\0",
        lambda blob: bytes(len(blob)),  # what some file systems leave after a power cut
        lambda blob: b"something else altogether",
    ],
)
def test_damaged_entry_is_deleted_and_built_again(
    empty_cache: Path, damage: Callable[[bytes], bytes]
):
    cache.store("kernel", "key", CODE)
    path = only_entry(empty_cache)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.load("kernel", "key") is None
    assert not path.exists()
    assert cache.get("kernel", "key", lambda: CODE) == CODE
    assert cache.load("kernel", "key") == CODE


def test_entry_of_another_key_is_not_accepted(empty_cache: Path):
    cache.store("kernel", "avx2", b"avx2 code")
    avx2 = only_entry(empty_cache).rename(empty_cache / "aside")
    cache.store("kernel", "avx512", b"avx512 code")
    avx2.replace(only_entry(empty_cache))
    assert cache.load("kernel", "avx512") is None


def test_folder_in_the_place_of_an_entry(empty_cache: Path):
    cache.store("kernel", "key", CODE)
    path = only_entry(empty_cache)
    path.unlink()
    path.mkdir()
    with pytest.warns(RuntimeWarning, match="TIERCEL_CACHE_DIR"):
        assert cache.get("kernel", "key", lambda: CODE) == CODE


# Folders that cannot, or must not, be used


def assert_works_in_memory_with_one_warning() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for key in ("a", "b", "a"):
            assert cache.get("kernel", key, lambda: CODE) == CODE
        assert cache.get("kernel", "a", lambda: b"not built again") == CODE
    (warning,) = caught
    assert "TIERCEL_CACHE_DIR" in str(warning.message)
    assert cache.info().in_memory == 2


def failing(number: int) -> Callable[..., int]:
    def call(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    return call


def test_path_that_cannot_be_made(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TIERCEL_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert_works_in_memory_with_one_warning()


def test_path_that_is_a_file(empty_cache: Path):
    empty_cache.write_text("not a folder")
    assert_works_in_memory_with_one_warning()
    assert empty_cache.read_text() == "not a folder"


def test_user_without_home(empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIERCEL_CACHE_DIR")
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda *_, **__: "~/.cache/tiercel")
    assert_works_in_memory_with_one_warning()
    assert os.listdir(tmp_path) == []  # in particular no folder named "~"


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_read_only_folder(empty_cache: Path, monkeypatch: pytest.MonkeyPatch, number: int):
    cache.store("kernel", "shipped", b"in the image")
    monkeypatch.setattr(os, "open", failing(number))
    assert cache.load("kernel", "shipped") == b"in the image"
    assert_works_in_memory_with_one_warning()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("function", ["write", "replace"])
def test_full_disk_or_quota(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch, function: str, number: int
):
    monkeypatch.setattr(os, function, failing(number))
    assert_works_in_memory_with_one_warning()
    assert os.listdir(empty_cache) == []


def test_disk_that_fills_up_in_the_middle_of_an_entry(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    write, left = os.write, [1000]

    def write_some(descriptor: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "no space left on device")
        written = write(descriptor, data[: left[0]])
        left[0] -= written
        return written

    monkeypatch.setattr(os, "write", write_some)
    assert_works_in_memory_with_one_warning()
    assert os.listdir(empty_cache) == []


def test_short_writes_are_continued(empty_cache: Path, monkeypatch: pytest.MonkeyPatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:1000]))
    cache.store("kernel", "key", CODE)
    assert cache.load("kernel", "key") == CODE
    assert cache.info().in_memory == 0


def test_interrupt_while_publishing_leaves_no_file(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.get("kernel", "key", lambda: CODE)
    assert os.listdir(empty_cache) == []


@pytest.mark.skipif(os.name != "posix", reason="owners and permission bits are POSIX")
class TestFolderThatOthersControl:
    @pytest.mark.parametrize("foreign", [b"code of somebody else", CODE])
    def test_foreign_owner(
        self, empty_cache: Path, monkeypatch: pytest.MonkeyPatch, foreign: bytes
    ):
        cache.store("kernel", "a", foreign)
        monkeypatch.setattr(os, "geteuid", lambda: empty_cache.stat().st_uid + 1)
        assert_works_in_memory_with_one_warning()
        assert "belongs to user" in str(cache.info().refused)
        assert cache.clear() == 0
        assert len(os.listdir(empty_cache)) == 1

    def test_world_writable(self, empty_cache: Path):
        cache.store("kernel", "a", b"code of somebody else")
        empty_cache.chmod(0o777)
        assert_works_in_memory_with_one_warning()
        assert "can write" in str(cache.info().refused)
