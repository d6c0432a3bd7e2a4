"""Winograd's ⟨2,2,2;7⟩: 15 additions instead of Strassen's 18, thanks to shared sums.

With the shared sums written out:

    s1 = a21 + a22    s2 = s1 - a11     s3 = a11 - a21    s4 = a12 - s2
    t1 = b12 - b11    t2 = b22 - t1     t3 = b22 - b12    t4 = t2 - b21
    u2 = m1 + m6      u3 = u2 + m7      u4 = u2 + m5

Source: S. Winograd, *On multiplication of 2 × 2 matrices*, Linear Algebra Appl. 4 (1971), 381-388.
The form is the one in N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, chapter 23.
"""

from tiercel.schemes.notation import parse_equations
from tiercel.schemes.scheme import Scheme

EQUATIONS = """
m1 = a11 b11
m2 = a12 b21
m3 = (a11 + a12 - a21 - a22) b22        # s4
m4 = a22 (b11 - b12 - b21 + b22)        # t4
m5 = (a21 + a22)(b12 - b11)             # s1 t1
m6 = (a21 + a22 - a11)(b11 - b12 + b22) # s2 t2
m7 = (a11 - a21)(b22 - b12)             # s3 t3

c11 = m1 + m2
c12 = m1 + m6 + m5 + m3                 # u4 + m3
c21 = m1 + m6 + m7 - m4                 # u3 - m4
c22 = m1 + m6 + m7 + m5                 # u3 + m5
"""


def winograd() -> Scheme:
    """24 additions written out (15 shared), Φ = 56, E = 18."""
    return parse_equations((2, 2, 2), EQUATIONS, "winograd", "Winograd 1971")
