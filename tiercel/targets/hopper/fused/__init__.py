"""Products by a scheme inside the kernel.

Before any product: ``tables`` turns an accumulator program into what the kernel walks, ``drains``
moves its transfers beside products, ``source`` prints it. ``planes`` has the operands' sums,
``packed`` those of a static one, ``gains`` their scale, ``verdict`` the guard.

Of one product: ``product.prepare`` is the entry. ``schedule`` has what sizes and layouts decide,
``workspace`` the memory, ``argument`` fills in ``params``, ``ending`` is what an epilogue adds, and
``launches`` the result, ready to repeat.
"""
