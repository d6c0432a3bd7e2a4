"""Test session set-up shared by ``tests/`` and the package's doctests."""

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

#: Not collected without PyTorch, rather than skipped: CI has a second lane that installs it.
_NEED_TORCH = [
    "tests/commands/test_measure_gpu.py",
    "tests/commands/test_tune_model.py",
    "tests/frontends/torch",
    "tests/gpu",
    "tests/targets/hopper/launching/test_again.py",
    "tests/targets/hopper/launching/test_driver.py",
    "tests/targets/hopper/launching/test_lasting.py",
    "tiercel/bench/gpu_candidates.py",
    "tiercel/bench/model_layers.py",
    "tiercel/frontends/torch",
]
#: PyTorch's CUDA builds bring Triton along, its CPU builds do not.
_NEED_TRITON = ["tests/targets/gpu", "tiercel/targets/gpu", "tests/gpu"]
#: The kernels for GPUs are compiled where NVIDIA's compiler comes as a wheel.
_NEED_NVRTC = [
    "tests/targets/hopper/products/test_compile.py",
    "tests/targets/hopper/epilogues/test_compile.py",
    "tests/targets/hopper/epilogues/test_fused.py",
    "tests/targets/hopper/products/test_grouped.py",
    "tests/targets/hopper/epilogues/test_neighbours.py",
    "tests/targets/hopper/products/test_stream_k_compile.py",
    "tests/targets/hopper/tracing/test_trace.py",
]
collect_ignore = [] if find_spec("torch") else [*_NEED_TORCH]
collect_ignore += [] if find_spec("torch") and find_spec("triton") else _NEED_TRITON
collect_ignore += [] if find_spec("cuda") else _NEED_NVRTC


def pytest_configure(config: pytest.Config) -> None:
    """Give the session a cache of its own: the user's is neither read nor filled by tests."""
    folder = tempfile.mkdtemp(prefix="tiercel-tests-")
    os.environ["TIERCEL_CACHE_DIR"] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of a cache that has stored nothing and warned of nothing yet."""
    from tiercel.cache import folder as cache_folder
    from tiercel.cache import lookup

    folder = tmp_path / "cache"
    monkeypatch.setenv("TIERCEL_CACHE_DIR", str(folder))
    monkeypatch.delenv("TIERCEL_CACHE_MIB", raising=False)
    monkeypatch.setattr(lookup, "_memory", {})
    monkeypatch.setattr(cache_folder, "_warned", False)
    return folder
