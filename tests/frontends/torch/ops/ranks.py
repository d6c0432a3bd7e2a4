"""One rank of a ``torch.distributed`` program; test_distributed.py starts as many as it wants.

    python ranks.py RANK WORLD FOLDER

Runs every case below and prints "CASE ok", or the error, on a line each. Every model is compared
with a copy of it that is neither patched nor distributed.
"""

import copy
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import tiercel
from tiercel.frontends.torch import cpu

#: (M, N, K) of every product that a kernel of this rank computed.
RUNS: list[tuple[int, int, int]] = []


def send_everything_to_the_kernels() -> None:
    plan_for, execute = cpu.plan_for, cpu.execute

    def always_planned(problem):
        return plan_for(replace(problem, scheme=problem.scheme or "classical", must_use=True))

    def recorded(plan, *operands):
        RUNS.append((plan.problem.M, plan.problem.N, plan.problem.K))
        return execute(plan, *operands)

    cpu.LEAST_WORK = dict.fromkeys(cpu.LEAST_WORK, 0)
    cpu.plan_for, cpu.execute = always_planned, recorded


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


def mlp() -> tuple[Mlp, Mlp]:
    """A model to distribute and its untouched copy, the same on every rank."""
    torch.manual_seed(0)
    model = Mlp()
    return model, copy.deepcopy(model)


def whole(x: torch.Tensor | None) -> torch.Tensor:
    assert x is not None
    return x.full_tensor() if isinstance(x, DTensor) else x


def same_step(model: nn.Module, plain: nn.Module, x: torch.Tensor) -> None:
    """Forward and backward of both agree, on the input and on every parameter."""
    ours, expected = (x.clone().requires_grad_() for _ in range(2))
    y, z = model(ours), plain(expected)
    torch.testing.assert_close(whole(y), z)
    for result in (y, z):
        result.square().sum().backward()
    torch.testing.assert_close(whole(ours.grad), expected.grad)
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(whole(mine.grad), theirs.grad)


def tensor_parallel(world: int) -> None:
    model, plain = mlp()
    mesh = init_device_mesh("cpu", (world,))
    parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    tiercel.patch(model)
    RUNS.clear()
    same_step(model, plain, torch.randn(2, 6, 16))
    assert RUNS[:2] == [(12, 32 // world, 16), (12, 16, 32 // world)], RUNS  # the local shards
    assert len(RUNS) == 6, RUNS


def patched_before_it_is_sharded(world: int) -> None:
    model, plain = mlp()
    tiercel.patch(model)
    mesh = init_device_mesh("cpu", (world,))
    parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    RUNS.clear()
    same_step(model, plain, torch.randn(6, 16))
    assert (6, 32 // world, 16) in RUNS, RUNS


def sequence_parallel(world: int) -> None:
    model, plain = mlp()
    mesh = init_device_mesh("cpu", (world,))
    ways = {
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    }
    parallelize_module(model, mesh, ways)
    tiercel.patch(model)
    torch.manual_seed(1)
    x = torch.randn(2, 8, 16)
    torch.testing.assert_close(whole(model(distribute_tensor(x, mesh, [Shard(1)]))), plain(x))


def compiled_tensor_parallel(world: int) -> None:
    model, plain = mlp()
    mesh = init_device_mesh("cpu", (world,))
    parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    tiercel.patch(model)
    RUNS.clear()
    same_step(torch.compile(model, backend="aot_eager"), plain, torch.randn(6, 16))  # type: ignore[arg-type]
    assert (6, 32 // world, 16) in RUNS, RUNS


def data_parallel(world: int) -> None:
    model, plain = mlp()
    tiercel.patch(model)
    RUNS.clear()
    same_step(DistributedDataParallel(model), plain, torch.randn(6, 16))
    assert (6, 32, 16) in RUNS, RUNS


def fully_sharded(world: int) -> None:
    model, plain = mlp()
    mesh = init_device_mesh("cpu", (world,))
    fully_shard(model.up, mesh=mesh)
    fully_shard(model, mesh=mesh)
    report = tiercel.patch(model)
    assert report.patched == 2, str(report)
    RUNS.clear()
    same_step(model, plain, torch.randn(6, 16))
    assert (6, 32, 16) in RUNS, RUNS


def sharded_in_two_dimensions(world: int) -> None:
    model, plain = mlp()
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("data", "tensor"))
    ways = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    parallelize_module(model, mesh["tensor"], ways)
    fully_shard(model, mesh=mesh["data"])
    tiercel.patch(model)
    RUNS.clear()
    same_step(model, plain, torch.randn(6, 16))
    assert (6, 16, 16) in RUNS, RUNS


def products_of_sharded_tensors(world: int) -> None:
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(2)
    a, b, bias = torch.randn(8, 16), torch.randn(16, 24), torch.randn(24)
    for of_a in (Replicate(), Shard(0), Shard(1)):
        for of_b in (Replicate(), Shard(0), Shard(1)):
            x, y = distribute_tensor(a, mesh, [of_a]), distribute_tensor(b, mesh, [of_b])
            z = distribute_tensor(bias, mesh, [Replicate()])
            torch.testing.assert_close(whole(tiercel.matmul(x, y)), a @ b)
            fused = tiercel.linear(x, y.mT, z, epilogue="relu")
            torch.testing.assert_close(whole(fused), torch.relu(a @ b + bias))
            torch.testing.assert_close(whole(tiercel.linear(x, y.mT, z)), a @ b + bias)
    split = tiercel.matmul(
        distribute_tensor(a, mesh, [Shard(1)]), distribute_tensor(b, mesh, [Shard(0)])
    )
    assert split.placements == (Partial(),)


CASES: tuple[Callable[[int], None], ...] = (
    tensor_parallel,
    patched_before_it_is_sharded,
    sequence_parallel,
    compiled_tensor_parallel,
    data_parallel,
    fully_sharded,
    sharded_in_two_dimensions,
    products_of_sharded_tensors,
)


def main(rank: int, world: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world
    )
    send_everything_to_the_kernels()
    for case in CASES:
        try:
            case(world)
            print(f"{case.__name__} ok", flush=True)
        except Exception:
            print(f"{case.__name__} failed\n{traceback.format_exc()}", flush=True)
            break  # the other ranks are waiting in this one
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
