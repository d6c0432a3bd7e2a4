"""Products on several streams at once: ``python tests/gpu/streams.py SCENARIO``.

By kernels whose thread blocks wait for each other: a scheme's, and the plain one whose last turn is
shared. While they do, other kernels take multiprocessors away. A scenario that hangs is ended by
whoever started it. All results must be those of products that run alone, bit by bit: where blocks
had waited too long, the classical one would replace one.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable
from itertools import product as pairs

import pytest
import torch

import tiercel
from tiercel import schemes
from tiercel.lower.accumulator import accumulate
from tiercel.lower.accumulator.combining import Combining
from tiercel.lower.recipe import Guard
from tiercel.targets.hopper.fused.launches import FusedLaunch
from tiercel.targets.hopper.fused.packed import pack
from tiercel.targets.hopper.fused.product import prepare
from tiercel.targets.hopper.fused.verdict import Judge
from tiercel.targets.hopper.launching.compile import cubin
from tiercel.targets.hopper.launching.kernel import Arguments, Kernel, LaunchRefused
from tiercel.targets.hopper.launching.launch import Runnable
from tiercel.targets.hopper.operands.operand import of_tensor
from tiercel.targets.hopper.products import heuristic
from tiercel.targets.hopper.products.launch import launch_of
from tiercel.targets.hopper.products.stream_k import SharedLaunch

M, N, K = 5120, 4608, 2048  # 90 tiles of a quarter of the output: every cluster has one
HOWS = [
    Combining(), Combining("beside"), Combining("first", 2), Combining("both", 2, sixteenths=5)
]  # fmt: skip
WAYS = [*pairs(HOWS, (False, True))]  # True: B is combined in the call, too
COUNT = len(WAYS) + 1  # and the plain kernel
FREE = 6  # multiprocessors that a kernel which holds the others leaves
SHARED_BYTES = 200 * 1024  # no other kernel runs beside on its multiprocessors

HOLD = r"""
// Clusters of two end one after the other.
__device__ unsigned long long now() {
  unsigned long long nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  return nanoseconds;
}

struct Hold {
  unsigned long long first, step;  // nanoseconds
};

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(32)
hold(const __grid_constant__ Hold p) {
  const unsigned long long begin = now(), end = begin + p.first + blockIdx.x / 2 * p.step;
  while (now() < end) __nanosleep(1000);
}
"""


class Alone:
    """The product in all ways, as they come out when nothing else runs. The last is classical."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.a = torch.randn(M, K, device="cuda").bfloat16()
        self.b = torch.randn(N, K, device="cuda").bfloat16().t()
        self.packed = pack(self.b, accumulate(schemes.get("winograd")))
        self.wanted = []
        for work, out in self.works():
            work.run(torch.cuda.current_stream().cuda_stream)
            if isinstance(work, FusedLaunch):
                assert work.workspace.flags[0].item() == 0
            self.wanted.append(out)
        *by_scheme, classical = self.wanted
        assert not any(torch.equal(x, classical) for x in by_scheme)

    def works(self) -> list[tuple[Runnable | FusedLaunch, torch.Tensor]]:
        """Launches with memory of their own."""
        judge = Judge(Guard(1e30, 1e30), (0.0, 0.0))
        made: list[tuple[Runnable | FusedLaunch, torch.Tensor]] = []
        for how, dynamic in WAYS:
            out = torch.empty(M, N, device="cuda", dtype=torch.bfloat16)
            right, program = self.b if dynamic else self.packed, self.packed.lowered.program
            work = prepare(self.a, right, out, program=program, judge=judge, combining=how)
            made.append((work, out))
        out = torch.empty(M, N, device="cuda", dtype=torch.bfloat16)
        matrices = (of_tensor(x, "") for x in (self.a, self.b, out))
        shared = launch_of(*matrices, None, 1.0, 0.0, 0, heuristic.CANDIDATES[0], alternates=True)
        assert isinstance(shared, SharedLaunch)
        return [*made, (shared, out)]


