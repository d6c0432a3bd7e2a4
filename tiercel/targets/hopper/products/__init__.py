"""Products without a scheme: tile, schedule and split of K are chosen, then one launch.

``product`` is the entry (``gemm``), ``checks`` says what is allowed, ``heuristic`` chooses,
``launch`` prepares: ``classical`` is the program that the kernel runs, ``params`` its argument,
with ``split``, ``stream_k`` and ``paced`` where they apply. ``grouped`` and ``scaled`` are the
products of their names.
"""
