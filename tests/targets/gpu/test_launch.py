"""Work that is written down once and repeated on other memory, with a kernel that only listens."""

import pytest
import torch

from tiercel.targets.gpu import failure
from tiercel.targets.gpu.launch import Launch, Memory, place, stand_in


class Kernel:
    """What Triton's kernels offer: the first launch compiles, and what it compiled is launched."""

    arg_names = ("x", "n", "y", "SIZE")

    def __init__(self) -> None:
        self.first: list[tuple] = []
        self.later: list[tuple] = []

    def __getitem__(self, grid):
        def launch(*arguments, SIZE, num_warps):
            self.first.append((grid, *arguments, SIZE, num_warps))
            return {grid: lambda *values, stream: self.later.append((*values, stream))}

        return launch


def test_views_of_stand_ins_know_their_place():
    x = stand_in(2, (6, 4), (4, 1), torch.float64)
    assert place(x) == (2, 0)
    assert place(x[3:, 2:].mT) == (2, 8 * (3 * 4 + 2))
    z = stand_in(1, (6, 4), (4, 1), torch.complex64)
    assert place(torch.view_as_real(z)[..., 1][2]) == (1, 8 * 8 + 4)
    assert place(stand_in(3, (4,), (1,), torch.int32, 5)) == (3, 20)


def test_the_first_launch_gets_tensors_and_later_ones_addresses():
    kernel, x = Kernel(), stand_in(0, (6, 4), (4, 1), torch.float32)
    launch = Launch(kernel, 7, x[2:], 3, stand_in(1, (2,), (1,), torch.int32), SIZE=5, num_warps=4)
    first, second = (
        (torch.arange(24.0).view(6, 4) + i, torch.tensor([1, 2], dtype=torch.int32))
        for i in range(2)
    )
    launch(Memory(first), stream=0)
    ((grid, seen, three, other, *rest),) = kernel.first
    assert grid == (7, 1, 1)
    assert (three, rest) == (3, [5, 4])
    assert torch.equal(seen, first[0][2:])
    assert other.data_ptr() == first[1].data_ptr()
    launch(Memory(second), stream=11)
    assert kernel.later == [(second[0].data_ptr() + 32, 3, second[1].data_ptr(), 5, 11)]


def test_memory_shows_itself_in_the_shape_and_dtype_of_a_stand_in():
    workspace = torch.arange(16, dtype=torch.float16)
    view = Memory([None, workspace]).view(stand_in(1, (2, 2), (2, 1), torch.float32, 3))
    assert view.dtype is torch.float32
    assert view.data_ptr() == workspace.data_ptr() + 12
    z = torch.complex(torch.arange(6.0), -torch.arange(6.0)).view(2, 3)
    imaginary = torch.view_as_real(stand_in(0, (2, 3), (3, 1), torch.complex64))[..., 1]
    assert torch.equal(Memory([z]).view(imaginary), z.imag)


def test_a_stand_in_that_is_gone_is_not_taken_for_another():
    """Python gives a new object the id of one that died a moment ago."""
    memory = Memory([torch.arange(64.0)])
    for i in range(64):
        view = memory.view(stand_in(0, (1,), (1,), torch.float32, i))
        assert view.item() == i


def test_what_triton_raises_where_it_builds_nothing_is_one_kind_of_error(monkeypatch):
    class Broken(Kernel):
        def __getitem__(self, grid):
            def launch(*arguments, **constants):
                raise OSError("no C compiler\nand more")

            return launch

    monkeypatch.setattr(failure, "_reasons", [])
    launch = Launch(Broken(), 1, stand_in(0, (4,), (1,), torch.float32))
    with (
        pytest.warns(RuntimeWarning, match=r"\(OSError: no C compiler\), so PyTorch multiplies"),
        pytest.raises(failure.KernelFailed, match="Triton builds no kernels here"),
    ):
        launch(Memory([torch.ones(4)]), 0)
    assert failure.why_none().endswith("no C compiler)")
    with pytest.raises(failure.KernelFailed):  # and no second warning
        launch(Memory([torch.ones(4)]), 0)
