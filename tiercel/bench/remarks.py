"""The lines under the result table: what the run says in a few numbers."""

from __future__ import annotations

from tiercel.bench.results import Results
from tiercel.bench.summary import bars_met, summarise_ratios


def remarks(results: Results) -> list[str]:
    """Measured peaks, bars met, random shapes, call overhead, then the notes of the run."""
    lines = [
        f"measured multiply-add peak, {peak.dtype}, {peak.threads} thr: {peak.gflops:.1f} GFLOP/s"
        for peak in results.peaks
    ]
    return [*lines, *_bars(results), *_random(results), *_overhead(results), *results.notes]


def _bars(results: Results) -> list[str]:
    met, judged = bars_met(results.cases)
    return [f"bars met: {met} of {judged}"] if judged else []


def _random(results: Results) -> list[str]:
    random = [r for r in results.cases if r.case.group == "random"]
    summary = summarise_ratios(random)
    if summary is None:
        return [f"{len(random)} random shapes, none above 1 ms"] if random else []
    return [
        f"{len(random)} random shapes, {summary.count} above 1 ms: median ratio "
        f"{summary.median:.3f}, worst {summary.worst:.3f} ({summary.worst_label})"
    ]


def _overhead(results: Results) -> list[str]:
    if not results.overhead:
        return []
    extra = [f"{o.tiercel_us - o.numpy_us:+.2f} µs at {o.size}³" for o in results.overhead]
    return [f"call overhead over np.matmul: {', '.join(extra)}"]
