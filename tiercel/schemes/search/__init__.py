"""Finding schemes: random walks in flip graphs, lifting, and annealing at fixed rank.

In two stages. `descend` walks the flip graph, modulo 2 or with coefficients -1, 0, 1, from starts
that `starts` makes of known schemes, towards fewer products; `lift` takes what was found modulo 2
to the integers. `polish` then keeps the rank and makes an objective small. `run` does both in turn.

Needs numba: ``pip install 'tiercel[search]'``.
"""
