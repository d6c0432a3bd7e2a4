"""Draws ``accumulator-program.svg``: Winograd's seven products in one accumulator.

Run ``python docs/accumulator_program.py`` after a change of the shipped route; the picture is drawn
from the program itself.
"""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from tiercel import schemes
from tiercel.lower.accumulator import Load, Multiply, Save, Store, accumulate

LANES = {"products": 4.0, "accumulator": 3.0, "r0": 2.0, "r1": 1.0, "C": 0.0}
BLUE, ORANGE, GREEN, GREY = "#2b6cb0", "#c05621", "#2f855a", "#4a5568"


def arrow(axes: Axes, x: float, start: str, end: str, colour: str, text: str) -> None:
    """A labelled transfer between two lanes at step x."""
    low, high = LANES[start], LANES[end]
    shift = 0.28 if high > low else -0.28
    axes.annotate(
        "",
        (x, high - shift),
        (x, low + shift),
        arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.6},
    )
    axes.text(x + 0.06, (low + high) / 2, text, color=colour, va="center", fontsize=9)


def main() -> None:
    """Draw the program and write the file."""
    program = accumulate(schemes.get("winograd"))
    plt.rcParams.update({"svg.hashsalt": "tiercel", "font.family": "sans-serif"})
    figure, axes = plt.subplots(figsize=(11, 4.4))
    x, product, acc, acc_from = 0.0, 0, "", 0.0
    slots: dict[int, tuple[float, str]] = {}
    alive = [live for _, live in program.live()]

    def box(until: float) -> None:
        """The accumulator's content since it last changed."""
        if acc:
            axes.barh(3.0, until - acc_from, left=acc_from, height=0.5, color="#bee3f8", ec="white")
            axes.text((acc_from + until) / 2, 3.0, acc, ha="center", va="center", fontsize=8)

    for at, step in enumerate(program.steps):
        if isinstance(step, (Multiply, Load)):
            box(x)
            acc, acc_from = ("" if step.clear else acc), x
        match step:
            case Multiply():
                product += 1
                acc = f"{acc}+P{product}" if acc else f"P{product}"
                arrow(axes, x + 0.12, "products", "accumulator", BLUE, "")
                axes.text(x + 0.12, 4.0, f"P{product}", ha="center", color=BLUE, fontsize=10)
                x += 1.25
            case Load(slot, scale):
                begun, content = slots[slot]
                if scale > 0:
                    acc = f"{content}+{acc}" if acc else content
                else:
                    acc = "+".join(p for p in acc.split("+") if p not in content.split("+"))
                sign = "+" if scale > 0 else "−"
                arrow(axes, x + 0.12, f"r{slot}", "accumulator", ORANGE, sign)
                if slot not in alive[at]:
                    bar(axes, slot, begun, x + 0.2, content)
                x += 1.25
            case Save(slot):
                slots[slot] = (x - 0.45, acc)
                arrow(axes, x - 0.45, "accumulator", f"r{slot}", ORANGE, "")
            case Store(c):
                arrow(axes, x - 0.2, "accumulator", "C", GREEN, "")
                name = f"C{c // program.n + 1}{c % program.n + 1}"
                axes.text(x - 0.2, 0.05, name, ha="center", color=GREEN, fontsize=10)
    box(x)
    axes.set_yticks(list(LANES.values()), ["products", "accumulator", "r0", "r1", "stores"])
    axes.set_xticks([])
    axes.set_xlim(-0.2, x + 0.2)
    axes.set_ylim(-0.3, 4.4)
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0, labelcolor=GREY)
    out = Path(__file__).with_name("accumulator-program.svg")
    figure.savefig(out, bbox_inches="tight", metadata={"Date": None})


def bar(axes: Axes, slot: int, start: float, end: float, content: str) -> None:
    """A slot's lifetime."""
    lane = LANES[f"r{slot}"]
    axes.barh(lane, end - start, left=start, height=0.4, color="#feebc8", edgecolor="white")
    axes.text((start + end) / 2, lane, content, ha="center", va="center", fontsize=8)


if __name__ == "__main__":
    main()
