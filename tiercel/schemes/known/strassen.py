"""⟨2,2,2;7⟩ as published by V. Strassen, *Gaussian elimination is not optimal*, Numer. Math. 13
(1969), 354-356.
"""

from tiercel.schemes.notation import parse_equations
from tiercel.schemes.scheme import Scheme

EQUATIONS = """
m1 = (a11 + a22)(b11 + b22)
m2 = (a21 + a22) b11
m3 = a11 (b12 - b22)
m4 = a22 (b21 - b11)
m5 = (a11 + a12) b22
m6 = (a21 - a11)(b11 + b12)
m7 = (a12 - a22)(b21 + b22)

c11 = m1 + m4 - m5 + m7
c12 = m3 + m5
c21 = m2 + m4
c22 = m1 - m2 + m3 + m6
"""


def strassen() -> Scheme:
    """18 additions, Φ = 32, E = 12."""
    return parse_equations((2, 2, 2), EQUATIONS, "strassen", "Strassen 1969")
