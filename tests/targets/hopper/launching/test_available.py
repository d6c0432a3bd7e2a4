"""Whether the Hopper kernels can run, asked by several threads at once."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from tiercel.targets.hopper.launching import available


def test_threads_import_one_after_the_other(monkeypatch):
    busy = threading.Lock()

    def imported():
        assert busy.acquire(blocking=False), "two threads import at once"
        time.sleep(0.01)
        busy.release()
        raise ImportError(name="cuda.core")

    monkeypatch.setattr(available, "_imported", imported)
    ask = available.available.__wrapped__
    with ThreadPoolExecutor(4) as threads:
        reasons = list(threads.map(ask, range(4)))
    assert all("cuda.core is not installed" in str(reason) for reason in reasons)
