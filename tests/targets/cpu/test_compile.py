"""Compilation: for every instruction set, cached, and shown on request."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tests.targets.cpu.isas import ISAS
from tests.targets.cpu.recipes import python
from tiercel.targets.cpu import compile as compiler
from tiercel.targets.cpu.isa import Isa, host

STORAGE = {"float32": ("float32", "float16", "bfloat16"), "float64": ("float64",)}
PARTS = [("pool",)]
for compute in STORAGE:
    PARTS += [("core", compute), ("peak", compute)]
    PARTS += [("load", compute, storage) for storage in STORAGE[compute]]
    PARTS += [("store", compute, storage, "none") for storage in STORAGE[compute]]


@pytest.mark.parametrize("isa", ISAS.values(), ids=ISAS)
@pytest.mark.parametrize("part", PARTS, ids="-".join)
def test_every_part_compiles(isa: Isa, part: tuple[str, ...]):
    code = compiler._compile(isa, compiler.ir_text(isa, *part), "-".join(part))
    assert code[:4] == b"\x7fELF"


def test_text_is_the_same_every_time():
    """It is what the cache key stands for."""
    for isa, part in product(ISAS.values(), PARTS):
        assert compiler.ir_text(isa, *part) == compiler.ir_text(isa, *part)


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match="no such part: quench"):
        compiler.ir_text(host(), "quench", "float32")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the parts that LLVM was asked to compile."""
    names: list[str] = []
    compile_one = compiler._compile

    def record(isa: Isa, text: str, name: str) -> bytes:
        names.append(name)
        return compile_one(isa, text, name)

    monkeypatch.setattr(compiler, "_compile", record)
    return names


def test_a_cached_object_is_not_compiled_again(empty_cache: Path, compiled: list[str]):
    first = compiler.object_code(host(), "peak", "float32")
    assert compiled == [f"{host().name}-peak-float32"]
    assert compiler.object_code(host(), "peak", "float32") == first
    assert compiler.object_code(host(), "peak", "float64") != first
    assert len(compiled) == 2
    assert len(list(empty_cache.glob("*.tiercel"))) == 2


def test_another_cpu_is_another_object(empty_cache: Path, compiled: list[str]):
    for isa in ISAS.values():
        compiler.object_code(isa, "peak", "float32")
    assert len(compiled) == len(ISAS)


def test_a_damaged_entry_is_compiled_again(empty_cache: Path, compiled: list[str]):
    first = compiler.object_code(host(), "peak", "float32")
    (path,) = empty_cache.glob("*.tiercel")
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    assert compiler.object_code(host(), "peak", "float32") == first
    assert len(compiled) == 2


def test_what_is_compiled_can_be_looked_at(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "new" / "dump"
    monkeypatch.setenv("TIERCEL_DUMP", str(folder))
    compiler.object_code(host(), "core", "float32")
    name = f"{host().name}-core-float32"
    assert sorted(path.name for path in folder.iterdir()) == [f"{name}.ll", f"{name}.s"]
    assert '@"gemm"' in (folder / f"{name}.ll").read_text()
    assert "gemm:" in (folder / f"{name}.s").read_text()


def test_a_second_process_compiles_nothing(empty_cache: Path):
    """Nor does it spend time on generating text."""
    use = """
from tests.targets.cpu.pool.test_pool import job, works
assert works(job(2))
"""
    python(use)
    forbid = """
from tiercel.targets.cpu import compile
def refuse(*_):
    raise AssertionError("compiled")
compile._compile = compile.ir_text = refuse
"""
    python(forbid + use)


def test_a_library_can_be_linked_twice():
    """Threads may ask for it at the same time, and an interrupt may strike before it is kept."""
    link = compiler.library.__wrapped__
    first, second = (link("float32", "float32", "float32", None) for _ in range(2))
    assert first.address != second.address


def test_fma_chains_run():
    chains = compiler.fma_chains("float32")
    assert np.isfinite(chains(1000))
    assert compiler.fma_chains("float32") is chains
