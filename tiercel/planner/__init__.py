"""What to run: Problem and Machine in, Plan out. Pure Python; executes nothing.

In the order of a decision: ``problem`` is one 2-D product, ``machine`` what was measured of the CPU
(``profiles/`` has known ones), ``candidates`` what could run, ``cost`` its time, ``accuracy`` its
error, ``choose`` the decision, ``plan`` the result, ``describe`` how it is printed. ``winners`` are
measurements, which outrank predictions. ``gpu`` has the same for a GPU.
"""
