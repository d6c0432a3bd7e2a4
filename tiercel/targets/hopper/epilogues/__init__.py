"""Products with a traced epilogue inside the kernel.

``epilogue`` prints its text, ``plan`` says which arrays it needs, ``filled`` allocates them,
``tile`` chooses the tile. ``product`` is the entry of classical products, ``grouped`` of groups,
``fused`` (planned by ``fused_plan``) of schemes. ``arrivals`` has the counters of rows that are
reduced.
"""
