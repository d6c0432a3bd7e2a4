import pytest

from tiercel.bench.peers import BLIS, MKL
from tiercel.bench.roster import LIBRARIES, Source, choose_libraries
from tiercel.errors import TiercelRuntimeError, TiercelValueError


def test_all_present_libraries_are_chosen_and_missing_ones_noted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(LIBRARIES, "blis", Source(lambda: False, BLIS, "apt-get install x"))
    chosen, notes = choose_libraries()
    assert chosen[0] == "tiercel"
    assert "blis" not in chosen
    assert "blis not found (apt-get install x)" in notes


def test_named_peers_must_exist(monkeypatch: pytest.MonkeyPatch):
    assert choose_libraries(["numpy"]) == (["tiercel", "numpy"], [])
    assert choose_libraries(["numpy", "tiercel", "numpy"]) == (["tiercel", "numpy"], [])
    with pytest.raises(TiercelValueError, match="known are"):
        choose_libraries(["atlas"])
    absent = Source(lambda: False, MKL, "pip install mkl")
    monkeypatch.setitem(LIBRARIES, "mkl", absent)
    with pytest.raises(TiercelRuntimeError, match="pip install mkl"):
        choose_libraries(["mkl"])
