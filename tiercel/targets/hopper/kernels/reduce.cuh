// The sum of the partial products of split K, in a fixed order: out = alpha · Σ part.
#pragma once
#include "ptx.cuh"

// Mirrored by ../products/split.py. A part is rows × columns, without gaps; columns are even.
struct ReduceParams {
  const float* parts;
  void* out;
  long long out_row_stride;
  int rows, columns, count;
  float alpha;
};

template <class Output>
__device__ void reduce_parts(const ReduceParams& p) {
  wait_for_previous_kernel();
  start_next_kernel();
  const long long size = static_cast<long long>(p.rows) * p.columns;
  const long long at = 2 * (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x);
  if (at >= size) return;
  float low = 0, high = 0;
  for (int i = 0; i < p.count; ++i) {
    const float2 part = *reinterpret_cast<const float2*>(p.parts + i * size + at);
    low += part.x;
    high += part.y;
  }
  const long long row = at / p.columns;
  Output* out = static_cast<Output*>(p.out) + row * p.out_row_stride + at - row * p.columns;
  if constexpr (sizeof(Output) == 2)
    *reinterpret_cast<u32*>(out) = Output::pack(p.alpha * low, p.alpha * high);
  else *reinterpret_cast<float2*>(out) = {p.alpha * low, p.alpha * high};
}
