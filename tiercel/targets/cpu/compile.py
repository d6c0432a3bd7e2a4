"""From IR to callable functions: three small objects, cached on disk, linked in the process.

    core   loops, micro-kernel, sums of blocks      one per compute dtype and ISA
    load   staging of one storage dtype             one per storage and compute dtype
    store  write-back with one activation           one per storage dtype and activation

A library links one of each; LLVM is asked to compile only what no cache holds.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import count
from typing import TYPE_CHECKING, Any

from tiercel import cache as disk
from tiercel.targets.cpu.isa import Isa, host

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


@dataclass(frozen=True)
class Library:
    """Linked kernels for one (compute dtype, input storage, output storage, activation)."""

    gemm: Any  # ctypes function (params, thread) -> int
    address: int  # of the same function, for the thread pool
    again: Any  # ctypes function (params, a, b, c, run) -> int, see ``renew.py``
    _owner: Any  # keeps the code alive


@cache
def library(compute: str, source: str, target: str, activation: str | None) -> Library:
    """The kernels for operands stored as ``source``, computed in ``compute``, stored as ``target``.

    Raises ``LookupError`` where the CPU is not supported and ``ImportError`` without llvmlite.
    """
    isa = host()
    objects = (
        object_code(isa, "core", compute),
        object_code(isa, "load", compute, source),
        object_code(isa, "store", compute, target, activation or "none"),
    )
    name = f"gemm_{compute}_{source}_{target}_{activation}"
    owner, at = _link(name, objects, "gemm", "again")
    word, pointer = ctypes.c_int64, ctypes.c_void_p
    return Library(
        ctypes.CFUNCTYPE(word, pointer, word)(at["gemm"]),
        at["gemm"],
        ctypes.CFUNCTYPE(word, pointer, word, word, word, word)(at["again"]),
        owner,
    )


@dataclass(frozen=True)
class PoolFunctions:
    """The native half of the thread pool (see ``sync.py``); the calls release the GIL."""

    rouse: Any
    lead: Any
    dismiss: Any
    serve: Any
    member: int  # address of what OpenMP's threads call
    _owner: Any


@cache
def pool_functions() -> PoolFunctions:
    """The thread pool's functions, compiled or from the cache."""
    isa = host()
    names = ("rouse", "lead", "dismiss", "serve", "member")
    owner, at = _link("pool", (object_code(isa, "pool"),), *names)
    word, pointer = ctypes.c_int64, ctypes.c_void_p
    return PoolFunctions(
        ctypes.CFUNCTYPE(None, pointer, word)(at["rouse"]),
        ctypes.CFUNCTYPE(word, pointer, word, word, word)(at["lead"]),
        ctypes.CFUNCTYPE(None, pointer, word)(at["dismiss"]),
        ctypes.CFUNCTYPE(word, pointer, word, word)(at["serve"]),
        at["member"],
        owner,
    )


@cache
def fma_chains(compute: str, name: str = "fma_chains") -> Any:
    """``fma_chains(n)``, or ``fma_chain(n)`` (see ``peak.py``), as a ctypes function."""
    return chains(host(), compute, name)


def chains(isa: Isa, compute: str, name: str = "fma_chains") -> Any:
    """The same for any instruction set that this CPU has."""
    owner, at = _link(f"peak_{compute}", (object_code(isa, "peak", compute),), name)
    function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(at[name])
    function._owner = owner  # pyright: ignore[reportAttributeAccessIssue]
    return function


@dataclass(frozen=True)
class KnownProducts:
    """``known``: address of a built-in function (see ``known.py``). ``use``: names its table."""

    known: int
    use: Any
    _owner: Any


def known_products() -> KnownProducts:
    """A built-in function for products that are NumPy's, compiled or from the cache."""
    isa = host()
    owner, at = _link("known", (object_code(isa, "known"),), "known", "known_table")
    use = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(at["known_table"])
    return KnownProducts(at["known"], use, owner)


def object_code(isa: Isa, part: str, *options: str) -> bytes:
    """Object code of one part, from the cache or freshly compiled."""
    text = "-".join((isa.name, part, *options))
    key = f"{text}-{_fingerprint(isa)}"
    return disk.get("cpu", key, lambda: _compile(isa, ir_text(isa, part, *options), text))


def ir_text(isa: Isa, part: str, *options: str) -> str:
    """LLVM IR of one part, as text."""
    from tiercel.targets.cpu.codegen import modules

    return str(modules.build(isa, part, *options))


@cache
def _fingerprint(isa: Isa) -> str:
    """Changes with the generator's source, the compiler and the CPU."""
    import llvmlite
    import llvmlite.binding as llvm

    digest = hashlib.sha256()
    for text in _sources(files("tiercel.targets.cpu")):
        digest.update(text)
    facts = (llvmlite.__version__, llvm.llvm_version_info, isa.triple, isa.cpu, isa.features)
    digest.update(repr(facts).encode())
    return digest.hexdigest()[:20]


def _sources(folder: Traversable) -> Iterator[bytes]:
    """The Python files of a folder, which may be in a zip file."""
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.is_dir():
            yield from _sources(file)
        elif file.name.endswith(".py"):
            yield file.read_bytes()


@cache
def _target_machine(isa: Isa) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(isa.triple).create_target_machine(
        cpu=isa.cpu, features=isa.features, opt=3, reloc="pic", codemodel="small"
    )


def _compile(isa: Isa, text: str, name: str) -> bytes:
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    machine = _target_machine(isa)
    if os.environ.get("TIERCEL_DUMP"):
        disk.dump(f"{name}.ll", text)
        disk.dump(f"{name}.s", machine.emit_assembly(module))
    return machine.emit_object(module)


@cache
def _jit() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler()


_serial = count()  # LLVM accepts a library name once per process
_refused: list[str] = []  # why nothing can be linked; LLVM says so on stderr each time


def _link(name: str, objects: tuple[bytes, ...], *symbols: str) -> tuple[Any, dict[str, int]]:
    """The library, which has to live on, and the addresses of its symbols."""
    import llvmlite.binding as llvm

    if _refused:
        raise LookupError(_refused[0])
    builder = llvm.JITLibraryBuilder()
    for code in objects:
        builder.add_object_img(code)
    builder.add_current_process()
    for symbol in symbols:
        builder.export_symbol(symbol)
    # Threads that need a library at once link one each, and an interrupted call links again.
    try:
        owner = builder.link(_jit(), f"{name}-{next(_serial)}")
    except RuntimeError as error:
        reason = str(error).partition(":")[0]
        _refused.append(f"this process may not run code that it has made: {reason}")
        raise LookupError(_refused[0]) from None
    return owner, {symbol: owner[symbol] for symbol in symbols}
