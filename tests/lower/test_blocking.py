"""Block sizes: what must hold for any problem, program, register tile and target."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiercel import schemes
from tiercel.lower.blocking import PAGE, Target, Tile, blocking, ceil_div, round_up
from tiercel.lower.program import Program, lower

TILES = [
    Tile(6, 16, 8, 4), Tile(6, 8, 8, 8),  # AVX2
    Tile(12, 32, 16, 4), Tile(12, 16, 8, 8),  # AVX-512
    Tile(5, 16, 8, 4), Tile(5, 8, 8, 8),  # NEON
]  # fmt: skip
PROGRAMS = [
    lower(name and schemes.get(name), is_complex=is_complex)
    for name in (None, "strassen", "laderman", "strassen2", "hopcroft-kerr-2x3x4")
    for is_complex in (False, True)
]
extents = st.integers(1, 5000)
targets = st.builds(
    Target,
    rows=st.integers(1, 600),
    depth=st.integers(1, 600),
    cols=st.integers(1, 5000),
    task_cols=st.integers(1, 5000),
    k_span=st.integers(1, 10_000),
)


class Case:
    """One blocking and what it was asked for."""

    def __init__(
        self, M: int, N: int, K: int, program: Program, tile: Tile, target: Target, by_row: bool
    ) -> None:
        self.M, self.N, self.K = M, N, K
        self.program, self.tile, self.target, self.by_row = program, tile, target, by_row
        self.blocking = blocking(M, N, K, program, tile, target, by_row=by_row)

    def __repr__(self) -> str:
        size = f"{self.M}×{self.N}×{self.K}"
        return f"{size} {self.program.name} {self.tile} {self.target} {self.blocking}"

    def sub_blocks(self) -> tuple[int, int, int]:
        """Rows, depth and columns of a sub-block."""
        b, p = self.blocking, self.program
        return b.mc // p.m, b.kc // p.k, b.nc // p.n


cases = st.builds(
    Case,
    extents, extents, extents,
    st.sampled_from(PROGRAMS), st.sampled_from(TILES), targets, st.booleans(),
)  # fmt: skip


@given(case=cases)
def test_steps_are_whole_tiles_of_every_sub_block(case: Case):
    b, p, tile = case.blocking, case.program, case.tile
    assert b.mc % (p.m * tile.mr) == 0
    assert b.kc % (p.k * tile.chunk) == 0
    assert b.nc % (p.n * tile.nr) == 0
    assert b.k_pad == b.kc // p.k
    assert b.panels == b.nc // p.n // tile.nr


def steps_of(extent: int, step: int) -> list[int]:
    return [min(step, extent - at) for at in range(0, extent, step)]


@given(case=cases)
def test_steps_cover_the_problem_within_the_buffers(case: Case):
    """The driver cuts each step anew; no piece may outgrow the sub-block of a full step."""
    b, p, tile = case.blocking, case.program, case.tile
    for extent, step, parts, multiple in (
        (case.M, b.mc, p.m, tile.mr),
        (case.N, b.nc, p.n, tile.nr),
        *((span, b.kc, p.k, tile.chunk) for span in set(steps_of(case.K, b.k_span))),
    ):
        pieces = steps_of(extent, step)
        assert sum(pieces) == extent
        for piece in pieces:
            sub_block = round_up(ceil_div(piece, parts), multiple)
            assert piece <= parts * sub_block <= step


@given(case=cases)
def test_steps_are_balanced(case: Case):
    """No step more than the sub-blocks' rounding needs, so that no core works on a crumb."""
    b, p, tile, target = case.blocking, case.program, case.tile, case.target
    for extent, step, wanted, multiple in (
        (case.M, b.mc, p.m * target.rows, p.m * tile.mr),
        (case.N, b.nc, p.n * target.cols, p.n * tile.nr),
        (b.k_span, b.kc, p.k * target.depth, p.k * tile.chunk),
        (case.K, b.k_span, target.k_span, 1),
    ):
        count = max(1, round(extent / wanted))
        assert step < extent / count + multiple
        assert ceil_div(extent, step) <= count


@given(case=cases)
def test_tasks_and_packing_steps_cover_a_sub_block(case: Case):
    b = case.blocking
    _, depth, _ = case.sub_blocks()
    assert 1 <= b.task_panels <= b.panels
    assert 1 <= b.pack_panels <= min(4, b.panels)
    assert 1 <= b.slice <= depth
    assert b.slice == depth or b.slice % 16 == 0


