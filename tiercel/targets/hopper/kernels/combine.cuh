// Planes of an operand: each block is read once, each combined plane written once. A lane handles one
// vector of 16 bytes at one position of all blocks (8 bytes where there is little room).
#pragma once
#include "extremes.cuh"
#include "gain.cuh"
#include "memory.cuh"
#include "ptx.cuh"
#include "values.cuh"

// Mirrored by ../fused/planes.py. Offsets, strides and columns count vectors of 16 bytes.
template <int blocks>
struct Combination {
  const uint4* operand;
  uint4* planes;             // consecutive, each rows × columns without gaps
  u32* record;               // what is found out about the operand: see Extremes
  int* ready;                // inside the product: workers done, then items done of each square
  Gain gain;
  long long offset[blocks];  // of each block
  long long row_stride;
  int rows, columns;         // of a block
  int squares_down, squares_across;  // of 256 rows × 32 vectors in a block
  float scale;               // power of two
  int band;                  // panels that are needed first together
};

template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;

// The same place of the next plane.
template <class Vector, int blocks>
__device__ Vector* next_plane(const Combination<blocks>& p, Vector* target) {
  return target + static_cast<long long>(p.rows) * p.columns * (sizeof(uint4) / sizeof(Vector));
}

// One vector of every plane. `Sums::plane<i>(block)` is generated: the sum that makes plane i, of
// floats or of pairs of float16.
//
// In float32, rounded once; of float8 in float16.
template <class Element, class Sums, int plane, class Vector, int blocks>
__device__ void combine_plane(const Combination<blocks>& p, const Vector (&in)[blocks],
                              float scale, Vector* target, u32& bad) {
  using All = Values<Element, Vector>;
  if constexpr (same<Element, e4m3>) {
    store_vector(target, All::template combined<Sums, plane>(in, scale, bad));
  } else {
    float sum[All::count];
#pragma unroll
    for (int j = 0; j < All::count; ++j) {
      float value[blocks];
#pragma unroll
      for (int i = 0; i < blocks; ++i) value[i] = All::at(in[i], j);
      sum[j] = Sums::template plane<plane>(value) * scale;
    }
    store_vector(target, All::pack(sum, bad));
  }
  if constexpr (plane + 1 < Sums::planes)
    combine_plane<Element, Sums, plane + 1>(p, in, scale, next_plane(p, target), bad);
}

// In float16 pairs, rounded at each addition, unscaled: a third of the instructions, for warps that
// have little time. `in` is float16 already.
// `watched`: `most` is the largest magnitude then.
template <class Sums, bool watched, int plane, class Vector, int blocks>
__device__ void combine_plane_f16(const Combination<blocks>& p,
                                  const f16x2 (&in)[words<Vector>][blocks], Vector* target,
                                  u32& most) {
  Vector out;
#pragma unroll
  for (int pair = 0; pair < words<Vector>; ++pair) {
    (&out.x)[pair] = Sums::template plane<plane>(in[pair]).pair;
    if constexpr (watched) most = largest(most, (&out.x)[pair]);
  }
  store_vector(target, out);
  if constexpr (plane + 1 < Sums::planes)
    combine_plane_f16<Sums, watched, plane + 1>(p, in, next_plane(p, target), most);
}

// As a kernel of its own: one vector per thread. `measures`: warps are whole, and no segment is cut.
template <class Element, class Sums, bool measures, int blocks>
__device__ void combine_all(const Combination<blocks>& p) {
  start_next_kernel();
  const long long position = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int row = position / p.columns;
  if (row >= p.rows) return;
  const int column = position - static_cast<long long>(row) * p.columns;
  uint4 in[blocks];
#pragma unroll
  for (int i = 0; i < blocks; ++i)
    in[i] = load_once(p.operand + p.offset[i] + row * p.row_stride + column);
  u32 bad = 0;
  combine_plane<Element, Sums, 0>(p, in, p.scale * p.gain.value(), p.planes + position, bad);
  if (bad) Extremes::refuse(p.record);
  if constexpr (measures) {
    Extremes seen;
    seen.take<Element>(in, Extremes::segment);
    seen.add_to(p.record);
  }
}
