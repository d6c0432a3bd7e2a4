"""Training steps of a language model, before and after ``tiercel.patch``; loss curves of both.

    python examples/train_step.py                            # a small model on the CPU
    python examples/train_step.py --model llama-3-8b --layers 4 --tokens 8192 \
        --device cuda --dtype bfloat16
    python examples/train_step.py --curve 300 --picture loss.png --text README.md docs/*.md
    python examples/train_step.py --curve 300 --picture loss.png --text README.md docs/*.md \
        --width 1536 --batch 48 --device cuda --dtype float32 bfloat16

Times are of one step, forward and backward. ``--curve`` trains a small model on the bytes of some
texts, twice from the same start, and prints (or draws) the losses of both runs. How far apart they
may be is shown by a third one: torch again, from weights of which half are one rounding larger.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from before_after import HEAD, compare, patched, print_row
from decoder import MODELS, Decoder, Sizes
from torch.nn import functional as F

#: Bytes of a sequence of the loss curves.
CONTEXT = 96

RUNS = ("torch", "tiercel", "torch, start rounded otherwise")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--model", choices=MODELS, default="tiny")
    parser.add_argument("--layers", type=int, help="default: as many as the model has")
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", nargs="+", default=["float32"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--curve", type=int, metavar="STEPS", help="train this long, twice")
    parser.add_argument("--width", type=int, default=384, help="of the curves' model")
    parser.add_argument("--batch", type=int, default=8, help="sequences of a step of the curves")
    parser.add_argument("--text", type=Path, nargs="+", default=[Path(__file__)])
    parser.add_argument("--picture", type=Path, help="where to draw the curves (needs matplotlib)")
    chosen = parser.parse_args()
    if chosen.curve:
        curves(chosen)
    else:
        times(chosen)


def loss_of(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of each next token."""
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def times(chosen: argparse.Namespace) -> None:
    """Print the table of forward and backward."""
    sizes = MODELS[chosen.model]
    sizes = replace(sizes, layers=chosen.layers or sizes.layers)
    torch.manual_seed(0)
    with torch.device(chosen.device):
        model = Decoder(sizes).to(getattr(torch, chosen.dtype[0]))
    print(HEAD)
    for count in chosen.tokens:
        tokens = torch.randint(sizes.vocabulary, (1, count + 1), device=chosen.device)

        def step(tokens: torch.Tensor = tokens) -> None:
            model.zero_grad()
            loss_of(model, tokens).backward()

        torchs, ours, *gains = compare(model, step, chosen.repeats)
        print_row(str(count), torchs, ours, (gains[0], gains[1]))


def curves(chosen: argparse.Namespace) -> None:
    """Train three times in each dtype and show the losses."""
    text = b"\n".join(path.read_bytes() for path in chosen.text)
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long().to(chosen.device)
    found: dict[str, dict[str, list[float]]] = {}
    for dtype in chosen.dtype:
        runs = {name: list(losses(chosen, data, dtype, name)) for name in RUNS}
        found[dtype] = runs
        print(f"{dtype}\n{'step':>6} " + " ".join(f"{name:>{len(name) + 2}}" for name in RUNS))
        for step in range(0, chosen.curve, max(1, chosen.curve // 20)):
            print(f"{step:6d} " + " ".join(f"{runs[x][step]:{len(x) + 2}.5f}" for x in RUNS))
        for name in RUNS[1:]:
            print(f"{name}: {apart(runs['torch'], runs[name])}")
    if chosen.picture:
        draw(chosen.picture, found)


def apart(one: list[float], other: list[float]) -> str:
    """How far two runs are from each other."""
    steps = [abs(a - b) for a, b in zip(one, other, strict=True)]
    first, second = (sum(run[-20:]) / len(run[-20:]) for run in (one, other))
    return (
        f"largest difference of a step {max(steps):.2g}, mean difference "
        f"{sum(steps) / len(steps):.2g}; mean of the last 20 steps {first:.4f} and {second:.4f}"
    )


def bytes_model(width: int, layers: int) -> Decoder:
    """A decoder of bytes; with the default width some plans on a CPU differ from torch's."""
    heads = width // 64
    return Decoder(Sizes(layers, width, heads, heads, 3 * width, vocabulary=256))


def losses(chosen: argparse.Namespace, data: torch.Tensor, dtype: str, run: str) -> Iterator[float]:
    """The loss of each step of one run."""
    torch.manual_seed(0)
    model = bytes_model(chosen.width, chosen.layers or 2)
    model = model.to(chosen.device, getattr(torch, dtype))
    if run == RUNS[2]:
        eps = torch.finfo(getattr(torch, dtype)).eps
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + eps * torch.randint_like(p, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.384 / chosen.width)
    order = torch.Generator().manual_seed(1)
    with patched(model, run == "tiercel"):
        for _ in range(chosen.curve):
            starts = torch.randint(len(data) - CONTEXT - 1, (chosen.batch,), generator=order)
            batch = torch.stack([data[start : start + CONTEXT + 1] for start in starts.tolist()])
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            optimizer.step()
            yield loss.item()


def draw(path: Path, found: dict[str, dict[str, list[float]]]) -> None:
    """All curves in one picture: a column for each dtype, differences below."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        2, len(found), figsize=(1 + 5 * len(found), 5.5), squeeze=False, layout="constrained",
        sharex=True, sharey="row", height_ratios=(2, 1),
    )  # fmt: skip
    for (dtype, runs), (above, below) in zip(found.items(), axes.T, strict=True):
        for (name, run), style in zip(runs.items(), ("-", "--", ":"), strict=True):
            above.plot(run, style, label=name, linewidth=1.5)
            steps = [abs(a - b) for a, b in zip(run, runs["torch"], strict=True)]
            below.semilogy([x or None for x in steps], style, linewidth=1)
        above.set(title=f"The same training run, {dtype}")
        below.set(xlabel="step")
    axes[0][0].set(ylabel="cross-entropy per byte, nats")
    axes[1][0].set(ylabel="distance from torch")
    axes[0][0].legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
