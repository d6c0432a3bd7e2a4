"""The walk through the package in docs/README.md runs as written."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "README.md"


def test_walk_through_the_package():
    found = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert found.failed == 0
    assert found.attempted > 15
