"""`docs/schemes.md` says what the catalogue holds, and its example runs."""

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiercel import last_plan, schemes

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "schemes.md").read_text(encoding="utf-8")


def test_table_is_the_catalogues():
    assert runpy.run_path(str(DOCS / "scheme_table.py"))["table"]() in PAGE


def test_example_of_an_own_scheme_runs_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.json").write_text(schemes.dumps(schemes.get("laderman")), encoding="utf-8")
    example = re.search(r"## Bring your own.*?```python\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((300, 300)), rng.standard_normal((300, 300))
    names: dict[str, Any] = {"a": a, "b": b}
    exec(example[1], names)
    np.testing.assert_allclose(names["c"], a @ b, rtol=0, atol=1e-10)
    plan = last_plan()
    assert plan is not None
    assert plan.chosen.algorithm == names["mine"].name
