"""Where the time of one traced kernel goes: spans, a report, a Chrome trace, a picture.

Recorded by ``tiercel.targets.hopper.tracing.trace``; everything here is NumPy on the arrays it
gives.
"""
