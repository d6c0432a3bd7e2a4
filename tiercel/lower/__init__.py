"""Schemes and epilogues as what a target compiles; knows no target and no planner.

``program`` makes products and block sums of a scheme's coefficients, ``blocking`` the sizes of a
CPU's loops, ``steps`` the views of a scheme around them; ``recipe`` is all that a CPU kernel is
told. ``accumulator`` makes the program of one accumulator, which a Hopper kernel walks.
``epilogue`` traces what follows a product, and prints it.
"""
