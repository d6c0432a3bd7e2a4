// The end of a scheme's kernel: was its result wanted? Where data must not be multiplied by a scheme,
// the same launch goes over all tiles once more, classically.
#pragma once
#include "crew.cuh"
#include "verdict.cuh"

// By one thread of each consumer, when what it has written is complete and its flags are set.
template <class P>
__device__ void settle_arrive(const P& p) {
  count_up(p.arrived);
}

// By any thread: waits for everybody. All thread blocks are resident, or will be once others end.
template <class C, class Program, class P>
__device__ bool is_refused(const P& p) {
  while (count(p.arrived) != C::consumers * static_cast<int>(gridDim.x)) pause();
  if constexpr (C::combines || C::first_turn) {
    const int left = p.first.left_workers + p.beside.left_workers;
    while (!Readiness::all(p.left.ready, left)) pause();
    if constexpr (Program::Right::planes > 0)
      while (!Readiness::all(p.right.ready, p.first.workers + p.beside.workers - left)) pause();
  }
  if (count(p.flag) != 0) return true;
  if (acceptable(p.verdict)) return false;
  *p.flag = 1;
  return true;
}
