"""Files: what is written is read back exactly, other people's layouts are read, damage is named."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel.errors import TiercelError, TiercelValueError
from tiercel.schemes import change_basis, dumps, get, load, loads, names
from tiercel.schemes.notation import format_equations


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(names()).map(get))
def test_json_round_trip(scheme):
    again = loads(dumps(scheme))
    assert again == scheme
    assert (again.name, again.provenance) == (scheme.name, scheme.provenance)


def test_json_keeps_thirds(tmp_path):
    thirds = change_basis(get("strassen"), [[3, 1], [0, 1]], [[1, 0], [0, 7]], [[1, 2], [2, 1]])
    path = tmp_path / "thirds.json"
    path.write_text(dumps(thirds))
    assert load(path) == thirds


def test_json_with_a_wrong_coefficient_is_refused_with_file_and_equation(tmp_path):
    data = json.loads(dumps(get("laderman")))
    data["W"][3][4] = -1
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(data))
    with pytest.raises(TiercelValueError, match=r"broken\.json: .*A\[0,0\] \| B\[.*expected"):
        load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"U": None}, "'U'"),
        ({"format": "other"}, "'other'"),
        ({"rank": 8}, "rank 8"),
        ({"m": "2"}, "m must be an integer"),
        ({"U": [[[1]]]}, "two-dimensional"),
        ({"W": 1}, "W of a JSON scheme must be a list of lists, one for each product: got 1"),
        ({"W": [1, 2]}, "W of a JSON scheme must be a list of lists"),
        ({"V": [[None] * 4] * 7}, "must be a number"),
    ],
)
def test_bad_json_is_refused(change, message):
    data = json.loads(dumps(get("strassen"))) | change
    data = {key: value for key, value in data.items() if value is not None}
    with pytest.raises(TiercelError, match=message):
        loads(json.dumps(data))


@pytest.mark.parametrize("text", ["{", "[]", "3"])
def test_text_that_is_not_a_json_object_is_refused(text):
    with pytest.raises(TiercelValueError, match="JSON"):
        loads(text)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(names()).map(get), st.booleans())
def test_three_matrices_in_a_text_file(tmp_path_factory, scheme, by_row):
    blocks = [x.fractions() if by_row else x.fractions().T for x in (scheme.U, scheme.V, scheme.W)]
    texts = ["\n".join(" ".join(map(str, row)) for row in block) for block in blocks]
    path = tmp_path_factory.mktemp("text") / "mine.txt"
    path.write_text("# U\n" + "\n# next\n".join(texts))
    read = load(path)
    assert read == scheme
    assert read.name == "mine"


def test_transposed_c_is_read_on_request_and_hinted_at(tmp_path):
    scheme = get("strassen-2x2x3")
    w = scheme.W.floats().reshape(-1, 2, 3).transpose(0, 2, 1).reshape(-1, 6)
    path = tmp_path / "fortran.txt"
    with path.open("w") as stream:
        for block in (scheme.U.floats(), scheme.V.floats(), w):
            np.savetxt(stream, block, footer="-", comments="#")
    assert load(path, c_transposed=True) == scheme
    with pytest.raises(TiercelValueError, match="pass c_transposed=True"):
        load(path)


def test_equations_in_a_text_file(tmp_path):
    path = tmp_path / "laderman.txt"
    path.write_text(format_equations(get("laderman")))
    assert load(path, grid=(3, 3, 3)) == get("laderman")
    with pytest.raises(TiercelValueError, match=r"pass grid=\(m, k, n\)"):
        load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [("1 0\n\n0 1", "three matrices"), ("1\n#\n1 1\n#\n1", "no grid"), ("1 x\n#\n1\n#\n1", "'x'")],
)
def test_bad_text_is_refused(tmp_path, text, message):
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(TiercelValueError, match=message):
        load(path)


def _by_size(name: str) -> list[np.ndarray]:
    scheme = get(name)
    w = scheme.W.numerators.reshape(-1, scheme.m, scheme.n).transpose(0, 2, 1)
    return [x.astype(np.int32) for x in (scheme.U.numerators.T, scheme.V.numerators.T)] + [
        w.reshape(scheme.rank, -1).T.astype(np.int32)
    ]


def _write_by_size(path: Path, members: dict[str, np.ndarray]) -> None:
    np.savez(path, **members)  # pyright: ignore[reportArgumentType]


def test_npz_with_members_named_by_size(tmp_path):
    path = tmp_path / "factorizations.npz"
    ragged = np.empty(3, dtype=object)
    ragged[:] = _by_size("hopcroft-kerr-2x3x4")
    _write_by_size(path, {"2,2,2": np.array(_by_size("strassen")), "2,3,4": ragged})
    assert load(path, grid=(2, 2, 2)) == get("strassen")
    assert load(path, grid=(2, 3, 4)) == get("hopcroft-kerr-2x3x4")
    with pytest.raises(TiercelValueError, match=r"\(2, 3, 4\)\]"):
        load(path)


def test_npz_of_u_v_w(tmp_path):
    path = tmp_path / "uvw.npz"
    scheme = get("accurate")
    np.savez(path, U=scheme.U.floats(), V=scheme.V.floats(), W=scheme.W.floats())
    assert load(path) == scheme


class _Trap:
    def __reduce__(self):
        return (eval, ("1/0",))


def test_npz_pickle_runs_nothing(tmp_path):
    path = tmp_path / "trap.npz"
    trap = np.empty(1, dtype=object)
    trap[0] = _Trap()
    _write_by_size(path, {"2,2,2": trap})
    with pytest.raises(TiercelValueError, match=r"builtins\.eval"):
        load(path)
    with pytest.raises(ZeroDivisionError):
        pickle.loads(pickle.dumps(_Trap()))


def test_file_that_is_no_npz_is_refused(tmp_path):
    path = tmp_path / "not.npz"
    path.write_bytes(b"nothing")
    with pytest.raises(TiercelValueError, match=r"not a readable \.npz"):
        load(path)


def test_missing_file_is_the_file_systems_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.json")
