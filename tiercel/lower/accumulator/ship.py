"""Makes ``routes.json``, the routes that the package ships.

    python -m tiercel.lower.accumulator.ship --drafts 12000 --seeds 0 4 winograd2 laderman

searches with four seeds, keeps what is cheaper than before, and prints the rows of the table in
``docs/fused-schemes.md``. The catalogue's large schemes take
minutes to search well, which is why their routes are data; each is verified whenever it is used.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tiercel import schemes
from tiercel.lower.accumulator.compile import accumulate, canonical
from tiercel.lower.accumulator.cost import Cost
from tiercel.lower.accumulator.search import fingerprint, search
from tiercel.lower.accumulator.slots import price
from tiercel.lower.accumulator.sums import sums_of
from tiercel.lower.accumulator.text import format_route, parse_route

SHIPPED = Path(__file__).with_name("routes.json")


def improve(name: str, drafts: int, seed: int) -> float:
    """Search a catalogue scheme once more; the price of the route that is shipped now."""
    sums, cost = sums_of(canonical(schemes.get(name))), Cost()
    entries = {entry["outputs"]: entry for entry in json.loads(SHIPPED.read_text())}
    key = fingerprint(sums)
    routes = [search(sums, cost, drafts, seed)]
    if key in entries:
        routes.insert(0, parse_route(sums, entries[key]["route"]))
    best = min(routes, key=lambda route: price(sums, route, cost))
    names = sorted({name, *entries.get(key, {}).get("names", [])})
    entries[key] = {"names": names, "outputs": key, "route": format_route(sums, best)}
    ordered = sorted(entries.values(), key=lambda entry: entry["names"])
    SHIPPED.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    return price(sums, best, cost)


def table_row(name: str) -> str:
    """Traffic of a scheme's program, as a row of the documentation's table.

    >>> table_row("winograd")
    '| winograd | 7 | 4 + 4 | 3 | 3 | 2 | 0 | 0 |'
    """
    program = accumulate(schemes.get(name))
    planes = f"{program.written_planes('a')} + {program.written_planes('b')}"
    figures = (
        program.multiplies,
        planes,
        program.saves,
        program.loads,
        program.peak_slots,
        program.scratch_slots,
        program.transfers("scratch"),
    )
    return f"| {name} | " + " | ".join(map(str, figures)) + " |"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description="Search shipped routes again; keep what is cheaper."
    )
    parser.add_argument("names", nargs="+", help="catalogue schemes")
    parser.add_argument("--drafts", type=int, default=5000)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 1), metavar=("FROM", "TO"))
    arguments = parser.parse_args()
    for name in arguments.names:
        for seed in range(*arguments.seeds):
            print(f"{name} seed {seed}: {improve(name, arguments.drafts, seed):.2f}", flush=True)
    print("\n".join(map(table_row, arguments.names)))


if __name__ == "__main__":
    main()
