"""Memory that stays, without a GPU."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from tiercel.targets.hopper.launching import lasting


@pytest.fixture
def asked(monkeypatch):
    """What was allocated, for which stream and by which thread, and what was cleared."""
    found = SimpleNamespace(allocated=[], cleared=[])
    streams = []

    def empty(words, dtype, device):
        found.allocated.append((words, dtype, device, streams[-1], threading.get_ident()))
        return torch.ones(words, dtype=dtype)

    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda stream, device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda one: streams.append(one) or nullcontext())
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 9, raising=False)
    monkeypatch.setattr(lasting, "on_device", lambda device: nullcontext())
    monkeypatch.setattr(lasting, "clear_words", lambda *where: found.cleared.append(where))
    monkeypatch.setattr(torch, "empty", empty)
    return found


@pytest.mark.parametrize(("stream", "used"), [(7, 7), (None, 9)])
def test_another_thread_allocates_for_the_stream(asked, stream, used):
    made = lasting.lasting(30, 1, stream)
    ((*what, thread),) = asked.allocated
    assert what == [30, torch.int32, "cuda:1", used]
    assert thread != threading.get_ident()
    assert asked.cleared == [(made.data_ptr(), 30, used)]


def test_a_lack_of_memory_is_the_callers(asked, monkeypatch):
    def empty(*_, **__):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch, "empty", empty)
    with pytest.raises(torch.OutOfMemoryError):
        lasting.lasting(30, 1, 7)


def test_when_no_thread_begins_any_more(asked, monkeypatch):
    def submit(self, work):
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(lasting.ThreadPoolExecutor, "submit", submit)
    assert len(lasting.lasting(30, 1, 7)) == 30
    assert asked.allocated[0][-1] == threading.get_ident()
