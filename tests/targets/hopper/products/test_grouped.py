"""The grouped kernel compiles, without a GPU, to what it should be."""

import struct
from dataclasses import MISSING, fields, replace
from math import prod
from typing import Any, NamedTuple

import pytest

import tiercel
from tests.targets.hopper.products.test_compile import assembly, count
from tiercel import epilogues
from tiercel.errors import TiercelValueError
from tiercel.targets.hopper import source
from tiercel.targets.hopper.config import MOST_GROUPS, Config
from tiercel.targets.hopper.epilogues import grouped
from tiercel.targets.hopper.epilogues.epilogue import epilogue_text
from tiercel.targets.hopper.launching import compile as nvrtc
from tiercel.targets.hopper.launching.tensor_map import TensorMap
from tiercel.targets.hopper.products.heuristic import GROUPED, PINGPONG
from tiercel.targets.hopper.products.params import Params


def text(tile, b_mn_major=False, operand="bfloat16"):
    output = "bfloat16" if operand.startswith("float8") else operand
    config = Config(tile, operand, output, False, b_mn_major, grouped=True)
    return config, source.text(config, source.plain_program(operand))


@pytest.mark.parametrize("tile", GROUPED, ids=str)
def test_tensor_cores_and_both_ways_to_store(tile):
    sass = assembly(text(tile)[1])
    assert count("HGMMA", sass) >= 4
    assert count("UTMALDG", sass) >= 2
    assert count("UTMASTG", sass) > 0  # whole subtiles
    assert count("STG", sass) > 0  # those in which a group ends
    assert count("LDL", sass) == count("STL", sass) == 0


def test_a_cluster_shares_b_or_a():
    wide = assembly(text(GROUPED[0])[1])
    assert count(r"UTMALDG\.3D\.MULTICAST", wide) == 2  # halves of B, halves of A
    assert count(r"UTMALDG\.3D", wide) == 2 + 4  # and both halves of the other
    beside = assembly(text(replace(PINGPONG, cluster_m=1, cluster_n=2))[1])
    assert count(r"UTMALDG\.3D", beside) == 2  # always A


@pytest.mark.parametrize("operand", ["float16", "float8_e4m3fn"])
def test_other_operands(operand: str):
    sass = assembly(text(PINGPONG, operand == "float16", operand)[1])
    assert count("HGMMA", sass) + count("QGMMA", sass) >= 4


def test_argument_and_table_have_the_layout_that_the_kernel_reads():
    config, whole = text(PINGPONG)
    missing = [f.name for f in fields(Params) if f.default is MISSING and f.name != "maps"]
    numbers: dict[str, Any] = dict.fromkeys(missing, 0)
    content = Params(maps=(TensorMap(128),) * 3, **numbers).pack()
    layout = f"""
static_assert(sizeof(Params<Config>) == {len(content)});
static_assert(Layout<Config>::bytes <= {config.shared_bytes});
static_assert(sizeof(Groups) == {struct.calcsize("<QQqiii4x")});
static_assert(Groups::most == {MOST_GROUPS});
extern "C" __global__ void none() {{}}
"""
    nvrtc.cubin(whole[: whole.index("struct Program")] + layout, "layout")


class Tensor(NamedTuple):
    """What is asked of an operand: a contiguous one."""

    shape: tuple[int, ...]
    dtype: str = "torch.float32"

    def dim(self) -> int:
        return len(self.shape)

    def stride(self) -> tuple[int, ...]:
        return tuple(prod(self.shape[i + 1 :]) for i in range(len(self.shape)))

    def data_ptr(self) -> int:
        return 1 << 20


@tiercel.epilogue(bias="row", weight="column")
def expert(acc, bias, weight):
    return epilogues.swiglu(acc + bias) * weight


def test_an_epilogue_needs_no_local_memory():
    operands: Any = {"bias": Tensor((4, 1, 512), "torch.bfloat16"), "weight": Tensor((300, 1))}
    bound = grouped.bound(expert, operands, (4, 300, 512), "bfloat16")
    assert bound.columns == 256
    config = Config(PINGPONG, "bfloat16", "bfloat16", False, False, grouped=True)
    program = source.plain_program("bfloat16")
    sass = assembly(source.text(config, program, epilogue_text(bound.instance, bound.staged)))
    assert count("LDL", sass) == count("STL", sass) == 0


@pytest.mark.parametrize(
    ("epilogue", "operands", "message"),
    [
        (epilogues.rms_statistics, {}, "stores one output"),
        (epilogues.residual, {"residual": Tensor((4, 300, 512))}, r"\(4, 300, 512\); allowed"),
        (epilogues.bias, {"bias": Tensor((300,))}, "bias"),
    ],
)
def test_epilogues_that_do_not_fit_are_refused(epilogue, operands, message):
    with pytest.raises(TiercelValueError, match=message):
        grouped.bound(epilogue, operands, (4, 300, 512), "bfloat16")
