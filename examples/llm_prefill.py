"""Prefill of a language model with random weights, before and after ``tiercel.patch``.

    python examples/llm_prefill.py                                  # a small model on the CPU
    python examples/llm_prefill.py --model gpt2 --tokens 1024 2048 4096
    python examples/llm_prefill.py --model llama-3-8b --layers 8 --tokens 8192 16384 \
        --device cuda --dtype bfloat16

Prints what ``patch`` would do, then times of the linear layers and of the whole forward pass: runs
by turns, medians, and the median of the paired gains.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import torch
from before_after import HEAD, compare, print_row
from decoder import MODELS, Decoder

import tiercel


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--model", choices=MODELS, default="tiny")
    parser.add_argument("--layers", type=int, help="default: as many as the model has")
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--pack", action="store_true", help="keep the weights packed")
    chosen = parser.parse_args()

    sizes = MODELS[chosen.model]
    sizes = replace(sizes, layers=chosen.layers or sizes.layers)
    torch.manual_seed(0)
    with torch.device(chosen.device):
        model = Decoder(sizes).to(getattr(torch, chosen.dtype)).eval().requires_grad_(False)
    print(tiercel.patch(model, pack_weights=chosen.pack, dry_run=True), "\n")
    print(HEAD)
    for count in chosen.tokens:
        tokens = torch.randint(sizes.vocabulary, (1, count), device=chosen.device)
        with torch.no_grad():
            torchs, ours, *gains = compare(
                model, lambda tokens=tokens: model(tokens), chosen.repeats, pack_weights=chosen.pack
            )
        print_row(str(count), torchs, ours, (gains[0], gains[1]))


if __name__ == "__main__":
    main()
