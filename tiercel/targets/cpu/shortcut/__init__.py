"""Products like earlier ones, without Python: ``tiercel/shortcut.py`` begins here.

``handover`` is a built-in function that looks a product up in a table (``words``) and runs
``known``, which has it computed by NumPy's BLAS (``direct``, ``numpys_blas``, ``numpys_object``) or
by an own kernel (``own``, ``alone``) into a ``result``. ``repeat`` and ``renew`` repeat the others,
which Python begins; ``address`` finds arrays.
"""
