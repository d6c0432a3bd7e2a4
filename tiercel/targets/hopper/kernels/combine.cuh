// Planes of an operand: each block is read once, each combined plane written once. A lane handles
// 8 neighbouring elements at one position of all blocks.
#pragma once
#include "ptx.cuh"

// Mirrored by ../planes.py.
template <int blocks>
struct Combination {
  const u16* operand;
  u16* planes;               // consecutive, each rows × columns without gaps
  int* flag;                 // set to 1 when a value is not finite, or too large for a plane
  int* ready;                // inside the product: workers done, then items done of each square
  long long offset[blocks];  // of each block, in elements
  long long row_stride;
  int rows, columns;         // of a block; columns a multiple of 8
  int squares_down, squares_across;  // of 256 × 256 elements in a block
  float scale;               // power of two
  int band;                  // panels that are needed first together
};

__device__ inline uint4 load_once(const u16* source) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(source));
  return v;
}

__device__ inline void store_vector(u16* target, uint4 v) {
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

// One vector of every plane. `Sums::plane<i>(block)` is generated: the sum that makes plane i, of
// floats or of pairs of float16.
//
// In float32, rounded once.
template <class Element, class Sums, int plane, int blocks>
__device__ void combine_plane(const Combination<blocks>& p, const uint4 (&in)[blocks],
                              long long position, u32& bad) {
  uint4 out;
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    float low[blocks], high[blocks];
#pragma unroll
    for (int i = 0; i < blocks; ++i) {
      low[i] = Element::low((&in[i].x)[pair]);
      high[i] = Element::high((&in[i].x)[pair]);
    }
    const u32 both = f16::pack(Sums::template plane<plane>(low) * p.scale,
                               Sums::template plane<plane>(high) * p.scale);
    bad |= not_finite(both);
    (&out.x)[pair] = both;
  }
  store_vector(p.planes + position, out);
  if constexpr (plane + 1 < Sums::planes)
    combine_plane<Element, Sums, plane + 1>(
        p, in, position + static_cast<long long>(p.rows) * p.columns, bad);
}

// In float16 pairs, rounded at each addition, unscaled: a third of the instructions, for warps that
// have little time. `in` is float16 already.
template <class Sums, int plane, int blocks>
__device__ void combine_plane_f16(const Combination<blocks>& p, const f16x2 (&in)[4][blocks],
                                  long long position, u32& most) {
  uint4 out;
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    (&out.x)[pair] = Sums::template plane<plane>(in[pair]).pair;
    most = largest(most, (&out.x)[pair]);
  }
  store_vector(p.planes + position, out);
  if constexpr (plane + 1 < Sums::planes)
    combine_plane_f16<Sums, plane + 1>(
        p, in, position + static_cast<long long>(p.rows) * p.columns, most);
}

// As a kernel of its own: one vector per thread.
template <class Element, class Sums, int blocks>
__device__ void combine_all(const Combination<blocks>& p) {
  const int vectors = p.columns / 8;
  const long long position = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int row = position / vectors;
  if (row >= p.rows) return;
  const int column = (position - static_cast<long long>(row) * vectors) * 8;
  uint4 in[blocks];
#pragma unroll
  for (int i = 0; i < blocks; ++i)
    in[i] = load_once(p.operand + p.offset[i] + row * p.row_stride + column);
  u32 bad = 0;
  combine_plane<Element, Sums, 0>(p, in, position * 8, bad);
  if (bad) *p.flag = 1;
}

// Inside the product, by the three idle warps of the producer group of every CTA. A warp's item is
// 8 rows × 256 columns; 32 items make a square, a panel of rows (of M or N) by a span of K. Items go
// by bands of panels, and in a band by K: the product that first needs them walks along K as well.
struct Squares {
  static constexpr int side = 256, items = 32, rows = side / items, part_rows = rows / 2;
};

