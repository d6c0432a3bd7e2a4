"""Shared judge of the scheme tests."""

from collections.abc import Callable

import numpy as np
import pytest

from tiercel.schemes import Scheme


@pytest.fixture(scope="session")  # for hypothesis, which runs a test many times
def multiplies() -> Callable[[Scheme], bool]:
    """Run a scheme in exact integer arithmetic on non-commuting 2 x 2 blocks."""

    def judge(scheme: Scheme) -> bool:
        rng = np.random.default_rng(scheme.rank)
        m, k, n = scheme.grid
        a = rng.integers(-9, 10, (m, k, 2, 2)).astype(object)
        b = rng.integers(-9, 10, (k, n, 2, 2)).astype(object)
        # Numerators alone: Python integers are ten times as quick as fractions.
        u, v, w = (x.numerators.astype(object) for x in (scheme.U, scheme.V, scheme.W))
        one = scheme.U.denominator * scheme.V.denominator * scheme.W.denominator
        left = np.tensordot(u, a.reshape(m * k, 2, 2), 1)
        right = np.tensordot(v, b.reshape(k * n, 2, 2), 1)
        products = np.array([x @ y for x, y in zip(left, right, strict=True)])
        c = np.tensordot(w.T, products, 1).reshape(m, n, 2, 2)
        wanted = np.array(
            [[(a[i, :, :, :] @ b[:, j]).sum(axis=0) for j in range(n)] for i in range(m)]
        )
        return bool((c == one * wanted).all())

    return judge
