"""Files of commands. Runs take minutes: what cannot be written is refused before them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from tiercel.bench.optional import require


class OutputFile(click.Path):
    """A file in a folder that exists and may be written to."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            self.fail(f"{path}: there is no folder {path.parent}; make it first", param, ctx)
        if not os.access(path.parent, os.W_OK):
            self.fail(f"{path}: the folder {path.parent} may not be written to", param, ctx)
        return path


class PictureFile(OutputFile):
    """An output file that Matplotlib can draw to; Matplotlib must be installed."""

    KINDS = (".png", ".svg", ".pdf")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = super().convert(value, param, ctx)
        if path.suffix.lower() not in self.KINDS:
            self.fail(f"{path}: a picture ends in {', '.join(self.KINDS)}", param, ctx)
        require("matplotlib", "a picture")
        return path


INPUT = click.Path(exists=True, dir_okay=False, path_type=Path)
OUTPUT = OutputFile()
PICTURE = PictureFile()
