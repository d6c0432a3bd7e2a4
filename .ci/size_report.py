"""Lists source files that have outgrown one idea, and the size of the whole.

Informs, never fails: a long file is a question to its next editor.
"""

import subprocess
from pathlib import Path
from statistics import median

LONG = 300
SOURCES = ("*.py", "*.cuh", "*.cu")


def main() -> None:
    listed = subprocess.run(
        ["git", "ls-files", *SOURCES], check=True, capture_output=True, text=True
    ).stdout.split("\n")
    lines = {name: len(Path(name).read_text().splitlines()) for name in filter(None, listed)}
    for name, count in sorted(lines.items(), key=lambda item: -item[1]):
        if count > LONG:
            print(f"{count:6d}  {name}")
    package = [count for name, count in lines.items() if name.startswith("tiercel/")]
    print(
        f"{sum(lines.values()):6d}  lines in {len(lines)} files; "
        f"median file of the package: {median(package or [0]):.0f} lines"
    )


if __name__ == "__main__":
    main()
