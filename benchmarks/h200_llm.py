"""Language models on a GPU, by torch and by ``tiercel.patch``: prefill, training steps, decoding.

Usage: ``python benchmarks/h200_llm.py --out benchmarks/results/h200-llm.json``

The models are those of ``examples/decoder.py``: the layers of Llama 3 with random weights, a few of
them, for a model's layers are alike. Each case has two models that share their weights; one is
patched. Runs alternate (torch, tiercel, tiercel, torch, ...), each timed by events, and the medians
of the paired ratios count; *sustained* ratios are of blocks in which each model runs alone, eight
of each in an order that is fair to both, on a device that was busy before. The host is ahead of the
device, as where requests or steps follow one another, but in decoding, which is bound by the host;
*from_idle* is one run alone on an idle device, for which the first launches' host time counts, and
a clock that power does not limit yet. *linear*: every linear layer of a block by itself, forward
(and backward, of a training step), on random inputs that layers share where the model's do;
*linear_in_model*: the time between hooks of all linear layers of a forward pass; *replayed*:
decoding as a CUDA graph. Prefill ends with the logits of the last token. TF32 is off. Results of
cases that a run does not reach stay in the file; each has its *date*.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import click
import torch

import tiercel

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from before_after import LinearClock, between, mark
from decoder import MODELS, Decoder
from train_step import loss_of

#: Of each block of a sustained ratio, and of work before them, until the device is as warm as they
#: keep it.
SUSTAINED_SECONDS, WARM_SECONDS = 0.1, 0.4

#: What the device does first, half a millisecond, where the host is to be ahead of it.
AHEAD_CYCLES = 1_000_000


@dataclass(frozen=True)
class Case:
    """``kind``: "prefill", "train" or "decode" of ``tokens`` (decode: sequences of one token);
    ``pairs`` of runs in each order.
    """

    kind: str
    model: str
    layers: int
    dtype: str
    tokens: int
    pairs: int = 4


def cases() -> Iterator[Case]:
    """What the project promises something about, the most telling first."""
    yield Case("prefill", "llama-3-8b", 3, "bfloat16", 8192, 12)
    yield Case("train", "llama-3-8b", 1, "bfloat16", 8192, 8)
    yield Case("prefill", "llama-3-8b", 2, "bfloat16", 16384, 8)
    yield Case("train", "llama-3-8b", 1, "bfloat16", 16384, 5)
    yield Case("prefill", "llama-3-70b", 1, "bfloat16", 8192, 3)
    for sequences in (16, 64, 1):
        yield Case("decode", "llama-3-8b", 3, "bfloat16", sequences, 100)
    yield Case("prefill", "llama-3-8b", 1, "float32", 8192, 2)
    yield Case("prefill", "llama-3-70b", 1, "bfloat16", 16384, 3)
    yield Case("train", "llama-3-70b", 1, "bfloat16", 8192, 2)
    yield Case("prefill", "llama-3-8b", 1, "float32", 4096, 3)
    yield Case("train", "llama-3-8b", 1, "float32", 4096, 3)


def models(case: Case) -> tuple[Decoder, Decoder]:
    """Two models with one set of weights, frozen unless they are trained."""
    sizes = replace(MODELS[case.model], layers=case.layers)
    torch.manual_seed(0)
    with torch.device("cuda"):
        first = Decoder(sizes).to(getattr(torch, case.dtype))
    with torch.device("meta"):
        second = Decoder(sizes).to(getattr(torch, case.dtype))
    second.load_state_dict(first.state_dict(), assign=True)
    for model in (first, second):
        model.train(case.kind == "train").requires_grad_(case.kind == "train")
    return first, second


def work_of(case: Case, model: Decoder) -> Callable[[], Any]:
    """What is timed."""
    vocabulary = MODELS[case.model].vocabulary
    generator = torch.Generator("cuda").manual_seed(1)
    if case.kind == "train":
        shape = (1, case.tokens + 1)
    else:
        shape = (case.tokens, 1) if case.kind == "decode" else (1, case.tokens)
    tokens = torch.randint(vocabulary, shape, generator=generator, device="cuda")

    def train() -> None:
        model.zero_grad()
        loss_of(model, tokens).backward()

    def forward() -> torch.Tensor:
        with torch.no_grad():
            return model(tokens, last_only=True)

    return train if case.kind == "train" else forward


def linear_work(case: Case, model: Decoder) -> Callable[[], None]:
    """The linear layers of a block, forward and, of a training step, backward."""
    attention, feed = model.blocks[0].attention, model.blocks[0].feed_forward
    train = case.kind == "train"
    kind = {"device": "cuda", "dtype": attention.query.weight.dtype}
    work = []
    for layers in (
        (attention.query, attention.key, attention.value),
        (attention.output,),
        (feed.gate, feed.up),
        (feed.down,),
    ):
        x = torch.randn(case.tokens, layers[0].in_features, **kind, requires_grad=train)
        for layer in layers:
            gradient = torch.randn(case.tokens, layer.out_features, **kind) if train else None
            work.append((layer, x, gradient))

    def forward() -> None:
        with torch.no_grad():
            for layer, x, _ in work:
                layer(x)

    def both() -> None:
        for layer, x, gradient in work:
            x.grad = layer.weight.grad = None
            layer(x).backward(gradient)

    return both if train else forward


def once(work: Callable[[], object], ahead: bool = False) -> float:
    """Milliseconds of one run from an idle GPU; ``ahead``: with the host ahead of it."""
    torch.cuda.synchronize()
    if ahead:
        torch.cuda._sleep(AHEAD_CYCLES)
    start = mark()
    work()
    return between(start, mark())


def paired(
    works: tuple[Callable[[], Any], Callable[[], Any]], pairs: int, ahead: bool = True
) -> dict[str, float]:
    """Milliseconds of both and the median of the ratios, by turns and sustained."""
    found = by_turns(works, pairs, ahead)
    return {**found, "sustained": sustained(works, (found["torch_ms"], found["ms"]))}


def by_turns(
    works: tuple[Callable[[], Any], Callable[[], Any]], pairs: int, ahead: bool
) -> dict[str, float]:
    """Milliseconds of both, and the ratio of runs by turns.

    It is the geometric mean of the medians of both orders: who comes second finds a hotter device
    and a warmer host. (A model against itself was at 0.988 by the median of 5 pairs.)
    """
    times: tuple[list[Any], list[Any]] = ([], [])
    for i in range(2 * pairs):
        step = -1 if i % 2 else 1
        times[i % 2].append([once(work, ahead) for work in works[::step]][::step])
    first, second = (_medians(x) for x in times)
    ratio = (first["interleaved"] * second["interleaved"]) ** 0.5
    return {**_medians([*times[0], *times[1]]), "interleaved": ratio}


def _medians(times: list[list[float]]) -> dict[str, float]:
    return {
        "torch_ms": median(t for t, _ in times),
        "ms": median(t for _, t in times),
        "interleaved": median(t / o for t, o in times),
    }


def sustained(works: tuple[Callable[[], Any], Callable[[], Any]], expected: Any) -> float:
    """Ratio of the times of blocks in which each runs alone, in the order 0110 1001 1001 0110.

    The first block, one more and longer, warms the device, and does not count.
    """
    spent = [0.0, 0.0]
    for i, which in enumerate(map(int, "0" + "0110" + "1001" * 2 + "0110")):
        seconds = SUSTAINED_SECONDS if i else WARM_SECONDS
        count = max(1, round(1e3 * seconds / expected[which]))
        work = works[which]
        milliseconds = once(lambda work=work, count=count: [work() for _ in range(count)]) / count
        spent[which] += milliseconds if i else 0.0
    return spent[0] / spent[1]


def of_host(works: tuple[Callable[[], Any], ...], runs: int = 5) -> dict[str, float]:
    """Milliseconds that the host takes for one run, while the device has nothing else to do."""
    times: list[list[float]] = []
    for _ in range(runs):
        taken = []
        for work in works:
            torch.cuda.synchronize()
            start = time.perf_counter()
            work()
            taken.append(1e3 * (time.perf_counter() - start))
        times.append(taken)
    first, second = (median(x) for x in zip(*times, strict=True))
    return {"torch_host_ms": first, "host_ms": second}


def captured(work: Callable[[], Any]) -> Callable[[], None]:
    """The same work as the replay of a CUDA graph, which takes nothing of the host."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def linear_layers(
    both: tuple[Decoder, Decoder], works: tuple[Callable[[], Any], ...], pairs: int
) -> dict[str, float]:
    """Time between the hooks of all linear layers."""
    clocks = [LinearClock(model) for model in both]
    times = []
    for _ in range(pairs):
        pair = []
        for clock, work in zip(clocks, works, strict=True):
            once(work)
            pair.append(clock.taken())
        times.append(pair)
    return _medians(times)


