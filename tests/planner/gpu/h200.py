"""The machine of the planner's tests on a GPU."""

from dataclasses import replace

from tiercel.planner.gpu import required
from tiercel.planner.gpu.machine import FusedRates

#: An H200 whose own kernels start at once, with the scheme's kernel at the rate of its best timed
#: build. In the shipped profile they start late, and the rate is that of the last timed build: a
#: slow one, which only names can choose.
H200 = replace(required("NVIDIA H200"), prepare=0.0, fused=FusedRates(1.0, left=1.1, out=1.3))
