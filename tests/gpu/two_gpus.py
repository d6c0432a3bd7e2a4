"""Products on a second GPU, and in programs of two ranks (NCCL): run by hand where there are two.

    python tests/gpu/two_gpus.py

Prints a line for each case; fails if one does. Sizes are such that plans of ours run.
"""

import copy
import socket
import sys
import traceback
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import tiercel

SIZE = 4096


def normal(*shape: int, dtype: torch.dtype = torch.float32, device: int = 1) -> torch.Tensor:
    """Random numbers on a device."""
    return torch.randn(*shape, device=f"cuda:{device}").to(dtype)


def close(found: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> None:
    """Check device and value by the Frobenius norm."""
    assert found.device == wanted.device, (found.device, wanted.device)
    error = float((found.double() - wanted.double()).norm() / wanted.double().norm())
    assert error < tolerance, f"{error:.1e} apart, allowed {tolerance:.1e}"


def schemes_around_the_vendor() -> None:
    for _ in range(3):  # planned, found, repeated
        a, b = normal(SIZE, SIZE), normal(SIZE, SIZE)
        close(tiercel.matmul(a, b), a @ b, 1e-5)
    assert tiercel.last_plan().chosen.algorithm != "vendor"  # type: ignore[union-attr]


def sixteen_bits() -> None:
    a, b = normal(SIZE, 2048, dtype=torch.bfloat16), normal(2048, SIZE, dtype=torch.bfloat16)
    for _ in range(2):
        close(tiercel.matmul(a, b), a @ b, 1e-2)
        close(tiercel.matmul(a, b, target="hopper"), a @ b, 1e-2)
        close(tiercel.matmul(a, b, epilogue="relu"), torch.relu(a @ b), 1e-2)
        close(tiercel.linear(a, b.t(), b[0]), F.linear(a, b.t(), b[0]), 1e-2)
        c = normal(SIZE, SIZE, dtype=torch.bfloat16)
        close(tiercel.matmul(a, b, c=c, beta=2), a @ b + 2 * c, 1e-2)


def packed_weights() -> None:
    x, w = normal(8192, 8192, dtype=torch.bfloat16), normal(8192, 8192, dtype=torch.bfloat16)
    packed = tiercel.pack(w.t(), scheme="winograd")
    for _ in range(2):
        close(tiercel.linear(x, packed, scheme="winograd"), F.linear(x, w), 1e-2)
    x, w = normal(SIZE, SIZE), normal(SIZE, SIZE)
    close(tiercel.linear(x, tiercel.pack(w.t(), scheme="strassen")), F.linear(x, w), 1e-5)


def verified() -> None:
    for _ in range(2):
        a, b = normal(SIZE, SIZE), normal(SIZE, SIZE)
        close(tiercel.matmul(a, b, verify=True), a @ b, 1e-5)


def captured() -> None:
    a, b = normal(SIZE, SIZE), normal(SIZE, SIZE)
    with torch.cuda.device(1):
        for _ in range(2):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                found = tiercel.matmul(a, b)
            a.normal_()
            graph.replay()
            close(found, a @ b, 1e-5)
            tiercel.matmul(a, b)


def of_two_devices() -> None:
    for n in (64, SIZE):
        a, b = normal(n, n), normal(n, n, device=0)
        tiercel.matmul(a, a)
        try:
            tiercel.matmul(a, b)
        except (RuntimeError, ValueError):
            continue
        raise AssertionError("operands on two devices were multiplied")


def gradients() -> None:
    x, w = (normal(SIZE, SIZE).requires_grad_() for _ in range(2))
    y, v = (z.detach().clone().requires_grad_() for z in (x, w))
    tiercel.linear(x, w).square().sum().backward()
    F.linear(y, v).square().sum().backward()
    for ours, theirs in ((x, y), (w, v)):
        assert ours.grad is not None
        assert theirs.grad is not None
        close(ours.grad, theirs.grad, 1e-5)


SECOND = (
    schemes_around_the_vendor, sixteen_bits, packed_weights, verified, captured, of_two_devices,
    gradients,
)  # fmt: skip


class Mlp(nn.Module):
    """Two layers, each large enough for a plan of ours when it is halved."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(SIZE, 2 * SIZE)
        self.down = nn.Linear(2 * SIZE, SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.up(x)))


def mlp() -> tuple[Mlp, Mlp]:
    """A model to distribute and its untouched copy, the same on every rank."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Mlp()
    return model, copy.deepcopy(model)


def same_step(model: nn.Module, plain: nn.Module) -> None:
    """Forward and backward of both agree, on the input and on every parameter."""
    torch.manual_seed(1)
    x = torch.randn(SIZE, SIZE, device="cuda")
    ours, expected = (x.clone().requires_grad_() for _ in range(2))
    tiercel.stats(reset=True)
    y, z = model(ours), plain(expected)
    close(whole(y), z, 1e-5)
    for result in (y, z):
        result.square().mean().backward()
    close(whole(ours.grad), whole(expected.grad), 1e-5)
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        close(whole(mine.grad), whole(theirs.grad), 1e-5)
    assert set(tiercel.stats()) - {"vendor"}, "no plan of ours ran"


def whole(x: torch.Tensor | None) -> torch.Tensor:
    """All shards of a distributed tensor."""
    assert x is not None
    return x.full_tensor() if isinstance(x, DTensor) else x


def data_parallel() -> None:
    model, plain = mlp()
    tiercel.patch(model)
    same_step(DistributedDataParallel(model), plain)


def tensor_parallel() -> None:
    model, plain = mlp()
    mesh = init_device_mesh("cuda", (2,))
    parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    tiercel.patch(model)
    same_step(model, plain)


def fully_sharded() -> None:
    model, plain = mlp()
    mesh = init_device_mesh("cuda", (2,))
    for part in (model.up, model.down, model):
        fully_shard(part, mesh=mesh)
    tiercel.patch(model)
    same_step(model, plain)


RANKS = (data_parallel, tensor_parallel, fully_sharded)


def all_ran(cases: tuple[Callable[[], None], ...], where: str) -> bool:
    """Run each case and print how it went."""
    done = True
    for case in cases:
        try:
            case()
            print(f"{where}: {case.__name__} ok", flush=True)
        except Exception:
            done = False
            print(f"{where}: {case.__name__} FAILED\n{traceback.format_exc(limit=-4)}", flush=True)
    return done


def rank(number: int, port: int) -> None:
    """One rank of two."""
    torch.cuda.set_device(number)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("nccl", init_method=address, rank=number, world_size=2)
    done = all_ran(RANKS, f"rank {number}")
    dist.destroy_process_group()
    sys.exit(not done)


def main() -> None:
    """Both parts."""
    torch.set_float32_matmul_precision("highest")
    done = all_ran(SECOND, "second device")
    assert torch.cuda.current_device() == 0
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    torch.multiprocessing.spawn(rank, args=(port,), nprocs=2)
    sys.exit(not done)


if __name__ == "__main__":
    main()
