from pathlib import Path

import pytest

from tiercel.bench import shapes
from tiercel.bench.bars import BARS
from tiercel.bench.case import Case
from tiercel.errors import TiercelValueError


def test_list_reads_squares_and_m_n_k():
    cases, seconds = shapes.parse("64, 2x3x4")
    assert [(c.m, c.n, c.k) for c in cases] == [(64, 64, 64), (2, 3, 4)]
    assert seconds > 0


def test_file_has_one_shape_per_line(tmp_path: Path):
    file = tmp_path / "shapes.txt"
    file.write_text("# layers\n128x4096x1024  # up\n\n96\n")
    assert [c.label for c in shapes.parse(str(file))[0]] == ["128×4096×1024", "96³"]


@pytest.mark.parametrize("text", ["12x13", "0x1x1", "nonsense", "issue:nosuch", "random:-3"])
def test_bad_shapes_say_what_is_allowed(text: str):
    with pytest.raises(TiercelValueError, match=r"shapes: .*(write|has|needs)"):
        shapes.parse(text)


def test_random_shapes_repeat_and_cover_all_layouts():
    first, second = shapes.random_cases(200, seed=3), shapes.random_cases(200, seed=3)
    assert first == second
    assert {(c.layout_a, c.layout_b) for c in first} == {(a, b) for a in ROW_COL for b in ROW_COL}
    assert all(1 <= size <= 4096 for c in first for size in (c.m, c.n, c.k))
    assert min(c.m for c in first) < 8
    assert max(c.m for c in first) > 2000


ROW_COL = ("row", "col")


def test_issue_set_has_every_bar_in_every_column():
    cases, _ = shapes.parse("issue")
    plain = {(c.m, c.n, c.k, c.dtype, c.threads): c.bar for c in cases if c.group == "plain"}
    for bar in BARS:
        assert plain[bar.m, bar.n, bar.k, bar.dtype, 1] == bar.one_thread
        assert plain[bar.m, bar.n, bar.k, bar.dtype, 2] == bar.two_threads
    packed, _ = shapes.parse("issue:packed")
    assert len(packed) == sum(bar.packed is not None for bar in BARS)
    assert all(c.static_b and c.threads == 1 for c in packed)
    assert len(set(cases)) == len(cases)


def test_transposed_operand_may_cost_four_per_cent():
    transposed = [c for c in shapes.parse("issue:transposed")[0] if c.m == c.n == c.k == 4096]
    assert {c.bar for c in transposed if c.dtype == "float32"} == {1.2}
    assert {(c.layout_a, c.layout_b) for c in transposed} == {("col", "row"), ("row", "col")}


def test_vary_multiplies_cases():
    varied = shapes.vary(
        [Case(8, 8, 8)],
        dtypes=["float32", "float64"],
        threads=[1, 2],
        layouts=["row", "row,col"],
        static_b=True,
    )
    assert len(varied) == 8
    assert all(c.static_b for c in varied)
    assert shapes.vary([Case(8, 8, 8, threads=7)]) == [Case(8, 8, 8, threads=7)]


def test_bad_layout_is_refused():
    with pytest.raises(TiercelValueError, match="row or col"):
        shapes.vary([Case(8, 8, 8)], layouts=["row,diagonal"])


def test_quick_set_stays_within_its_time():
    cases, seconds = shapes.parse("quick")
    assert {c.dtype for c in cases} == {"float32", "float64"}
    assert seconds <= 60  # loading six libraries and a first round come on top, 90 s in all
