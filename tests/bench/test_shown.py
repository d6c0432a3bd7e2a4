"""The table, the remarks, the page and the picture of one result."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.bench.sample import sample_results
from tiercel.bench import optional
from tiercel.bench.html import page
from tiercel.bench.picture import draw, panels_of, svg_text, write_picture
from tiercel.bench.remarks import remarks
from tiercel.bench.table import render
from tiercel.errors import TiercelRuntimeError


def printed(width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(render(sample_results(), width))
    return console.export_text()


def test_wide_table_has_every_library():
    text = printed(140)
    for word in ("numpy", "blis", "p25–p75", "2048×11008×4096", "1.22", "1.200", "best peer"):
        assert word in text
    assert "901×800×700 " not in text.split("measured")[0]  # random shapes: one line, no rows


def test_narrow_table_keeps_the_verdict():
    lines = printed(80).splitlines()
    assert max(len(line.rstrip()) for line in lines[:8]) <= 80
    assert "ratio" in printed(80)
    assert "p25–p75" not in printed(80)


def test_remarks_say_the_run_in_a_few_lines():
    text = "\n".join(remarks(sample_results()))
    assert "peak, float32, 1 thr: 98.0 GFLOP/s" in text
    assert "bars met: 0 of 1" in text
    assert "2 above 1 ms: median ratio 1.015, worst 0.980 (901×800×700)" in text
    assert "+2.00 µs at 4³" in text
    assert "pip install mkl" in text


def test_empty_results_are_shown():
    empty = sample_results(cases=(), peaks=(), overhead=(), notes=())
    console = Console(width=80, record=True)
    console.print(render(empty, 80))
    assert "<table>" in page(empty, None)


def test_page_is_self_contained_and_escaped():
    text = page(sample_results(), "<svg></svg>")
    assert "A CPU &lt;fast&gt;" in text
    assert "tiercel bench --shapes quick" in text
    assert "<figure><svg></svg></figure>" in text
    assert "http" not in text


def test_picture_is_written(tmp_path: Path):
    write_picture(sample_results(), tmp_path / "out.png")
    assert (tmp_path / "out.png").stat().st_size > 10_000
    svg = svg_text(sample_results())
    assert svg.startswith("<svg")
    assert "measured FMA peak 98" in svg


def test_axis_ends_a_third_above_the_peak():
    axes = draw(sample_results()).axes[0]
    assert axes.get_ylim() == (0, pytest.approx(1.3 * 98))


def test_random_shapes_have_no_panel():
    groups = [group for _, _, group in panels_of(sample_results().cases)]
    assert groups == ["squares", "plain"]


def test_missing_optional_package_is_one_line(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(TiercelRuntimeError, match=r"pip install 'tiercel\[bench\]'"):
        optional.require("no_such_package_here", "a picture")
