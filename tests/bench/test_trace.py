"""The analysis of timestamps, on recordings whose answers are known."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tiercel.bench.trace.chrome import chrome_trace
from tiercel.bench.trace.report import report
from tiercel.bench.trace.spans import KINDS, spans
from tiercel.cli import main
from tiercel.errors import TiercelValueError
from tiercel.targets.hopper.config import Tile
from tiercel.targets.hopper.tracing.recording import GROUPS, MARKS, NOTHING, Recording, Traced, load

K_TILES = 4
K_TILE = 512  # cycles: 128 x 128 x 64 multiply-adds at 2048 a cycle
EPILOGUE = 300  # cycles, and then as many for the store
PINGPONG, COOPERATIVE = Tile(128, 128, 6, "pingpong"), Tile(128, 256, 4, "cooperative")
KERNEL = Path(__file__).parents[2] / "tiercel" / "targets" / "hopper" / "kernels" / "trace.cuh"


def words(events, capacity=256):
    """(clock, mark, value) as the kernel packs them, with clocks that start at 1000."""
    made = np.full(capacity, NOTHING)
    for i, (clock, mark, value) in enumerate(events[:capacity]):
        made[i] = (clock + 1000) << 24 | value << 8 | MARKS.index(mark)
    return made


def tile_events(begin, turn, k_tile, late=0):
    """One tile of a consumer, from ``begin``; every stage comes ``late`` cycles after its turn."""
    events, now = [(turn, "turn", 0), (begin, "row", 0), (begin, "column", 0)], begin
    for k in range(K_TILES):
        events += [(now, "want", k), (now + (late if k else 0), "have", k)]
        # The previous k-tile is done when this one is issued.
        now = now + (max(late, k_tile) if k else 0)
    drained = now + k_tile
    events += [(now, "drain", 0), (drained, "epilogue", 0)]
    sent = drained + 2 * EPILOGUE
    events += [(drained + EPILOGUE, "free", 0), (drained + EPILOGUE, "fill", 0), (sent, "sent", 0)]
    return [*events, (sent, "done", 0)], drained, sent


def recorded(tile, consumers, producer, end, capacity=256):
    of = Traced(512, 512, 64 * K_TILES, "bfloat16", tile)
    marks = np.stack([words(x, capacity) for x in (producer, *consumers)])[None]
    times = np.array([[7, 1000, 0, 1000 + end, end // 2]], np.uint64)
    return Recording(of, marks, times)


def producer_events(haves, before):
    """The copy of each stage begins ``before`` cycles ahead of its use; until then it waits."""
    events, last = [], 0
    for i, have in enumerate(haves):
        now = max(last, have - before)
        events += [(last, "want", i % K_TILES), (now, "have", i % K_TILES)]
        last = now
    return events


def pingpong(tiles=6, late=0, before=1000, capacity=256):
    consumers, sent, now, haves = ([], []), [0, 0], 0, []
    for i in range(tiles):
        events, now, done = tile_events(now, min(sent[i % 2], now), K_TILE, late)
        sent[i % 2] = done
        consumers[i % 2].extend(events)
        haves += [clock for clock, mark, _ in events if mark == "have"]
    producer = producer_events(haves, before)
    return recorded(PINGPONG, consumers, producer, max(sent), capacity)


def cooperative(tiles=3):
    events, now = [], 0
    for _ in range(tiles):
        made, _, now = tile_events(now, now, 1024)
        events += made
    haves = [clock for clock, mark, _ in events if mark == "have"]
    return recorded(COOPERATIVE, (events, events), producer_events(haves, 2000), now)


def test_a_pingpong_hides_all_epilogues_but_the_last():
    found = report(pingpong(tiles=6))
    length = 6 * K_TILES * K_TILE + 2 * EPILOGUE
    assert found.cycles == length
    assert found.tiles == 6
    assert found.tensor_busy == pytest.approx(6 * K_TILES * K_TILE / length)
    assert found.hidden == pytest.approx(5 / 6)
    assert found.ends == pytest.approx(2 * EPILOGUE / length)
    assert found.exposed == found.starved == found.turns == 0
    assert found.producer_waits > 0.75  # the last copy begins 1000 cycles before its use
    assert "products" in found.bottleneck


def test_a_cooperative_tile_hides_nothing():
    found = report(cooperative())
    assert found.hidden == 0
    assert found.tiles == 3
    assert found.exposed == pytest.approx(2 * 2 * EPILOGUE / found.cycles)
    assert found.tensor_busy + found.exposed + found.ends == pytest.approx(1)
    assert "epilogue" in found.bottleneck


def test_data_that_comes_late_starves_the_tensor_cores():
    late = 700  # a k-tile lasts 512: each but the first of a tile starves them for 188 cycles
    found = report(pingpong(late=late, before=1200))
    starved = 6 * (K_TILES - 1) * (late - K_TILE)
    assert found.starved == pytest.approx(starved / found.cycles)
    assert found.latency == 1200


def test_a_producer_that_never_waits_is_the_bottleneck():
    slow = pingpong(late=700, before=10_000)
    assert report(slow).producer_waits < 0.5
    assert "producer" in report(slow).bottleneck


def test_the_ring_counts_stages_from_copy_to_use():
    found = report(pingpong(tiles=20, before=1000))
    copies = 20 * K_TILES
    assert found.ring == pytest.approx(copies * 1000 / found.cycles, rel=0.05)


def test_marks_that_did_not_fit_shorten_the_report():
    whole, short = report(pingpong()), report(pingpong(capacity=30))
    assert short.partial
    assert short.cycles < whole.cycles
    assert "first part" in short.lines()[0]


def test_spans_of_a_warp_group_do_not_overlap():
    for group in range(3):
        found = spans(pingpong(late=700), 0, group)
        assert (found.start[1:] >= found.stop[:-1]).all()
        assert set(found.kind.tolist()) <= set(range(len(KINDS)))


def test_a_chrome_trace_has_a_thread_for_each_warp_group():
    made = chrome_trace(pingpong())
    names = [x["args"]["name"] for x in made["traceEvents"] if x["name"] == "thread_name"]
    assert names == list(GROUPS)
    mainloops = [x for x in made["traceEvents"] if x["name"] == "mainloop"]
    assert len(mainloops) == 6
    assert mainloops[0]["dur"] == pytest.approx(K_TILES * K_TILE / 2 / 1e3, rel=1e-3)
    json.dumps(made)


def test_marks_are_those_of_the_kernel():
    listed = KERNEL.read_text(encoding="utf-8").split("enum class Mark : u32 {")[1].split("}")[0]
    assert tuple(x.strip() for x in listed.split(",")) == MARKS


def test_a_recording_survives_a_file_and_the_command_line(tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "made.npz"
    pingpong().save(file)
    assert (load(file).marks == pingpong().marks).all()
    command = ["trace", "--load", str(file), "--output", str(tmp_path / "made.json")]
    made = CliRunner().invoke(main, [*command, "--plot", str(tmp_path / "made.png")])
    assert made.exit_code == 0, made.output
    assert "epilogue hidden?     83.3%" in made.output
    assert (tmp_path / "made.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "made.json").read_text())["traceEvents"]


@pytest.mark.parametrize("held", [b"nothing", b"", b"PK\x03\x04cut short"])
def test_other_files_are_refused(tmp_path, held: bytes):
    file = tmp_path / "other.npz"
    file.write_bytes(held)
    with pytest.raises(TiercelValueError, match="tiercel trace --save"):
        load(file)


def test_the_command_says_what_it_lacks():
    made = CliRunner().invoke(main, ["trace"])
    assert made.exit_code == 2
    assert "--load FILE" in made.output
    made = CliRunner().invoke(main, ["trace", "64", "64", "64", "--epilogue", "sigmoide"])
    assert made.exit_code == 1
    assert "swiglu" in made.output
