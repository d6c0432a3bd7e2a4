"""Training steps of a language model, before and after ``tiercel.patch``; loss curves of both.

    python examples/train_step.py                            # a small model on the CPU
    python examples/train_step.py --model llama-3-8b --layers 4 --tokens 8192 \
        --device cuda --dtype bfloat16
    python examples/train_step.py --curve 300 --picture loss.png --text README.md docs/*.md

Times are of one step, forward and backward. ``--curve`` trains the small model on the bytes of some
texts, twice from the same start, and prints (or draws) the losses of both runs.
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

#: For the loss curves: bytes as tokens, layers large enough for plans to differ from torch's.
BYTES = Sizes(layers=2, hidden=384, heads=6, kv_heads=6, inner=1152, vocabulary=256)
BATCH, CONTEXT = 8, 96


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--model", choices=MODELS, default="tiny")
    parser.add_argument("--layers", type=int, help="default: as many as the model has")
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--curve", type=int, metavar="STEPS", help="train this long, twice")
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
        model = Decoder(sizes).to(getattr(torch, chosen.dtype))
    print(HEAD)
    for count in chosen.tokens:
        tokens = torch.randint(sizes.vocabulary, (1, count + 1), device=chosen.device)

        def step(tokens: torch.Tensor = tokens) -> None:
            model.zero_grad()
            loss_of(model, tokens).backward()

        torchs, ours, *gains = compare(model, step, chosen.repeats)
        print_row(str(count), torchs, ours, (gains[0], gains[1]))


def curves(chosen: argparse.Namespace) -> None:
    """Train twice and show both losses."""
    text = b"\n".join(path.read_bytes() for path in chosen.text)
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long().to(chosen.device)
    runs = {name: list(losses(chosen, data, name == "tiercel")) for name in ("torch", "tiercel")}
    print(f"{'step':>6} {'torch':>10} {'tiercel':>10}")
    for step in range(0, chosen.curve, max(1, chosen.curve // 20)):
        print(f"{step:6d} {runs['torch'][step]:10.5f} {runs['tiercel'][step]:10.5f}")
    apart = max(abs(a - b) for a, b in zip(*runs.values(), strict=True))
    last = {name: sum(run[-20:]) / len(run[-20:]) for name, run in runs.items()}
    print(f"largest difference of a step {apart:.2g}; mean of the last 20 steps: {last}")
    if chosen.picture:
        draw(chosen.picture, runs)


def losses(chosen: argparse.Namespace, data: torch.Tensor, by_tiercel: bool) -> Iterator[float]:
    """The loss of each step of one run."""
    torch.manual_seed(0)
    model = Decoder(BYTES).to(chosen.device, getattr(torch, chosen.dtype))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    order = torch.Generator().manual_seed(1)
    with patched(model, by_tiercel):
        for _ in range(chosen.curve):
            starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,), generator=order)
            batch = torch.stack([data[start : start + CONTEXT + 1] for start in starts.tolist()])
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            optimizer.step()
            yield loss.item()


def draw(path: Path, runs: dict[str, list[float]]) -> None:
    """Both curves in one picture."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for (name, run), style in zip(runs.items(), ("-", "--"), strict=True):
        axes.plot(run, style, label=name, linewidth=1.5)
    axes.set(xlabel="step", ylabel="cross-entropy per byte, nats", title="The same training run")
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
