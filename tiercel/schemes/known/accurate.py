"""A ⟨2,2,2;7⟩ scheme with powers of two for coefficients and nearly the smallest possible error.

All ⟨2,2,2;7⟩ schemes are changes of basis of Strassen's (de Groote 1978), and orthogonal changes
leave Φ alone, so three upper triangular matrices P, Q, R reach every value of Φ. Numerical descent
over them ends at 200/9 ≈ 22.222, which P = Q = R = [[1, 1/2], [0, √3/2]] attains: the basis of a
hexagonal lattice. Taking 1 for √3/2 keeps every coefficient a power of two and gives
Φ = 2899/128 = 22.6484375, the least value over all P, Q, R with entries 0, ±1/2, ±1 whose schemes
have such coefficients. Strassen's own basis has 32. That better bases than his exist was shown by
J.-G. Dumas, C. Pernet, A. Sedoglavic, *Strassen's algorithm is not optimally accurate*, ISSAC 2024.
"""

from dataclasses import replace

from tiercel.schemes.known.strassen import strassen
from tiercel.schemes.scheme import Scheme
from tiercel.schemes.transform import change_basis, normalise

BASIS = [[1, "1/2"], [0, 1]]


def accurate() -> Scheme:
    """36 additions, coefficients 0 and ±2^e, Φ = 22.648, E = 13."""
    scheme = normalise(change_basis(strassen(), BASIS, BASIS, BASIS))
    return replace(
        scheme,
        name="accurate",
        provenance="Strassen 1969 in the basis P = Q = R = [[1, 1/2], [0, 1]]",
    )
