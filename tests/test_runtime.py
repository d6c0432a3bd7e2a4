"""Machines that cannot compile, and what is remembered between calls."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tiercel import runtime
from tiercel.planner import winners
from tiercel.planner.problem import Problem
from tiercel.planner.winners import Measured

ROOT = Path(__file__).parents[1]

WITHOUT_LLVMLITE = "import sys; sys.modules['llvmlite'] = None"

UNSUPPORTED = """
import llvmlite.binding
llvmlite.binding.get_process_triple = lambda: "riscv64-unknown-linux-gnu"
"""

NO_CODE = """
import llvmlite.binding
def link(*_):
    raise RuntimeError("Permission denied")
llvmlite.binding.JITLibraryBuilder.link = link
"""

PRODUCTS = """
import json, warnings
import numpy as np
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as caught:
    import tiercel
    rng = np.random.default_rng(0)
    errors = []
    for dtype in ("f4", "f8", "c8", "f4"):
        a, b = rng.standard_normal((400, 300)).astype(dtype), np.eye(300, 350, dtype=dtype)
        bias = np.ones(350, dtype)
        errors.append(np.abs(tiercel.matmul(a, b, bias=bias) - (a @ b + bias)).max())
        errors.append(np.abs(tiercel.matmul(a, tiercel.pack(b)) - a @ b).max())
    table = str(tiercel.plan(4096, 4096, 4096))
    try:
        tiercel.matmul(a, b, scheme="strassen")
        refused = ""
    except tiercel.TiercelRuntimeError as error:
        refused = str(error)
print(json.dumps({
    "error": float(max(errors)),
    "warnings": [[w.category.__name__, str(w.message)] for w in caught],
    "rows": len(table.splitlines()) - 2,
    "refused": refused,
}))
"""


def printed(code: str) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (WITHOUT_LLVMLITE, "llvmlite"),
        (UNSUPPORTED, "riscv64"),
        (NO_CODE, "this process may not run code that it has made: Permission denied"),
    ],
)
def test_without_kernels_numpy_computes_and_one_warning_says_why(machine: str, reason: str):
    found = json.loads(printed(machine + PRODUCTS))
    assert found["error"] == 0
    ((category, message),) = found["warnings"]
    assert category == "RuntimeWarning"
    assert reason in message
    assert found["rows"] == 1
    assert "scheme='strassen' cannot run" in found["refused"]
    assert reason in found["refused"]


WITHOUT_MEMORY = """
import numpy as np
import tiercel
from tiercel.targets.cpu import workspace
a = np.ones((1600, 1600), np.float32)
out = np.empty_like(a)
for _ in range(3):
    tiercel.matmul(a, a, out=out)
tiercel.release_workspace()
def full(nbytes):
    raise MemoryError("full")
workspace._map = full
for rows in (1600, 1600, 1500):
    out[:] = 0
    tiercel.matmul(a[:rows], a, out=out[:rows])
    assert (out[:rows] == 1600).all()
try:
    tiercel.matmul(a, a, scheme="strassen")
except MemoryError as error:
    print(error)
"""


def test_without_memory_for_a_workspace_numpy_computes():
    assert printed(WITHOUT_MEMORY) == "full\n"


def test_a_package_in_a_zip_file(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "tiercel.zip", "w") as archive:
        for file in (ROOT / "tiercel").rglob("*"):
            if file.is_file() and file.suffix != ".pyc":
                archive.write(file, file.relative_to(ROOT))
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path / "tiercel.zip")!r})
import numpy as np
import tiercel
a = np.ones((64, 64), np.float32)
assert (tiercel.matmul(a, a, scheme="lean-2x3x4") == 64).all()
tiercel.plan(4096, 4096, 4096, dtype="bfloat16", device="cuda")
print(tiercel.__file__)
"""
    assert ".zip" in printed(code)


def test_import_loads_no_compiler_and_reads_no_profile():
    code = """
import sys
import tiercel
from tiercel import runtime
loaded = [x for x in ("llvmlite", "torch", "scipy", "click", "rich") if x in sys.modules]
assert not loaded, loaded
assert runtime._machine.cache_info().currsize == 0
"""
    printed(code)


def test_import_is_cheap():
    """Most of it is NumPy's own."""
    code = """
import time, numpy
start = time.perf_counter()
import tiercel
print(time.perf_counter() - start)
"""
    assert min(float(printed(code)) for _ in range(3)) < 0.2


def test_a_plan_is_made_once():
    problem = Problem(500, 600, 700)
    assert runtime.plan_for(problem) is runtime.plan_for(Problem(500, 600, 700))


def test_measured_candidates_outrank_the_model():
    problem = Problem(500, 600, 704)
    before = runtime.plan_for(problem)
    times = {c.algorithm: 1.0 for c in before.candidates if not c.rejected}
    slower = next(name for name in times if name != before.chosen.algorithm)
    measured = Measured(
        500, 600, 704, "float32", "row", "row", False, 1, before.chosen.algorithm,
        {**times, slower: 0.5}, times, {},
    )  # fmt: skip
    winners.add(before.machine.fingerprint, [measured])
    assert runtime.plan_for(problem) is before  # a call does not look again
    runtime.forget()
    assert runtime.plan_for(problem).chosen.algorithm == slower


def test_a_profile_is_measured_again_on_request():
    before = runtime.machine(("float32",))
    after = runtime.measure_again(("float32",))
    assert after.fingerprint == before.fingerprint == runtime.fingerprint("float32")
    assert after is runtime.machine(("float32",))
    assert after is not before


def test_the_vendor_needs_no_measurement():
    code = """
import numpy as np, tiercel
from tiercel import runtime
a = np.ones((400, 400))
assert (tiercel.matmul(a, a, scheme="vendor") == 400).all()
assert runtime._machine.cache_info().currsize == 0
"""
    printed(code)


def test_forget_plans_again():
    problem = Problem(500, 600, 701)
    before = runtime.plan_for(problem)
    runtime.forget()
    after = runtime.plan_for(problem)
    assert after is not before
    assert after.machine == before.machine  # from the disk


def test_the_profile_describes_this_machine():
    machine = runtime.machine()
    assert machine.measured
    for rates in machine.rates.values():
        assert 0 < rates.vendor <= 2 * rates.peak  # both measured beside other tests
        assert min(rates.half) >= 0
        assert rates.scaling >= 1


def test_a_packed_operand_keeps_its_blocking_for_other_rows():
    """Also under an outer level: what was packed for some rows must fit any."""
    rng = np.random.default_rng(0)
    b = rng.integers(-3, 4, (650, 700)).astype(np.float32)
    for scheme in ("classical", "strassen", "strassen2", "strassen3"):
        problem = Problem(600, 700, 650, scheme=scheme, static_b=True)
        packed = runtime.pack(runtime.plan_for(problem), b)
        for M in (1, 7, 600, 1301):
            a = rng.integers(-3, 4, (M, 650)).astype(np.float32)
            plan = runtime.plan_for(Problem(M, 700, 650, scheme=scheme, static_b=True, threads=2))
            out = np.empty((M, 700), np.float32)
            if runtime.execute(plan, a, packed, out, None):
                np.testing.assert_array_equal(out, a @ b)
            else:
                assert scheme != "classical"
                assert M < 600
