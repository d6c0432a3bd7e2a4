// The end of a scheme's kernel: was its result wanted? Where data must not be multiplied by a scheme,
// the same launch goes over all tiles once more, classically.
#pragma once
#include "crew.cuh"
#include "memory.cuh"
#include "verdict.cuh"

// By one thread of each consumer, when what it has written is complete and its flags are set.
template <class P>
__device__ void settle_arrive(const P& p) {
  count_up(p.arrived);
}

// By any thread: waits for everybody. All thread blocks are resident, or will be once others end.
template <class C, class Program, class P>
__device__ bool is_refused(const P& p) {
  while (acquire_load(p.arrived) != C::consumers * static_cast<int>(gridDim.x)) pause();
  if constexpr (C::combines || C::first_turn) {
    const int left = p.first.left_workers + p.beside.left_workers;
    while (!Readiness::all(p.left.ready, left)) pause();
    if constexpr (Program::Right::planes > 0)
      while (!Readiness::all(p.right.ready, p.first.workers + p.beside.workers - left)) pause();
  }
  if (acquire_load(p.flag) != 0) return true;
  if (acceptable(p.verdict, p.left.gain.value(), p.right.gain.value())) return false;
  atomicMax(p.flag, 1);
  return true;
}

// By one thread, behind that: gains for the next product of this kind. Data that were refused for want
// of gains are not bad; such that come to need others again and again are.
template <class P>
__device__ void choose_gains(const P& p) {
  const Verdict& v = p.verdict;
  const Gain &left = p.left.gain, &right = p.right.gain;
  const float a = left.wanted(v.left), b = right.wanted(v.right);
  const bool none = left.value() == 1 && right.value() == 1;
  if (left.next != nullptr) *left.next = __float_as_uint(a);
  if (right.next != nullptr) *right.next = __float_as_uint(b);
  if (none && !acceptable(v, 1, 1) && acceptable(v, a, b)) atomicMax(p.flag, 2);
}
