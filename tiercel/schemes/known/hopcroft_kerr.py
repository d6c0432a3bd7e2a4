"""⟨2,3,3;15⟩ and ⟨2,3,4;20⟩: the ranks of Hopcroft and Kerr, with small coefficients.

J. E. Hopcroft, L. R. Kerr, *On minimizing the number of multiplications necessary for matrix
multiplication*, SIAM J. Appl. Math. 20 (1971), 30-36, reach ⌈(3pn + max(p, n)) / 2⌉ products for
p × 2 by 2 × n. The equations below have the same ranks but are not theirs. They come from a random
walk in the flip graph (Kauers and Moosbauer 2022) over coefficients -1, 0, 1 that starts at the
classical scheme, then from annealing Φ + nonzeros/100 with flips and elementary changes of basis
at that rank. Several walks end at the same Φ and the same number of non-zeros.
"""

from tiercel.schemes.notation import parse_equations
from tiercel.schemes.scheme import Scheme

EQUATIONS_2X3X3 = """
m1 = (a11 + a13) b33
m2 = (a12 - a13) b31
m3 = (a21 + a22) b23
m4 = (a22 - a23) b22
m5 = a11 (b11 - b13 + b33)
m6 = (a12 + a23)(b22 + b31)
m7 = a12 (b21 - b23 + b31)
m8 = a21 (b12 - b13 + b23)
m9 = a23 (b22 + b32 - b33)
m10 = (a11 + a12 + a21 + a22) b11
m11 = (a11 + a13 + a21 + a23) b12
m12 = (a11 + a13 + a23)(b12 - b33)
m13 = (a12 + a21 + a22)(b11 - b23)
m14 = (a12 + a22)(b11 - b21 + b22)
m15 = (a13 + a23)(b12 + b31 - b32)

c11 = -m2 - m3 + m7 + m10 - m13
c12 = m1 - m2 + m6 - m9 + m12 - m15
c13 = m1 - m3 - m5 + m10 - m13
c21 = m3 + m4 + m6 - m7 + m13 - m14
c22 = -m1 + m4 + m9 + m11 - m12
c23 = -m1 + m3 - m8 + m11 - m12
"""

EQUATIONS_2X3X4 = """
m1 = a11 b12
m2 = a21 b13
m3 = (a12 + a13) b22
m4 = (a12 + a13) b31
m5 = a13 (b22 - b32)
m6 = (a22 + a23) b24
m7 = (a22 + a23) b33
m8 = a22 (b23 - b33)
m9 = (a11 - a12)(b21 - b31)
m10 = a11 (b11 + b21 - b31)
m11 = (a13 + a22)(b22 - b33)
m12 = (a21 + a23)(b24 - b34)
m13 = a21 (b14 + b24 - b34)
m14 = (a11 - a12 - a21 - a23)(b24 - b31)
m15 = (a11 - a12 + a22)(b11 - b13 + b21 - b31)
m16 = (a13 - a21 - a23)(b12 + b14 + b24 - b34)
m17 = (a11 - a12 - a21 + a22)(b11 - b13 + b24 - b31)
m18 = (a11 + a13 - a21 - a23)(b12 + b14 + b24 - b31)
m19 = (a12 - a22)(b11 - b13 + b21 + b22 - b23 - b31)
m20 = (a13 - a23)(b12 + b14 + b24 - b32 + b33 - b34)

c11 = m4 - m9 + m10
c12 = m1 + m3 - m5
c13 = m3 + m8 + m10 - m11 - m15 - m19
c14 = -m1 + m4 - m12 - m14 - m16 + m18
c21 = m2 + m6 - m9 + m14 + m15 - m17
c22 = -m5 + m7 + m11 - m13 - m16 + m20
c23 = m2 + m7 + m8
c24 = m6 - m12 + m13
"""


def hopcroft_kerr_2x3x3() -> Scheme:
    """58 additions, Φ = 114, E = 23."""
    return parse_equations(
        (2, 3, 3),
        EQUATIONS_2X3X3,
        "hopcroft-kerr-2x3x3",
        "flip-graph walk; rank of Hopcroft, Kerr 1971",
    )


def hopcroft_kerr_2x3x4() -> Scheme:
    """82 additions, Φ = 184, E = 43."""
    return parse_equations(
        (2, 3, 4),
        EQUATIONS_2X3X4,
        "hopcroft-kerr-2x3x4",
        "flip-graph walk; rank of Hopcroft, Kerr 1971",
    )
