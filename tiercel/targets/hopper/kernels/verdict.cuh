// May a scheme multiply these data? Asked and answered on the device (settle.cuh). The records are those
// of Extremes.
#pragma once
#include "extremes.cuh"

// Mirrored by ../fused/verdict.py.
struct Verdict {
  const u32 *left, *right;       // records of A and B
  const void* source;            // null, or a packed operand that must still be what it was:
  const long long* places;       // elements that are looked at,
  const void* values;            // and what they were
  int samples;
  float limit, headroom;         // of the scales' ratios, and of an intermediate's size
  float left_floor, right_floor; // least mean magnitudes
};

__device__ inline float most_of(const u32* record) { return __uint_as_float(record[0]); }
__device__ inline float least_of(const u32* record) {
  return __uint_as_float(Extremes::infinity - record[1]);
}

// By the records alone, of operands that are multiplied by these gains. Comparisons are such that NaN
// refuses.
__device__ inline bool acceptable(const Verdict& v, float left_gain, float right_gain) {
  const float most_a = most_of(v.left), least_a = least_of(v.left);
  const float most_b = most_of(v.right), least_b = least_of(v.right);
  const bool even = most_a / least_a * (most_b / least_b) <= v.limit;
  const bool small = most_a <= v.headroom && most_b <= v.headroom && most_a * most_b <= v.headroom;
  const bool fine = least_a * left_gain >= v.left_floor && least_b * right_gain >= v.right_floor;
  return even && small && fine && !Extremes::refused(v.left) && !Extremes::refused(v.right);
}

// Whether the samples of thread `first` of `threads` are what they were.
template <class Word>
__device__ bool unchanged(const Verdict& v, int first, int threads) {
  bool same = true;
  for (int i = first; i < v.samples; i += threads)
    same &= static_cast<const Word*>(v.source)[v.places[i]] == static_cast<const Word*>(v.values)[i];
  return same;
}

// The record of an operand whose planes are not combined by 16 lanes to a segment.
struct Measured {
  const uint4* operand;
  u32* record;
  long long row_stride;  // this, and columns, in vectors of 16 bytes
  int rows, columns;
};

// K contiguous: a warp takes 512 bytes of a row. Else: 128 rows of them.
template <class Element, bool mn_major>
__device__ void measure(const Measured& m) {
  constexpr int count = Values<Element>::count, lanes = Extremes::segment / count;
  const int across = (m.columns + 31) / 32, down = mn_major ? (m.rows + 127) / 128 : m.rows;
  Extremes seen;
  for (int item = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; item < across * down;
       item += gridDim.x * (blockDim.x / 32)) {
    const int column = item % across * 32 + threadIdx.x % 32;
    if constexpr (mn_major) {
      if (column >= m.columns) continue;
      const int first = item / across * 128, length = min(m.rows - first, 128);
      float sum[count] = {};
#pragma unroll 8
      for (int row = first; row < first + length; ++row) {
        const uint4 v = load_once(m.operand + row * m.row_stride + column);
#pragma unroll
        for (int i = 0; i < count; ++i) sum[i] += fabsf(Values<Element>::at(v, i));
      }
#pragma unroll
      for (int i = 0; i < count; ++i) seen.take_sum(sum[i], length);
    } else {
      uint4 v[1] = {};
      if (column < m.columns)
        v[0] = load_once(m.operand + item / across * m.row_stride + column);
      seen.take<Element>(v, max(min(m.columns - column / lanes * lanes, lanes), 0) * count);
    }
  }
  seen.add_to(m.record);
}