class Lane:
    """A stream with launches of its own, and how many of its results were wrong."""

    def __init__(self, alone: Alone, number: int) -> None:
        self.alone, self.works = alone, alone.works()
        self.stream = torch.cuda.Stream(priority=-(number % 4))
        self.wrong = torch.zeros((), device="cuda", dtype=torch.int64)

    def run(self, way: int) -> None:
        way %= COUNT
        self.works[way][0].run(self.stream.cuda_stream)

    def check(self, way: int) -> None:
        """Behind the launch; nobody waits."""
        way %= COUNT
        with torch.cuda.stream(self.stream):
            out = self.works[way][1]
            self.wrong += (out != self.alone.wanted[way]).sum()
            out.zero_()

    def assert_right(self) -> None:
        torch.cuda.synchronize()
        assert self.wrong.item() == 0


def several(count: int, rounds: int = 200) -> None:
    """Launches back to back, beside products and long sums of torch."""
    alone = Alone()
    lanes = [Lane(alone, i) for i in range(count)]
    others = [torch.cuda.Stream(priority=-i) for i in range(2)]
    square = torch.randn(2048, 2048, device="cuda").bfloat16()
    large, product = torch.zeros(1 << 27, device="cuda"), torch.empty_like(square)
    torch.cuda.synchronize()
    for i in range(rounds):
        for number, lane in enumerate(lanes):
            lane.run(i + number)
            if (i + number) % 3 == 0:
                lane.check(i + number)
        with torch.cuda.stream(others[0]):
            torch.mm(square, square, out=product)
        if i % 4 == 0:
            with torch.cuda.stream(others[1]):
                large.add_(1)
    for lane in lanes:
        lane.assert_right()


def graphs(rounds: int = 15) -> None:
    """Two graphs at once, of all ways each."""
    alone = Alone()
    lanes = [Lane(alone, i) for i in range(2)]
    torch.cuda.synchronize()
    captured = []
    for number, lane in enumerate(lanes):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=lane.stream):
            for i in range(2 * COUNT):
                lane.run(i + number)
        captured.append(graph)
    for _ in range(rounds):
        for lane, graph in zip(lanes, captured, strict=True):
            with torch.cuda.stream(lane.stream):
                graph.replay()
            for way in range(COUNT):
                lane.check(way)
    for lane in lanes:
        lane.assert_right()


def held(rounds: int = 3 * COUNT) -> None:
    """All multiprocessors but a few are held, and come free one after the other, while one kernel
    waits for them, and a more important one comes.
    """
    alone = Alone()
    less, more = Lane(alone, 0), Lane(alone, 1)
    hold = Kernel(cubin(HOLD, "hold"), 0, SHARED_BYTES, "hold", overlap=False)
    blocks = torch.cuda.get_device_properties(0).multi_processor_count - FREE
    stream = torch.cuda.Stream()
    for i in range(rounds):
        torch.cuda.synchronize()
        hold.launch(
            blocks, Arguments(struct.pack("<QQ", 4_000_000, 250_000)), stream.cuda_stream, 32
        )
        time.sleep(0.001)
        less.run(i)
        time.sleep(0.001 + 0.0007 * i)  # until multiprocessors are divided between the two
        more.run(i)
        less.check(i)
        more.check(i)
    less.assert_right()
    more.assert_right()


def green(count: int = 64) -> None:
    """In a context of fewer multiprocessors: refused, unless it is said how many there are."""
    alone = Alone()
    stream = torch.cuda.current_stream().cuda_stream
    context = torch.cuda.GreenContext.create(count, 0)
    context.set_context()
    try:
        for work, _ in alone.works()[: len(WAYS)]:
            with pytest.raises(LaunchRefused, match="set_num_sms"):
                work.run(stream)
        tiercel.set_num_sms(count)
        for (work, out), wanted in zip(alone.works()[: len(WAYS)], alone.wanted, strict=False):
            work.run(stream)
            assert torch.equal(out, wanted)
    finally:
        context.pop_context()


SCENARIOS: dict[str, Callable[[], None]] = {
    "two": lambda: several(2),
    "four": lambda: several(4),
    "graphs": graphs,
    "held": held,
    "green": green,
}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]]()
    print(f"{sys.argv[1]}: as alone")
