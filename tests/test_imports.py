"""The package's shape: imports only go down, optional packages stay at home, importing is cheap."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]

# api → frontends → planner → lower → schemes and frontends → targets → lower, written out.
SERVICES = {"errors", "cache", "ufuncs"}
BELOW_API = {"planner", "targets", "lower", "schemes", *SERVICES}
MAY_IMPORT = {
    "errors": set[str](),
    "ufuncs": set[str](),
    "cache": {"errors"},
    "schemes": SERVICES,
    "lower": {"schemes", *SERVICES},
    "planner": {"lower", "schemes", *SERVICES},
    "targets": {"lower", "schemes", *SERVICES},
    "counters": {"planner", "targets"},  # which plans ran, in words that generated code writes
    "shortcut": {"counters", *BELOW_API},  # calls like earlier ones
    "calibration": BELOW_API,  # measures targets for the planner
    "runtime": {"calibration", "counters", *BELOW_API},  # wires planner and targets
    "epilogues": {"lower"},  # what users write epilogues with
    "options": BELOW_API,  # the vocabulary of api.py
    "terms": {"lower", *SERVICES},  # alpha, beta, c and operands of a call
    "frontends": {"counters", "options", "runtime", "shortcut", *BELOW_API},
    # Dispatches on array types.
    "api": {"counters", "frontends", "options", "runtime", "shortcut", "terms", *BELOW_API},
    "plans": {"api", "frontends", "options", "runtime", *BELOW_API},  # `plan`, and running one
    "__init__": {"plans", "counters", "epilogues", "api", "runtime", "frontends", *BELOW_API},
    "bench": {"__init__", "api", "options", "runtime", "frontends", *BELOW_API},
    "commands": {"__init__", "bench", "runtime", "planner", "schemes", *SERVICES},  # subcommands
    "cli": {"commands", "__init__", "api", "options", "runtime", "frontends", "bench", *BELOW_API},
    "__main__": {"cli"},
}

# Where a package that may be missing, or is slow to import, may be named at all.
HOMES = {
    "llvmlite": ("targets.cpu",),
    "cuda": ("targets.hopper", "bench"),
    "torch": ("frontends.torch", "targets.hopper", "targets.gpu", "targets.vendor", "bench"),
    "pynvml": ("frontends.torch",),
    "triton": ("targets.gpu", "bench"),
    "jax": ("frontends.jax", "bench"),
    "tensorflow": ("frontends.tensorflow", "bench"),
    "numba": ("schemes.search",),
    "matplotlib": ("bench",),
    "scipy": ("bench",),
    "mkl": ("bench",),
    "ml_dtypes": ("bench",),
    "click": ("cli", "commands", "bench"),
    "rich": ("cli", "commands", "bench"),
}


class Import(NamedTuple):
    """One imported module, by absolute dotted name, and the module that imports it."""

    importer: str
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


def imports_of(path: Path) -> Iterator[Import]:
    name = module_name(path)
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            source = ".".join([*base, *([node.module] if node.module else [])])
            if source in {"tiercel", "tiercel.targets", "tiercel.frontends"}:
                for alias in node.names:  # `from tiercel import cache` names a module
                    yield Import(name, f"{source}.{alias.name}", node.lineno)
            else:
                yield Import(name, source, node.lineno)


def layer(module: str) -> str:
    """``tiercel.planner.cost`` → ``planner``; a name that the package exports → ``__init__``."""
    first = module.split(".")[1] if "." in module else "__init__"
    return first if first in MAY_IMPORT else "__init__"


def target(module: str) -> str | None:
    parts = module.split(".")
    return parts[2] if parts[:2] == ["tiercel", "targets"] and len(parts) > 2 else None


IMPORTS = [found for path in (ROOT / "tiercel").rglob("*.py") for found in imports_of(path)]
OURS = [found for found in IMPORTS if found.imported.split(".")[0] == "tiercel"]


def test_every_module_has_a_layer():
    entries = [path for path in (ROOT / "tiercel").iterdir() if not path.name.startswith("__py")]
    modules = {path.stem for path in entries if path.is_dir() or path.suffix == ".py"}
    assert modules <= MAY_IMPORT.keys(), "say in MAY_IMPORT what a new module may import"


def test_imports_only_go_down():
    wrong = [
        str(found)
        for found in OURS
        if layer(found.imported) != layer(found.importer)
        and layer(found.imported) not in MAY_IMPORT[layer(found.importer)]
    ]
    assert wrong == []


def test_layer_table_has_no_cycle():
    done: set[str] = set()
    while left := MAY_IMPORT.keys() - done:
        ready = {name for name in left if MAY_IMPORT[name] <= done}
        assert ready, f"cycle among {sorted(left)}"
        done |= ready


def test_targets_do_not_import_each_other():
    wrong = [
        str(found)
        for found in OURS
        if target(found.importer)
        and target(found.imported)
        and target(found.importer) != target(found.imported)
    ]
    assert wrong == []


def test_optional_packages_stay_at_home():
    def at_home(found: Import) -> bool:
        homes = HOMES.get(found.imported.split(".")[0])
        place = found.importer.removeprefix("tiercel.") + "."
        return homes is None or any(place.startswith(f"{home}.") for home in homes)

    assert [str(found) for found in IMPORTS if not at_home(found)] == []


def python(program: str) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def test_import_takes_less_than_150_ms_after_numpy():
    program = """
import time, numpy
start = time.perf_counter()
import tiercel
print(time.perf_counter() - start)
"""
    assert min(float(python(program)) for _ in range(5)) < 0.150


@pytest.mark.parametrize("package", [*HOMES, "filelock", "platformdirs", "threadpoolctl"])
def test_import_leaves_heavy_packages_alone(package: str, modules_after_import: set[str]):
    assert package not in modules_after_import


@pytest.fixture(scope="module")
def modules_after_import() -> set[str]:
    return set(python("import sys, tiercel; print(*sys.modules)").split())


def test_import_starts_no_thread_and_prints_nothing():
    program = """
import os, sys, threading, numpy
def threads():
    linux = sys.platform == "linux"
    return len(os.listdir("/proc/self/task")) if linux else threading.active_count()
before = threads()
import tiercel
assert threads() == before, threads()
"""
    assert python(program) == ""
