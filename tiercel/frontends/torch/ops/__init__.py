"""Products as operators of ``torch.library``, for what traces, compiles, maps or distributes.

``definitions`` registers them, with ``option_text`` for options, ``autograd`` for derivatives,
``batched`` for vmap and ``sharding`` for ``torch.distributed``. ``traced`` puts them into a graph
that is being made, ``lowered`` takes those out again that torch is faster for. ``epilogue`` is the
operator of a product with a traced epilogue.
"""
