// What the guard learns of an operand while it is combined, or read for that alone (verdict.cuh).
#pragma once
#include "memory.cuh"
#include "values.cuh"

// What the guard against badly scaled data wants to know of an operand: the largest and the smallest
// mean magnitude of 128 neighbours along K, as bits of floats, which are ordered as the floats are,
// NaN above all. The smallest is kept as its distance from infinity, so that all fields grow from 0
// (targets/gpu/guard.py, whose record this is). The third word is 1 where a plane does not hold the
// operand: a value is not finite, or too large.
struct Extremes {
  static constexpr int segment = 128, shortest = 32;  // shorter rests scatter too much to be too small
  static constexpr u32 infinity = 0x7f800000;
  u32 most = 0, gap = 0;

  // Of a lane's vector of each block, K being contiguous: 16 lanes hold a segment, `length` long (32
  // lanes, of float32 or of half vectors).
  template <class Element, class Vector, int blocks>
  __device__ void take(const Vector (&in)[blocks], int length) {
    using All = Values<Element, Vector>;
    float sum[blocks];
#pragma unroll
    for (int i = 0; i < blocks; ++i) {
      sum[i] = 0;
#pragma unroll
      for (int j = 0; j < All::count; ++j) sum[i] += fabsf(All::at(in[i], j));
    }
    take_sums<All::count>(sum, length);
  }

  // Sums of `count` values of each lane, one of each block.
  template <int count, int blocks>
  __device__ void take_sums(float (&sum)[blocks], int length) {
    constexpr bool halves = (blocks & (blocks - 1)) == 0;
    const int lane = threadIdx.x % 32;
    int left = blocks;  // sums that a lane still adds up; of a power of two it gives half away
#pragma unroll
    for (int mask = 1; mask < segment / count; mask *= 2) {
      if (halves && left > 1) {
        left /= 2;
#pragma unroll
        for (int i = 0; i < left; ++i) {
          const float mine = lane & mask ? sum[i + left] : sum[i];
          const float other = lane & mask ? sum[i] : sum[i + left];
          sum[i] = mine + __shfl_xor_sync(0xffffffffu, other, mask);
        }
      } else {
#pragma unroll
        for (int i = 0; i < left; ++i) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], mask);
      }
    }
#pragma unroll
    for (int i = 0; i < left; ++i) take_sum(sum[i], length);
  }

  // The sum of the magnitudes of a segment, `length` long.
  __device__ void take_sum(float sum, int length) {
    // By a whole segment's length, a power of two, this division is exact as well.
    const float divided = __fdividef(sum, static_cast<float>(max(length, shortest)));
    const u32 mean = __float_as_uint(divided) & 0x7fffffffu;
    most = max(most, mean);
    if (length >= shortest && mean <= infinity) gap = max(gap, infinity - mean);
  }

  // By a whole warp, of data that were multiplied by `gain`. Most warps find nothing new and spare the
  // atomics.
  __device__ void add_to(u32* record, float gain = 1) const {
    const u32 above = without(gain, __reduce_max_sync(0xffffffffu, most));
    const u32 below = infinity - without(gain, infinity - __reduce_max_sync(0xffffffffu, gap));
    if (threadIdx.x % 32 != 0) return;
    const volatile u32* known = record;
    if (above > known[0]) atomicMax(record, above);
    if (below > known[1]) atomicMax(record + 1, below);
  }

  static __device__ u32 without(float gain, u32 mean) {
    return __float_as_uint(__uint_as_float(mean) / gain);
  }
  static __device__ void refuse(u32* record) { record[2] = 1; }
  static __device__ bool refused(const u32* record) { return acquire_load(record + 2) != 0; }
};

// The same of values that are float16 already, in float16: a third of the instructions.
struct HalfExtremes {
  static constexpr float part = 0.25f;  // of sums: means of up to 2047 are finite
  f16x2 most{0}, least{0x7c007c00u};    // parts of sums of whole segments
  f16x2 all{0};                         // sum of the magnitudes of some values of all blocks

  // Of a lane's vector of each block.
  template <int pairs, int blocks>
  __device__ void take(const f16x2 (&in)[pairs][blocks], int length) {
    constexpr int words = (blocks + 1) / 2, lanes = Extremes::segment / (2 * pairs);
    f16x2 both[blocks], sum[words];
#pragma unroll
    for (int i = 0; i < blocks; ++i) {
      both[i] = absolute(in[0][i]) + absolute(in[1][i]);
      if constexpr (pairs == 4) both[i] = both[i] + (absolute(in[2][i]) + absolute(in[3][i]));
    }
    f16x2 total = both[0];
#pragma unroll
    for (int i = 1; i < blocks; ++i) total = total + both[i];
    all = larger(all, total);
#pragma unroll
    for (int i = 0; i < words; ++i) {
      const f16x2 a = both[2 * i], b = both[2 * i + 1 < blocks ? 2 * i + 1 : 2 * i];
      sum[i] = part * (lower(a, b) + upper(a, b));
    }
    const int lane = threadIdx.x % 32;
    int left = words;  // a lane gives half of them away where that can be
#pragma unroll
    for (int mask = 1; mask < lanes; mask *= 2) {
      if (left % 2 == 0) {
        left /= 2;
#pragma unroll
        for (int i = 0; i < left; ++i) {
          const f16x2 mine = lane & mask ? sum[i + left] : sum[i];
          const f16x2 other = lane & mask ? sum[i] : sum[i + left];
          sum[i] = mine + f16x2{__shfl_xor_sync(0xffffffffu, other.pair, mask)};
        }
      } else {
#pragma unroll
        for (int i = 0; i < left; ++i)
          sum[i] = sum[i] + f16x2{__shfl_xor_sync(0xffffffffu, sum[i].pair, mask)};
      }
    }
#pragma unroll
    for (int i = 0; i < left; ++i) {
      f16x2 whole = sum[i];
      if (length != Extremes::segment)
        whole = __fdividef(Extremes::segment, max(length, Extremes::shortest)) * whole;
      most = larger(most, whole);
      if (length >= Extremes::shortest) least = smaller(least, whole);
    }
  }

  // Whether sums of some of the values, none of them times more than 1, may be too large for float16.
  __device__ bool overflows() const { return (all.pair & 0x7fff7fffu) + 0x07ff07ffu & 0x80008000u; }

  __device__ void add_to(Extremes& seen) const {
    auto mean = [](float sum) {
      return __float_as_uint(sum * (1 / (part * Extremes::segment))) & 0x7fffffffu;
    };
    seen.most = max(seen.most, max(mean(f16::low(most.pair)), mean(f16::high(most.pair))));
    const u32 smallest = min(mean(f16::low(least.pair)), mean(f16::high(least.pair)));
    seen.gap = max(seen.gap, Extremes::infinity - smallest);
  }
};
