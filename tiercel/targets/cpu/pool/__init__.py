"""The threads of a product: ``pool``'s, which live in generated code (``sync``), or ``openmp``'s.

How many there may be says ``targets/cpu/threads.py``.
"""
