"""The kernels as LLVM IR: what an element passes through, in generated code.

In the order of the data: ``load`` stages blocks of an operand (``storage``: its dtype), ``norms``
takes statistics, ``combine`` forms sums, ``microkernel`` multiplies, ``store`` writes a tile of C
(``activations`` on ``vectormath`` and ``normal_tail``). ``driver`` has the loops around them, with
what one task does in ``pack_a``, ``pack_b``, ``in_turn`` and ``write_back``, the ``guard``'s
verdict, and ``ahead``, what comes to L2 meanwhile. They read their parameters by ``fields`` and are
written with ``emit``; ``modules`` assembles them. ``peak`` measures what a core can do at most.
"""
