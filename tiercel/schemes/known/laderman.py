"""⟨3,3,3;23⟩ as published by J. D. Laderman, *A noncommutative algorithm for multiplying 3 × 3
matrices using 23 multiplications*, Bull. Amer. Math. Soc. 82 (1976), 126-128.
"""

from tiercel.schemes.notation import parse_equations
from tiercel.schemes.scheme import Scheme

EQUATIONS = """
m1 = (a11 + a12 + a13 - a21 - a22 - a32 - a33) b22
m2 = (a11 - a21)(b22 - b12)
m3 = a22 (b12 - b11 + b21 - b22 - b23 - b31 + b33)
m4 = (a21 - a11 + a22)(b11 - b12 + b22)
m5 = (a21 + a22)(b12 - b11)
m6 = a11 b11
m7 = (a31 - a11 + a32)(b11 - b13 + b23)
m8 = (a31 - a11)(b13 - b23)
m9 = (a31 + a32)(b13 - b11)
m10 = (a11 + a12 + a13 - a22 - a23 - a31 - a32) b23
m11 = a32 (b13 - b11 + b21 - b22 - b23 - b31 + b32)
m12 = (a32 - a13 + a33)(b22 + b31 - b32)
m13 = (a13 - a33)(b22 - b32)
m14 = a13 b31
m15 = (a32 + a33)(b32 - b31)
m16 = (a22 - a13 + a23)(b23 + b31 - b33)
m17 = (a13 - a23)(b23 - b33)
m18 = (a22 + a23)(b33 - b31)
m19 = a12 b21
m20 = a23 b32
m21 = a21 b13
m22 = a31 b12
m23 = a33 b33

c11 = m6 + m14 + m19
c12 = m1 + m4 + m5 + m6 + m12 + m14 + m15
c13 = m6 + m7 + m9 + m10 + m14 + m16 + m18
c21 = m2 + m3 + m4 + m6 + m14 + m16 + m17
c22 = m2 + m4 + m5 + m6 + m20
c23 = m14 + m16 + m17 + m18 + m21
c31 = m6 + m7 + m8 + m11 + m12 + m13 + m14
c32 = m12 + m13 + m14 + m15 + m22
c33 = m6 + m7 + m8 + m9 + m23
"""


def laderman() -> Scheme:
    """98 additions, Φ = 219, E = 35."""
    return parse_equations((3, 3, 3), EQUATIONS, "laderman", "Laderman 1976")
