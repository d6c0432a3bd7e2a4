"""The kernel that shares its last turn compiles, without a GPU, to what it should be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.targets.hopper.products.test_compile import assembly, count, declared
from tiercel.targets.hopper.config import Config
from tiercel.targets.hopper.launching.tensor_map import TensorMap
from tiercel.targets.hopper.products import classical, heuristic
from tiercel.targets.hopper.products.params import Params
from tiercel.targets.hopper.products.stream_k import Shares

PLAIN = Config(heuristic.CANDIDATES[0], "bfloat16", "bfloat16", False, False)


@pytest.mark.parametrize(
    "config",
    [
        PLAIN,
        replace(PLAIN, tile=heuristic.CANDIDATES[2], a_mn_major=True, b_mn_major=True),
        replace(PLAIN, operand="float8_e4m3fn", scaling="number"),
        replace(PLAIN, operand="float8_e4m3fn", scaling="vectors", promoted=True),
        replace(PLAIN, operand="float32", output="float32", a_mn_major=True, fragments=True),
    ],
    ids=["bfloat16", "transposed 128x192", "float8", "promoted", "fragments"],
)
def test_kernel_keeps_to_registers(config: Config):
    sass = assembly(classical.text(replace(config, stream_k=True)))
    loop = sass[sass.index("GMMA") : sass.rindex("GMMA")]
    assert count("LDL", loop) == count("STL", loop) == 0
    # Numbers of tiles, where two accumulators leave little room, by NVRTC 13.5; none by 13.0.
    most = 32 if config.promoted else 0
    assert count("LDL", sass) <= most
    assert count("STL", sass) <= most
    assert len([x for x in sass.splitlines() if "STG.E.128" in x]) == config.tile.n // 8


def test_argument_has_the_layout_that_the_kernel_reads():
    config = replace(PLAIN, stream_k=True, direct=True)
    content = Params(
        maps=(TensorMap(128),) * 3, block_rows=0, block_columns=0, tile_columns=0, k_tiles=0,
        cluster_rows=0, cluster_columns=0, batches=0, group=0, a_batch_step=0, b_batch_step=0,
        alpha=0, beta=0, stream_k=Shares(1, 2, 3, 0.0).pack(0, 0), epilogue=bytes(24),
    ).pack()  # fmt: skip
    text = classical.text(config)
    shared = config.tile.shared_bytes
    declared(text[: text.index("struct Program")], len(content), "Params", "Config", shared)
