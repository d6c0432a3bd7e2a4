"""Products by a scheme inside the kernel: its tables, planes, guard and launch.

``tables`` turns an accumulator program into what the kernel walks, ``drains`` moves its transfers
beside products, ``source`` prints it. ``planes`` has the operands' sums, ``packed`` those of a
static one, ``gains`` their scale. ``product`` prepares all of it for one product, with ``params``,
``workspace`` and the guard's ``verdict``.
"""