def peak(work: Callable[[], Any]) -> int:
    """Most bytes allocated while it runs."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def measure(case: Case) -> dict[str, Any]:
    """One entry of the results."""
    both = models(case)
    works = work_of(case, both[0]), work_of(case, both[1])
    before = torch.cuda.memory_allocated()
    report = tiercel.patch(both[1], pack_weights=case.kind != "train")
    for work in works * 4:  # compiles, plans, packs, and until the allocator's addresses come again
        work()
    packed = torch.cuda.memory_allocated() - before
    stream = case.kind != "decode"
    result = {
        **asdict(case),
        "date": time.strftime("%F"),
        "end_to_end": paired(works, case.pairs, ahead=stream),
    }
    if case.kind == "decode":
        graphs = captured(works[0]), captured(works[1])
        result["replayed"] = paired(graphs, case.pairs, ahead=False)
    else:
        result["from_idle"] = by_turns(works, case.pairs, ahead=False)
        alone = linear_work(case, both[0]), linear_work(case, both[1])
        for work in alone * 5:  # until the allocator's addresses come again
            work()
        result["linear"] = {**paired(alone, case.pairs), **of_host(alone)}
    if case.kind != "train":
        logits = [work().float() for work in works]
        result["logits_apart"] = ((logits[0] - logits[1]).norm() / logits[0].norm()).item()
    result["peak_bytes"] = {"torch": peak(works[0]), "tiercel": peak(works[1])}
    if case.kind == "prefill":
        result["linear_in_model"] = linear_layers(both, works, case.pairs)
    result["packed_bytes"] = {"reported": report.packed_bytes, "allocated": packed}
    result["plans"] = plans(report)
    tiercel.unpatch(both[1])
    return result


def plans(report: Any) -> dict[str, str]:
    """What the layers of the first block ran as."""
    return {
        layer.name.removeprefix("blocks.0."): ", ".join(
            f"{r.rows}: {r.algorithm}" for r in layer.runs
        )
        for layer in report.layers
        if layer.name.startswith("blocks.0.")
    }


def keep(results: list[dict[str, Any]], new: dict[str, Any]) -> None:
    """Put it in the place of an older result of the same case, or at the end."""
    what = "kind", "model", "dtype", "tokens"
    for i, old in enumerate(results):
        if all(old[name] == new[name] for name in what):
            results[i] = new
            return
    results.append(new)


def smi(fields: str) -> str:
    """What the driver says now."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def shown(result: dict[str, Any]) -> str:
    """One line."""
    parts = [f"{result['kind']:8}{result['model']:12}{result['dtype']:9}{result['tokens']:6}"]
    for name in ("linear", "linear_in_model", "end_to_end", "from_idle", "replayed"):
        if name in result:
            x = result[name]
            ratios = " ".join(f"{x[k]:.3f}" for k in ("interleaved", "sustained") if k in x)
            parts.append(f"{name} {x['torch_ms']:.2f} -> {x['ms']:.2f} ms, {ratios}")
            if "host_ms" in x:
                parts.append(f"host {x['torch_host_ms']:.2f} -> {x['host_ms']:.2f} ms")
    peaks = result["peak_bytes"]
    parts.append(f"peak {peaks['torch'] / 2**30:.1f} -> {peaks['tiercel'] / 2**30:.1f} GiB")
    return "; ".join(parts)


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="JSON file to write.")
@click.option("--only", default="", help="Cases whose line would begin so, e.g. 'prefill'.")
@click.option("--begin", default=0, help="Leave out so many cases at the beginning.")
@click.option("--limit", type=float, default=float("inf"), help="Seconds; begin no case later.")
def main(out: Path, only: str, begin: int, limit: float) -> None:
    """Run all cases, write the results after each, print a line for each."""
    begun = time.monotonic()
    torch.backends.cuda.matmul.allow_tf32 = False
    record: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/h200_llm.py", *sys.argv[1:]]),
        "device": torch.cuda.get_device_name(),
        "driver_clocks_power": smi("driver_version,clocks.max.sm,power.limit"),
        "versions": {"torch": torch.__version__, "cuda": torch.version.cuda},
        "results": json.loads(out.read_text(encoding="utf-8"))["results"] if out.exists() else [],
    }
    for case in islice(cases(), begin, None):
        if not case.kind.startswith(only) or time.monotonic() - begun > limit:
            continue
        result = measure(case)
        torch.cuda.empty_cache()
        keep(record["results"], result)
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        click.echo(shown(result))


if __name__ == "__main__":
    main()
