"""A recording as a Chrome trace, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

from typing import Any

from tiercel.bench.trace.spans import KINDS, spans
from tiercel.targets.hopper.tracing.recording import GROUPS, Recording

_COLOURS = {
    "load": "thread_state_iowait", "mainloop": "good", "epilogue": "bad", "store": "terrible",
    "wait": "grey",
}  # fmt: skip


def chrome_trace(recording: Recording, ctas: int = 4) -> dict[str, Any]:
    """One process for each of the first ``ctas`` CTAs, one thread for each warp group.

    Times are in microseconds from the start of the first CTA. Format: "Trace Event Format",
    complete events (``ph`` X) and names of processes and threads (``ph`` M).
    """
    starts, nanoseconds = recording.nanoseconds()
    events: list[dict[str, Any]] = []
    for cta in range(min(ctas, len(recording.marks))):
        multiprocessor = int(recording.times[cta, 0])
        events.append(_named("process", cta, 0, f"CTA {cta} on multiprocessor {multiprocessor}"))
        for group, name in enumerate(GROUPS):
            events.append(_named("thread", cta, group, name))
            found = spans(recording, cta, group)
            for start, stop, kind, tile in zip(
                found.start, found.stop, found.kind, found.tile, strict=True
            ):
                events.append(
                    {
                        "name": KINDS[kind], "cat": KINDS[kind], "ph": "X", "pid": cta,
                        "tid": group, "cname": _COLOURS[KINDS[kind]],
                        "ts": round((starts[cta] + start * nanoseconds) / 1e3, 4),
                        "dur": round((stop - start) * nanoseconds / 1e3, 4),
                        "args": {"tile": int(tile), "cycles": int(stop - start)},
                    }
                )  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ns", "metadata": {"of": str(recording.of)}}


def _named(what: str, cta: int, group: int, name: str) -> dict[str, Any]:
    return {"name": f"{what}_name", "ph": "M", "pid": cta, "tid": group, "args": {"name": name}}
