"""⟨3,3,3;23⟩ with fewer additions and less error growth than Laderman's.

It comes from a random walk in the flip graph (M. Kauers, J. Moosbauer, *Flip graphs for matrix
multiplication*, 2022) over coefficients -1, 0, 1 that starts at the classical scheme, then from
annealing Φ + nonzeros/100 with flips and elementary changes of basis at rank 23. It is the best of
some twenty such walks.
"""

from tiercel.schemes.notation import parse_equations
from tiercel.schemes.scheme import Scheme

EQUATIONS = """
m1 = a11 b13
m2 = a23 b32
m3 = a31 b13
m4 = a11 (b11 + b31)
m5 = (a12 - a13) b33
m6 = (a12 + a32) b22
m7 = a12 (b23 + b33)
m8 = a21 (b11 + b21)
m9 = a21 (b13 + b21)
m10 = (a31 - a33) b12
m11 = (a11 - a13 - a23) b31
m12 = (a11 + a33)(b12 + b31)
m13 = (a12 - a21 + a22) b21
m14 = (a22 - a23)(b21 - b23)
m15 = (a32 - a33)(b22 + b23)
m16 = (a12 + a23)(b21 - b23 - b33)
m17 = (a12 + a33)(b22 + b23 + b33)
m18 = (a13 + a23 + a33)(b31 - b32)
m19 = a23 (b21 - b23 + b31 - b33)
m20 = a33 (b12 + b22 + b23 + b32 + b33)
m21 = (a12 - a21 + a22 + a32)(b11 - b12 + b21)
m22 = (a12 + a22 + a32)(b11 - b12 + b21 - b22)
m23 = (a11 - a12 + a21 - a22 + a31 - a32)(b11 - b12)

c11 = m4 + m7 - m11 + m16 - m19
c12 = -m2 - m7 - m11 + m12 + m17 - m18 - m20
c13 = m1 - m5 + m7
c21 = -m7 + m8 + m13 - m16 + m19
c22 = m2 - m6 + m8 + m21 - m22
c23 = -m7 + m9 + m13 - m14 - m16
c31 = -m4 + m10 + m12 - m13 + m21 + m23
c32 = m6 + m7 + m10 - m17 + m20
c33 = m3 - m6 - m7 + m15 + m17
"""


def sparse_3x3x3() -> Scheme:
    """86 additions, Φ = 179, E = 35."""
    return parse_equations((3, 3, 3), EQUATIONS, "sparse-3x3x3", "flip-graph walk, annealed")
