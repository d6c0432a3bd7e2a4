// Planes of an operand: each block is read once, each combined plane written once. A lane handles one
// vector of 16 bytes at one position of all blocks (8 bytes where there is little room).
#pragma once
#include "ptx.cuh"

template <class Word>
__device__ Word count(const Word* counter) {
  Word value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

// The power of two that brings an operand into float16's range: what the data of the last product of
// its kind asked for. As bits of floats.
struct Gain {
  static constexpr float unheard = 16384, most = 0x1p42f;  // a step where data do not tell; the end

  u32* next;  // for the next product; null: gains stay 1
  u32* used;  // of this product, 0 until somebody asks, whatever other streams do to `next`; null: 1

  __device__ float value() const {
    u32 bits = used == nullptr ? 0 : count(used);
    if (bits == 0 && next != nullptr) {
      const u32 mine = *const_cast<const volatile u32*>(next), first = atomicCAS(used, 0, mine);
      bits = first == 0 ? mine : first;
    }
    return bits == 0 ? 1.0f : __uint_as_float(bits);
  }

  // By the operand's record. Means near 1 stay as they are: 2^-6 is 2^7 above what is refused, and an
  // element is at most 128 times its segment's mean. The others become 1 to 2.
  __device__ float wanted(const u32* record) const {
    const float gain = value(), mean = __uint_as_float(record[0]);
    if (next == nullptr) return gain;
    if (record[2] != 0) return gain <= 1 / most ? 1 : gain / unheard;
    if (mean == 0) return gain >= most ? 1 : gain * unheard;
    if (mean >= 0x1p-6f && mean <= 0x1p6f) return 1;
    const int exponent = static_cast<int>(record[0] >> 23) - 127;
    return __uint_as_float((127 - min(max(exponent, -60), 60)) << 23);
  }
};

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

__device__ inline uint4 load_once(const uint4* source) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(source));
  return v;
}

__device__ inline void store_vector(uint2* target, uint2 v) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(target), "r"(v.x), "r"(v.y) : "memory");
}

__device__ inline void store_vector(uint4* target, uint4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               ::"l"(target), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

__device__ inline void count_up(int* counter) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
}

// Between two looks at a counter: whoever only waits leaves L2 and issue slots to those who multiply.
__device__ inline void pause() { asm volatile("nanosleep.u32 100;" ::: "memory"); }

// Non-zero where a half of a pair of float16 has all of its exponent bits: inf or NaN. A block of
// the operand that is not finite shows in every sum that it is part of.
__device__ inline u32 not_finite(u32 pair) {
  return (pair & 0x7fff7fffu) + 0x04000400u & 0x80008000u;
}

template <class Vector>
constexpr int words = sizeof(Vector) / 4;

// The values of a vector, as floats, and a vector of plane elements from floats: float16 planes of
// 16-bit operands, float32 planes of float32.
template <class Element, class Vector = uint4>
struct Values {
  static constexpr int count = 2 * words<Vector>;
  static __device__ float at(const Vector& v, int i) {
    const u32 both = (&v.x)[i / 2];
    return i % 2 ? Element::high(both) : Element::low(both);
  }
  static __device__ Vector pack(const float (&x)[count], u32& bad) {
    Vector v;
#pragma unroll
    for (int i = 0; i < words<Vector>; ++i) {
      (&v.x)[i] = f16::pack(x[2 * i], x[2 * i + 1]);
      bad |= not_finite((&v.x)[i]);
    }
    return v;
  }
};

template <class Vector>
struct Values<tf32, Vector> {
  static constexpr int count = words<Vector>;
  static __device__ float at(const Vector& v, int i) { return __uint_as_float((&v.x)[i]); }
  static __device__ Vector pack(const float (&x)[count], u32& bad) {
    Vector v;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      (&v.x)[i] = __float_as_uint(x[i]);
      bad |= ((&v.x)[i] & 0x7fffffffu) >= 0x7f800000u;
    }
    return v;
  }
};

// float8 planes of float8. Sums are taken in float16, whose 11 bits are enough beside the planes' 4.
template <class Vector>
struct Values<e4m3, Vector> {
  static constexpr int count = 4 * words<Vector>;
  static __device__ u32 pair(const Vector& v, int i) {
    return e4m3::to_f16(static_cast<u16>((&v.x)[i / 2] >> i % 2 * 16));
  }
  static __device__ float at(const Vector& v, int i) {
    return i % 2 ? f16::high(pair(v, i / 2)) : f16::low(pair(v, i / 2));
  }
  template <class Sums, int plane, int blocks>
  static __device__ Vector combined(const Vector (&in)[blocks], float scale, u32& bad) {
    Vector v;
#pragma unroll
    for (int word = 0; word < words<Vector>; ++word) {
      u32 half[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        f16x2 block[blocks];
#pragma unroll
        for (int j = 0; j < blocks; ++j) block[j].pair = pair(in[j], 2 * word + i);
        half[i] = e4m3::from_f16((scale * Sums::template plane<plane>(block)).pair);
      }
      const u32 out = (&v.x)[word] = half[0] | half[1] << 16;
      bad |= (out & 0x7f7f7f7fu) + 0x01010101u & 0x80808080u;  // NaN: all other bits set
    }
    return v;
  }
};

template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;

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
  static __device__ bool refused(const u32* record) { return count(record + 2) != 0; }
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
