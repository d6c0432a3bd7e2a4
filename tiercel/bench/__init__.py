"""Benchmarks: tiercel against every BLAS on the machine, so that the figures can be trusted.

Read in this order: ``case`` and ``shapes`` (what is multiplied), ``peers`` and ``roster`` (by
whom), ``timing`` (how a time becomes a figure), ``worker`` and ``crew`` (one process per library,
frozen between turns), ``run`` (the whole measurement), ``results`` (what is kept), then ``table``,
``picture`` and ``html`` (how it is shown).

Nothing here is imported by ``import tiercel``.
"""