@given(case=cases)
def test_buffers_of_a_thread_do_not_overlap(case: Case):
    b, p, tile = case.blocking, case.program, case.tile
    height, depth, _ = case.sub_blocks()
    a_blocks, b_blocks, c_blocks = p.planes * p.m * p.k, p.planes * p.k * p.n, p.planes * p.m * p.n
    assert b.a_block >= height * depth * tile.size
    assert b.b_block >= b.pack_panels * tile.nr * b.slice * tile.size
    assert b.c_block >= height * b.task_panels * tile.nr * tile.size
    summed = not p.plain
    column_sums = b_blocks * b.pack_panels * tile.nr * tile.size
    regions = [
        (b.at_stage_a, a_blocks * b.a_block),
        (b.at_pack_a, summed * b.a_block),
        (b.at_scratch, c_blocks * b.c_block),
        (b.at_stage_b, summed * (b_blocks * b.b_block + column_sums)),
        (b.at_tables, 8 * sum(map(p.terms, "abc"))),
    ]
    end = 0
    for start, nbytes in regions:
        assert start >= end
        assert start % PAGE == 0
        end = start + nbytes
    assert end <= b.private
    assert b.private % PAGE == 0


@given(case=cases, views=st.integers(1, 8))
def test_outer_level_has_room_for_one_more_staged_block(case: Case, views: int):
    """It stages a view beside the block that it is summed into, with scales for every view."""
    p, tile = case.program, case.tile
    b = blocking(case.M, case.N, case.K, p, tile, case.target, by_row=case.by_row, views=views)
    a_blocks, b_blocks, c_blocks = p.planes * p.m * p.k, p.planes * p.k * p.n, p.planes * p.m * p.n
    scales = views * b.pack_panels * tile.nr * tile.size
    regions = [
        (b.at_stage_a, (a_blocks + 1) * b.a_block),
        (b.at_pack_a, b.a_block),
        (b.at_scratch, c_blocks * b.c_block),
        (b.at_stage_b, b_blocks * (b.b_block + scales) + b.b_block),
        (b.at_tables, 8 * sum(map(p.terms, "abc"))),
    ]
    ends = [start + nbytes for start, nbytes in regions]
    starts = [start for start, _ in regions[1:]] + [b.private]
    assert all(end <= start for end, start in zip(ends, starts, strict=True))


@given(case=cases)
def test_tasks_that_pack_in_turn_hold_some_panels_and_nobody_all(case: Case):
    target = replace(case.target, in_turn=True)
    b = blocking(case.M, case.N, case.K, lower(None), case.tile, target, by_row=case.by_row)
    assert b.packed == b.packed_pass == 0
    assert b.private - b.at_pack_b >= b.pack_panels * b.k_pad * case.tile.nr * case.tile.size


@given(case=cases, threads=st.integers(1, 64))
def test_workspace_is_packed_b_and_a_region_per_thread(case: Case, threads: int):
    b = case.blocking
    assert b.workspace(threads) == b.packed + threads * b.private


@given(case=cases)
def test_blocks_are_aligned_for_every_vector(case: Case):
    b = case.blocking
    assert b.a_block % 64 == b.b_block % 64 == b.c_block % 64 == b.packed % 64 == 0


@given(case=cases)
def test_packed_operand_holds_every_panel(case: Case):
    b, p, tile = case.blocking, case.program, case.tile
    panel = b.k_pad * tile.nr * tile.size
    assert b.packed == ceil_div(b.k_span, b.kc) * len(p.products) * b.panels * panel
    assert b.packed_pass == ceil_div(case.N, b.nc) * b.packed


@pytest.mark.parametrize("by_row", [True, False])
def test_only_a_row_major_operand_is_packed_several_panels_at_a_time(by_row: bool):
    wide = blocking(
        512, 512, 512, lower(None), TILES[0], Target(128, 256, 512, 512, 4096), by_row=by_row
    )
    assert wide.pack_panels == (4 if by_row else 1)


def test_ceil_div_and_round_up():
    assert [ceil_div(x, 4) for x in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [round_up(x, 4) for x in (0, 1, 4, 5)] == [0, 4, 4, 8]
