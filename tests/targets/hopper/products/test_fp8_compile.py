"""float8 kernels that add up in float32 compile to two accumulators that stay in registers."""

import re

import pytest

from tests.targets.hopper.products.test_compile import assembly, count
from tiercel.errors import TiercelValueError
from tiercel.targets.hopper.config import Config, Tile
from tiercel.targets.hopper.products import classical, heuristic

FIRST = heuristic.PROMOTED[0]


def config(tile: Tile = FIRST, operand: str = "float8_e4m3fn", **changes) -> Config:
    return Config(tile, operand, "bfloat16", False, False, **changes)


CONFIGS = {
    "number": config(promoted=True, scaling="number"),
    "rows": config(promoted=True, scaling="vectors"),
    "fast": config(scaling="vectors"),
    "large": config(heuristic.LARGE, scaling="vectors"),
    "pingpong": config(Tile(128, 128, 6, "pingpong", cluster_m=2), scaling="vectors"),
    "e5m2": config(operand="float8_e5m2", promoted=True, scaling="blocks"),
    "direct": config(direct=True, promoted=True, scaling="blocks"),
    "e5m2 by e4m3": config(operand="float8_e5m2", operand_b="float8_e4m3fn", promoted=True),
    "whole": config(heuristic.PROMOTED_WHOLE, promoted=True, scaling="vectors"),
    "whole, columns": config(heuristic.PROMOTED_WHOLE, promoted=True, scaling="column blocks"),
    "vectors": config(heuristic.VECTORS, scaling="vectors"),
    **{f"{x.m}x{x.n}": config(x, promoted=True, scaling="blocks") for x in heuristic.PROMOTED},
    **{
        f"{x.m}x{x.n}, columns": config(x, promoted=True, scaling="column blocks")
        for x in heuristic.PROMOTED_COLUMNS
    },
}


@pytest.mark.parametrize("chosen", CONFIGS.values(), ids=list(CONFIGS))
def test_sums_stay_in_registers(chosen: Config):
    sass = assembly(classical.text(chosen))
    parts = chosen.tile.blocks * chosen.tile.n // chosen.wgmma_n
    # Once more at the end of a cooperative tile, or at the beginning of one that is promoted.
    assert count("QGMMA", sass) == 4 * parts * (1 + (chosen.tile.schedule == "cooperative"))
    loop = re.search(r"QGMMA.*QGMMA[^\n]*\n", sass, re.DOTALL)
    assert loop is not None
    assert count("LDL", loop[0]) == count("STL", loop[0]) == 0
    assert count("MEMBAR", loop[0]) == 0
    promoted = count("FFMA", sass) + count("FADD", sass)
    assert promoted >= chosen.tile.accumulators if chosen.promoted else promoted < 64


def test_only_tiles_that_fit_are_promoted():
    with pytest.raises(TiercelValueError, match="cooperative"):
        config(Tile(128, 128, 6, "pingpong"), promoted=True)
    with pytest.raises(TiercelValueError, match="tile of 64, 128, 256 columns"):
        config(Tile(128, 192, 4, "cooperative"), promoted=True, scaling="blocks")
    with pytest.raises(TiercelValueError, match="set promoted"):
        config(scaling="blocks")
    with pytest.raises(TiercelValueError, match="shared memory"):
        config(Tile(128, 128, 6, "cooperative"), promoted=True, scaling="blocks")