// A warp has two parts of 4 rows on their way through shared memory: registers for 48 KB in flight
// do not exist beside the accumulators.
template <int blocks>
struct ItemBuffer {
  static constexpr int row = blocks * 32 * 16;  // bytes: a vector of each block for each lane
  static constexpr int part = Squares::part_rows * row;
  static constexpr int warp = 2 * part;
  static constexpr int cta = 3 * warp;
};

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
          (mn_major ? panel : span) * Squares::side + static_cast<int>(threadIdx.x) % 32 * 8,
          panel * spans + span};
}

// Each lane fetches what it will use itself: no barrier is needed.
template <int blocks>
__device__ void fetch_part(const Combination<blocks>& p, const Item& item, int first, u32 buffer) {
  if (item.column < p.columns) {
#pragma unroll
    for (int i = 0; i < blocks; ++i) {
      const u16* source =
          p.operand + p.offset[i] + (item.row + first) * p.row_stride + item.column;
#pragma unroll
      for (int row = 0; row < Squares::part_rows; ++row)
        if (item.row + first + row < p.rows)
          async_copy(buffer + row * ItemBuffer<blocks>::row + i * 512, source + row * p.row_stride);
    }
  }
  async_copy_commit();
}

template <class Element, class Sums, int blocks>
__device__ void combine_part(const Combination<blocks>& p, const Item& item, int first, u32 buffer,
                             u32& most) {
  if (item.column >= p.columns) return;
  const int rows = min(Squares::part_rows, p.rows - item.row - first);
#pragma unroll 1
  for (int row = 0; row < rows; ++row) {
    f16x2 in[4][blocks];
#pragma unroll
    for (int i = 0; i < blocks; ++i) {
      const uint4 v = shared_load(buffer + row * ItemBuffer<blocks>::row + i * 512);
#pragma unroll
      for (int pair = 0; pair < 4; ++pair)
        in[pair][i].pair = Element::to_f16((&v.x)[pair]);
    }
    combine_plane_f16<Sums, 0>(
        p, in, static_cast<long long>(item.row + first + row) * p.columns + item.column, most);
  }
}

template <class Element, class Sums, bool mn_major, int blocks>
__device__ void combine_items(const Combination<blocks>& p, u32 buffer, int worker, int workers) {
  const int total = p.squares_down * p.squares_across * Squares::items;
  const int lane = threadIdx.x % 32;
  const u32 first = buffer + lane * 16, second = first + ItemBuffer<blocks>::part;
  u32 most = 0;
  Item item = item_at<mn_major>(p, worker);
  if (worker < total) fetch_part(p, item, 0, first);
  for (int index = worker; index < total; index += workers) {
    fetch_part(p, item, Squares::part_rows, second);
    async_copy_wait<1>();
    combine_part<Element, Sums>(p, item, 0, first, most);

    const Item next = item_at<mn_major>(p, min(index + workers, total - 1));
    if (index + workers < total) fetch_part(p, next, 0, first);
    else async_copy_commit();
    async_copy_wait<1>();
    combine_part<Element, Sums>(p, item, Squares::part_rows, second, most);

    proxy_fence();  // TMA reads the planes
    __syncwarp();
    if (lane == 0) count_up(p.ready + 1 + item.counter);
    item = next;
  }
  if (not_finite(most)) *p.flag = 1;
  __syncwarp();
  if (lane == 0) count_up(p.ready);  // this worker is done
}

// Before a product reads planes that are being combined: have all workers finished? Else wait for
// the next `width` spans of its panel, four k-tiles each.
struct Readiness {
  static constexpr int width = 4;

  static __device__ bool all(const int* ready, int workers) { return count(ready) == workers; }

  static __device__ void wait(const int* spans, int number) {
    int least;
    do {
      least = Squares::items;
#pragma unroll
      for (int i = 0; i < width; ++i)
        if (i < number) least = min(least, count(spans + i));
    } while (least < Squares::items);
    proxy_fence();
  }
};
