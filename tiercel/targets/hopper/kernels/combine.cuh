// Planes of an operand: each block is read once, each combined plane written once. A lane handles one
// vector of 16 bytes at one position of all blocks (8 bytes where there is little room).
#pragma once
#include "ptx.cuh"

// Mirrored by ../planes.py. Offsets, strides and columns count vectors of 16 bytes.
template <int blocks>
struct Combination {
  const uint4* operand;
  uint4* planes;             // consecutive, each rows × columns without gaps
  int* flag;                 // set to 1 when a value is not finite, or too large for a plane
  int* ready;                // inside the product: workers done, then items done of each square
  u32* record;               // null, or: see Extremes
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

__device__ inline int count(const int* counter) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

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

// What the guard against badly scaled data wants to know of an operand: the largest and the smallest
// mean magnitude of 128 neighbours along K, as bits of floats, which are ordered as the floats are,
// NaN above all. The smallest is kept as its distance from infinity, so that all fields grow from 0
// (targets/gpu/guard.py, whose record this is).
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

  // The same of values that are float16 already: a third of the instructions. Too large a sum is
  // infinite, and refused.
  template <int pairs, int blocks>
  __device__ void take_pairs(const f16x2 (&in)[pairs][blocks], int length) {
    float sum[blocks];
#pragma unroll
    for (int i = 0; i < blocks; ++i) {
      f16x2 both = absolute(in[0][i]) + absolute(in[1][i]);
      if constexpr (pairs == 4) both = both + (absolute(in[2][i]) + absolute(in[3][i]));
      sum[i] = f16::low(both.pair) + f16::high(both.pair);
    }
    take_sums<2 * pairs>(sum, length);
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

  __device__ void take_sum(float sum, int length) {
    const u32 mean = __float_as_uint(sum / static_cast<float>(max(length, shortest))) & 0x7fffffffu;
    most = max(most, mean);
    if (length >= shortest && mean <= infinity) gap = max(gap, infinity - mean);
  }

  // By a whole warp. Most warps find nothing new and spare the atomics.
  __device__ void add_to(u32* record) const {
    const u32 above = __reduce_max_sync(0xffffffffu, most), below = __reduce_max_sync(0xffffffffu, gap);
    if (threadIdx.x % 32 != 0) return;
    const volatile u32* known = record;
    if (above > known[0]) atomicMax(record, above);
    if (below > known[1]) atomicMax(record + 1, below);
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
// In float32, rounded once.
template <class Element, class Sums, int plane, class Vector, int blocks>
__device__ void combine_plane(const Combination<blocks>& p, const Vector (&in)[blocks],
                              Vector* target, u32& bad) {
  using All = Values<Element, Vector>;
  float sum[All::count];
#pragma unroll
  for (int j = 0; j < All::count; ++j) {
    float value[blocks];
#pragma unroll
    for (int i = 0; i < blocks; ++i) value[i] = All::at(in[i], j);
    sum[j] = Sums::template plane<plane>(value) * p.scale;
  }
  store_vector(target, All::pack(sum, bad));
  if constexpr (plane + 1 < Sums::planes)
    combine_plane<Element, Sums, plane + 1>(p, in, next_plane(p, target), bad);
}

// In float16 pairs, rounded at each addition, unscaled: a third of the instructions, for warps that
// have little time. `in` is float16 already.
template <class Sums, int plane, class Vector, int blocks>
__device__ void combine_plane_f16(const Combination<blocks>& p,
                                  const f16x2 (&in)[words<Vector>][blocks], Vector* target,
                                  u32& most) {
  Vector out;
#pragma unroll
  for (int pair = 0; pair < words<Vector>; ++pair) {
    (&out.x)[pair] = Sums::template plane<plane>(in[pair]).pair;
    most = largest(most, (&out.x)[pair]);
  }
  store_vector(target, out);
  if constexpr (plane + 1 < Sums::planes)
    combine_plane_f16<Sums, plane + 1>(p, in, next_plane(p, target), most);
}

// As a kernel of its own: one vector per thread.
template <class Element, class Sums, int blocks>
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
  combine_plane<Element, Sums, 0>(p, in, p.planes + position, bad);
  if (bad) *p.flag = 1;
  if (p.record != nullptr) {  // then warps are whole and no segment is cut
    Extremes seen;
    seen.take<Element>(in, Extremes::segment);
    seen.add_to(p.record);
  }
}

// Inside the product, by warps that have nothing else to do. A warp's item is 8 rows × 32 vectors; 32
// items make a square, a panel of rows (of M or N) by a span of K. Items go by bands of panels, and in
// a band by K: the product that first needs them walks along K as well.
template <bool first, class A, class B>
struct Choose {
  using Type = A;
};
template <class A, class B>
struct Choose<false, A, B> {
  using Type = B;
};
template <bool first, class A, class B>
using Choice = typename Choose<first, A, B>::Type;

struct Squares {
  static constexpr int side = 256, items = 32, rows = side / items, vectors = 32;
  static constexpr int k_tiles = 4;  // of a span: 512 bytes, or 256 rows of 16-bit values
};

// Rows on their way through a warp's part of shared memory, `room` bytes: registers for that do not
// exist beside the accumulators.
template <int blocks, int room>
struct RowBuffer {
  static constexpr bool wide = room >= 2 * blocks * Squares::vectors * 16;
  using Vector = Choice<wide, uint4, uint2>;
  static constexpr int row = blocks * 32 * sizeof(Vector);
  static constexpr int depth = room / row;
  static_assert(depth >= 2);
};

// Where an item begins, and the square's counter.
struct Item {
  int row, column, counter;
};

template <bool mn_major, int blocks>
__device__ Item item_at(const Combination<blocks>& p, int index) {
  const int panels = mn_major ? p.squares_across : p.squares_down;
  const int spans = mn_major ? p.squares_down : p.squares_across;
  const int square = index / Squares::items;
  const int band = square / (p.band * spans);
  const int width = min(p.band, panels - band * p.band);
  const int in_band = square - band * p.band * spans;
  const int span = in_band / width;
  const int panel = band * p.band + in_band - span * width;
  return {(mn_major ? span : panel) * Squares::side + index % Squares::items * Squares::rows,
          (mn_major ? panel : span) * Squares::vectors,
          panel * spans + span};
}

// A row of the items `worker`, `worker` + `workers`, …, of which a lane has a vector of each block, in
// one step or in two.
template <bool mn_major, class Vector, int blocks>
struct RowCursor {
  static constexpr int steps = sizeof(uint4) / sizeof(Vector);  // of a row
  const Combination<blocks>& p;
  int index, step, total;  // of items
  int within = 0;          // in steps
  Item item;

  __device__ RowCursor(const Combination<blocks>& p, int worker, int workers)
      : p(p), index(worker), step(workers),
        total(p.squares_down * p.squares_across * Squares::items),
        item(item_at<mn_major>(p, min(index, total - 1))) {}

  __device__ bool valid() const { return index < total; }
  __device__ bool inside() const { return valid() && row() < p.rows && column() < columns(); }
  __device__ int row() const { return item.row + within / steps; }
  // In units of Vector, this lane's and all.
  __device__ int column() const { return steps * item.column + within % steps * 32 + lane(); }
  __device__ int columns() const { return steps * p.columns; }
  __device__ static int lane() { return threadIdx.x % 32; }
  __device__ bool last() const { return within == steps * Squares::rows - 1; }
  __device__ void advance() {
    if (++within == steps * Squares::rows) {
      within = 0;
      index += step;
      item = item_at<mn_major>(p, min(index, total - 1));
    }
  }
};

// The next item, into L2: what is on its way to shared memory alone does not cover memory's latency.
template <bool mn_major, class Vector, int blocks>
__device__ void prefetch_item(const RowCursor<mn_major, Vector, blocks>& at) {
  constexpr int bytes = Squares::vectors * 16;
  if (at.index + at.step >= at.total) return;
  const Item next = item_at<mn_major>(at.p, at.index + at.step);
#pragma unroll
  for (int i = at.lane(); i < blocks * Squares::rows; i += 32) {
    const int row = next.row + i % Squares::rows;
    if (row < at.p.rows && next.column + Squares::vectors <= at.p.columns)
      bulk_prefetch(
          at.p.operand + at.p.offset[i / Squares::rows] + row * at.p.row_stride + next.column, bytes);
  }
}

// Each lane fetches what it will use itself: no barrier is needed.
template <bool mn_major, class Vector, int blocks>
__device__ void fetch_row(const RowCursor<mn_major, Vector, blocks>& at, u32 buffer) {
  if (at.inside()) {
    const uint4* row = at.p.operand + at.row() * at.p.row_stride;
#pragma unroll
    for (int i = 0; i < blocks; ++i)
      async_copy(buffer + i * 32 * sizeof(Vector),
                 reinterpret_cast<const Vector*>(row + at.p.offset[i]) + at.column());
  }
  async_copy_commit();
}

template <class Element, class Sums, bool exact, bool mn_major, class Vector, int blocks>
__device__ void combine_row(const RowCursor<mn_major, Vector, blocks>& at, u32 buffer, u32& bad,
                            Extremes& seen) {
  constexpr int count = Values<Element, Vector>::count, lanes = Extremes::segment / count;
  const Combination<blocks>& p = at.p;
  const bool inside = at.inside();
  const bool measures = p.record != nullptr && at.row() < p.rows;
  const int segment = max(min(at.columns() - at.column() / lanes * lanes, lanes), 0) * count;
  Vector* target = reinterpret_cast<Vector*>(p.planes + static_cast<long long>(at.row()) * p.columns) +
                   at.column();
  Vector in[blocks];
#pragma unroll
  for (int i = 0; i < blocks; ++i) {
    shared_load(buffer + i * 32 * sizeof(Vector), in[i]);
    if (!inside) in[i] = {};
  }
  if constexpr (exact) {
    if (measures) seen.take<Element>(in, segment);
    if (inside) combine_plane<Element, Sums, 0>(p, in, target, bad);
  } else {
    f16x2 pairs[words<Vector>][blocks];
#pragma unroll
    for (int i = 0; i < blocks; ++i)
#pragma unroll
      for (int pair = 0; pair < words<Vector>; ++pair)
        pairs[pair][i].pair = Element::to_f16((&in[i].x)[pair]);
    if (measures) seen.take_pairs(pairs, segment);
    u32 most = 0;
    if (inside) combine_plane_f16<Sums, 0>(p, pairs, target, most);
    bad |= not_finite(most);
  }
}

// By one warp. `exact`: sums in float32, rounded once.
template <class Element, class Sums, bool mn_major, bool exact, int room, int blocks>
__device__ void combine_items(const Combination<blocks>& p, u32 buffer, int worker, int workers) {
  using Buffer = RowBuffer<blocks, room>;
  using Vector = typename Buffer::Vector;
  const int lane = threadIdx.x % 32;
  const u32 base = buffer + lane * sizeof(Vector), end = base + Buffer::depth * Buffer::row;
  u32 bad = 0;
  Extremes seen;
  RowCursor<mn_major, Vector, blocks> now(p, worker, workers), ahead(p, worker, workers);
  auto fetch = [&](u32 to) {
    fetch_row(ahead, to);
    ahead.advance();
  };
#pragma unroll 1
  for (u32 to = base; to != end - Buffer::row; to += Buffer::row) fetch(to);
  u32 to = end - Buffer::row;  // where the row before `from` was
  for (u32 from = base; now.valid(); now.advance()) {
    if (Buffer::depth < Squares::rows && now.within == 0) prefetch_item(now);
    fetch(to);
    async_copy_wait<Buffer::depth - 1>();
    combine_row<Element, Sums, exact>(now, from, bad, seen);
    to = from;
    from = from + Buffer::row == end ? base : from + Buffer::row;
    if (now.last()) {  // TMA reads the planes: who waits for the count fences that
      __syncwarp();
      if (lane == 0) count_up(p.ready + 1 + now.item.counter);
    }
  }
  if (bad) *p.flag = 1;
  if (p.record != nullptr) seen.add_to(p.record);
  async_copy_wait<0>();
  __syncwarp();
  if (lane == 0) count_up(p.ready);  // this worker is done
}

// Before a product reads planes that are being combined: have all workers finished? Else wait for
// the next `width` spans of its panel, four k-tiles each.
struct Readiness {
  static constexpr int width = 4;
  static constexpr int patience = 1 << 18;  // looks, 0.2 s or more

  static __device__ bool all(const int* ready, int workers) { return count(ready) == workers; }

  // All thread blocks are resident at once, unless something else holds multiprocessors for long. Then
  // the flag lets the classical kernel compute the result, and what is multiplied here does not matter.
  static __device__ void wait(const int* spans, int number, int* flag) {
    for (int looks = 0; looks < patience; ++looks) {
      int least = Squares::items;
#pragma unroll
      for (int i = 0; i < width; ++i)
        if (i < number) least = min(least, count(spans + i));
      if (least == Squares::items) {
        proxy_fence();
        return;
      }
    }
    *flag = 1;
  }
};
