"""CPU target: kernels generated with LLVM for the machine at hand (AVX2, AVX-512, NEON).

``kernel`` runs a recipe: it fills a parameter block (``params``, in a ``frame``) and calls the
generated driver, on the threads of ``pool/``, as many as ``threads`` says, in memory of
``workspace``. ``packed`` is a static operand. ``codegen/`` is what is generated, ``compile``
compiles it for an ``isa`` (AVX-512 only where ``width`` says so), caches and links. ``shortcut/``
has products like earlier ones begin without Python. ``exceptions`` are what NumPy would warn of,
``measure`` is for the planner's profile of the machine.
"""
