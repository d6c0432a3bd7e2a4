"""Which cases the options of ``tiercel bench`` name."""

from collections.abc import Sequence

import pytest

from tiercel.bench import shapes
from tiercel.bench.case import Case
from tiercel.commands import bench as command
from tiercel.errors import TiercelValueError


def cases(text: str, threads: Sequence[int]) -> list[Case]:
    found, _ = command._cases([text], 0, [], threads, [], False)
    return found


def test_threads_choose_among_the_cases_of_a_set_that_names_them():
    listed, _ = shapes.parse("issue:plain")
    assert cases("issue:plain", [2]) == [case for case in listed if case.threads == 2]
    assert cases("issue:plain", [1, 2]) == listed


def test_threads_are_those_of_all_other_cases():
    assert [case.threads for case in cases("512,1024", [1, 3])] == [1, 1, 3, 3]


def test_threads_that_a_set_does_not_have_are_refused():
    with pytest.raises(TiercelValueError, match="1, 2"):
        cases("issue:plain", [5])
