import io
import json
from collections.abc import Callable
from dataclasses import asdict

import numpy as np

from tiercel.bench.case import Case
from tiercel.bench.operands import Operands
from tiercel.bench.worker import Bench, serve


class Fake:
    name = "fake"
    version = "1"

    def set_threads(self, threads: int) -> None: ...

    def bind(self, case: Case, operands: Operands) -> Callable[[], object]:
        return lambda: np.matmul(operands.a, operands.b, out=operands.out)


def converse(*requests: dict) -> list[dict]:
    answers = io.StringIO()
    lines = io.StringIO("".join(json.dumps(request) + "\n" for request in requests))
    serve(Bench(Fake(), threads=1), lines, answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_prepare_go_release():
    case = asdict(Case(30, 20, 10))
    prepared, gone, released = converse(
        {"do": "prepare", "case": case, "seed": 0}, {"do": "go"}, {"do": "release"}
    )
    assert prepared["error"] < 1e-6
    assert prepared["seconds"] > 0
    assert 0 < gone["seconds"] < 1
    assert released == {}


def test_numpy_is_timed_beside_the_library():
    prepared, beside = converse(
        {"do": "prepare", "case": asdict(Case(30, 20, 10)), "seed": 0}, {"do": "beside_numpy"}
    )
    assert "failed" not in prepared
    assert len(beside["numpy"]) == len(beside["own"]) >= 15
    assert min(beside["numpy"] + beside["own"]) > 0


def test_a_failure_is_answered_and_survived():
    failed, fine = converse({"do": "go"}, {"do": "release"})
    assert "prepare comes before go" in failed["failed"]
    assert fine == {}


def test_peak_of_every_dtype_is_measured():
    for dtype in ("float32", "complex128"):
        (answer,) = converse({"do": "peak", "dtype": dtype})
        assert answer["gflops"] > 1
