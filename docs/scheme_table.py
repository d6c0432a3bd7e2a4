"""Writes the table of ``schemes.md`` from the catalogue.

Run ``python docs/scheme_table.py`` after a change of the catalogue.
"""

from itertools import combinations_with_replacement
from pathlib import Path

from tiercel.schemes import Scheme, find, phi, reduced_additions, stability_factor
from tiercel.schemes.marks import MARKS, Mark
from tiercel.schemes.search.objectives import traffic

PAGE = Path(__file__).with_name("schemes.md")
BEGIN, END = "<!-- table -->\n\n", "\n<!-- end of table -->"

HEADINGS = (
    *("grid", "R", "mark", "saved", "scheme", "Φ", "mark", "E", "mark"),
    *("additions", "mark", "non-zeros", "mark", "traffic"),
)


def table() -> str:
    """For each grid with sizes 2 to 5 its scheme of least traffic and its most accurate one."""
    rows: list[tuple[str, ...]] = [HEADINGS, ("---",) * len(HEADINGS)]
    for grid in combinations_with_replacement(range(2, 6), 3):
        known = find(*grid)
        smallest = [x for x in known if x.rank == known[0].rank]
        lean = min(smallest, key=lambda x: (traffic(x), phi(x)))
        accurate = min(smallest, key=phi)
        rows.append(_first(lean, MARKS[grid]))
        if accurate is not lean:
            rows.append(_second(accurate))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _first(scheme: Scheme, mark: Mark) -> tuple[str, ...]:
    marks = (mark.phi, mark.stability, mark.additions, mark.nonzeros)
    figures = [x for pair in zip(_figures(scheme), marks, strict=True) for x in pair]
    m, k, n = scheme.grid
    return (
        f"⟨{m},{k},{n}⟩",
        str(scheme.rank),
        str(mark.rank),
        f"{100 * (1 - 1 / scheme.saving):.1f} %",
        f"`{scheme.name}`",
        *map(_number, figures),
        str(traffic(scheme)),
    )


def _second(scheme: Scheme) -> tuple[str, ...]:
    figures = [x for figure in _figures(scheme) for x in (_number(figure), "")]
    return ("", "", "", "", f"`{scheme.name}`", *figures, str(traffic(scheme)))


def _figures(scheme: Scheme) -> tuple[float, float, int, int]:
    return (
        float(phi(scheme)),
        float(stability_factor(scheme)),
        reduced_additions(scheme),
        sum(scheme.nonzeros),
    )


def _number(x: float) -> str:
    return f"{x:.4g}"


def main() -> None:
    """Put the table between its marks on the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(before + BEGIN + table() + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
