// A tile of A in registers, as `wgmma` takes it instead of a descriptor: for operands that the tensor
// cores cannot read from shared memory as they lie there.
#pragma once
#include "memory.cuh"

// The first row of 64 of which a thread holds values; the other one is 8 below.
__device__ inline int row_of(int thread) { return thread / 32 * 16 + thread % 32 / 4; }

// From a tile that is contiguous along M, of 4-byte elements: chunks of 32 rows, each 32 values of K ×
// 128 bytes, whose 16-byte parts are permuted by k. Lane l of warp w gets, of a step (32 bytes of K),
// the 4 bytes at 16·half + 4·(l % 4) of rows 16w + l/4 (value 2·half) and 8 below (value 2·half + 1).
// Two lanes of a load meet in each of 16 banks; rows in an order that spreads them over all 32 did not
// change the time.
struct MMajorFragment {
  u32 at[4];

  __device__ explicit MMajorFragment(int thread) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int m = row_of(thread) + i % 2 * 8, k = thread % 4 + i / 2 * 4;
      at[i] = m / 32 * 4096 + k * 128 + (m % 32 / 4 ^ k) * 16 + m % 4 * 4;
    }
  }

  __device__ void load(u32 (&to)[4], u32 tile, int step) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = shared_load_word(tile + at[i] + step * 1024);
  }
};
