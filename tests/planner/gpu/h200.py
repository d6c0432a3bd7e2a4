"""The machine of the planner's tests on a GPU."""

from dataclasses import replace

from tiercel.planner.gpu import required

#: An H200 whose own kernels start at once; in the shipped profile they start late.
H200 = replace(required("NVIDIA H200"), prepare=0.0)
