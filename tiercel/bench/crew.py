"""One process per library, frozen while it is not its turn.

After a call the threads of OpenBLAS, MKL or OpenMP spin for up to 0.2 s in the hope of more work.
Left running, they would slow whichever library is measured next. A worker is therefore stopped
(SIGSTOP) as soon as it has answered and continued when it is asked again; where the system has no
such signal, the parent waits out the spinning instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from tiercel.errors import TiercelRuntimeError

PACKAGE_ROOT = str(Path(__file__).parents[2])  # workers import this very tiercel
CAN_FREEZE = hasattr(signal, "SIGSTOP")
SPIN_SECONDS = 0.25
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "TIERCEL_NUM_THREADS",
)
# Variables by which a user's shell can slow a peer: a pinned core type, a wrong cache size.
UNSET_VARIABLES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "MKL_DEBUG_CPU_TYPE", "BLIS_ARCH_TYPE")


class RequestFailed(TiercelRuntimeError):
    """A worker lives but could not do what was asked: this case is lost to this library."""


class WorkerLost(TiercelRuntimeError):
    """A worker died or could not start: the library leaves the comparison."""


def worker_environment(threads: int) -> dict[str, str]:
    """The parent's environment with every thread count fixed and nothing that slows a peer."""
    kept = {name: value for name, value in os.environ.items() if name not in UNSET_VARIABLES}
    fixed = dict.fromkeys(THREAD_VARIABLES, str(threads))
    search_path = os.pathsep.join([PACKAGE_ROOT, *filter(None, [kept.get("PYTHONPATH")])])
    return kept | fixed | {"MKL_DYNAMIC": "FALSE", "PYTHONUTF8": "1", "PYTHONPATH": search_path}


def measure_machine(threads: int) -> None:
    """Let tiercel store its profile of the machine before other processes make it busy.

    Best effort: a failure shows again, with its reason, in tiercel's own worker.
    """
    command = [sys.executable, "-c", "import tiercel; tiercel.machine()"]
    subprocess.run(command, env=worker_environment(threads), check=False, capture_output=True)


class Worker:
    """A library in its own process. `hello` must be called once before `ask`."""

    def __init__(self, name: str, threads: int) -> None:
        self.name = name
        self.version = ""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tiercel.bench.worker", name, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=worker_environment(threads),
            encoding="utf-8",
        )

    def hello(self) -> None:
        """Wait until the library is loaded."""
        try:
            self.version = self._receive()["version"]
        except RequestFailed as problem:
            raise WorkerLost(str(problem)) from None
        self._freeze()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send one request and wait for the answer; the worker runs only meanwhile."""
        assert self._process.stdin is not None
        self._thaw()
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._lost() from None
        answer = self._receive()
        self._freeze()
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.kill()  # also ends a stopped process; it holds nothing worth saving
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                _close_quietly(stream)
        self._errors.close()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._lost()
        answer = json.loads(line)
        if "failed" in answer:
            self._freeze()
            raise RequestFailed(f"{self.name}: {answer['failed']}")
        return answer

    def _lost(self) -> WorkerLost:
        code = self._process.wait()
        self._errors.seek(0)
        tail = self._errors.read().decode(errors="replace").strip().splitlines()[-3:]
        return WorkerLost(f"{self.name}: its process ended with code {code}: {' | '.join(tail)}")

    def _freeze(self) -> None:
        if self._process.poll() is not None:
            return
        if CAN_FREEZE:
            self._process.send_signal(signal.SIGSTOP)
        else:
            time.sleep(SPIN_SECONDS)

    def _thaw(self) -> None:
        if CAN_FREEZE and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)


class Crew:
    """Workers of several libraries at one thread count; a context manager that ends them all."""

    def __init__(self, names: list[str], threads: int) -> None:
        self.lost: list[str] = []
        self.workers = {name: Worker(name, threads) for name in names}
        try:
            self._greet(names)
        except BaseException:  # an interrupt while libraries load must not leave workers behind
            self.close()
            raise

    def _greet(self, names: list[str]) -> None:
        for name in names:
            try:
                self.workers[name].hello()
            except WorkerLost as problem:
                self.drop(name, problem)

    def drop(self, name: str, reason: Exception) -> None:
        """Take a library out of the comparison and remember why."""
        self.workers.pop(name).close()
        self.lost.append(str(reason))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers.values():
            worker.close()


def _close_quietly(stream: Any) -> None:
    with contextlib.suppress(OSError):  # unsent bytes to a process that is gone
        stream.close()
