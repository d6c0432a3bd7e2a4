// A tile of A in registers, as `wgmma` takes it instead of a descriptor: for operands that the tensor
// cores cannot read from shared memory as they lie there.
#pragma once
#include "ptx.cuh"

// 64 rows × 128 bytes of K. Lane l of warp w holds, of step s (32 bytes of K), the 4 bytes at
// 16·half + 4·(l % 4) of rows 16w + l/4 (value 2·half) and 8 below (value 2·half + 1).
using Fragment = u32[4][4];

// From a tile that is contiguous along M, of 4-byte elements: chunks of 32 rows, each 32 values of K ×
// 128 bytes, whose 16-byte parts are permuted by k.
struct MMajorFragment {
  u32 at[4];

  // The row of the tile that a thread takes for row 16w + l/4; the other one is 8 below, too. Which
  // row is called so is free, if the store knows. Part p holds rows 4p to 4p + 3: a warp reads parts p
  // and p ^ 5 of four k at once, which are permuted to eight different ones; rows in their order
  // would meet in four, of 16 banks.
  static __device__ int row(int thread) {
    const int warp = thread / 32, lane_row = thread % 32 / 4;
    return warp / 2 * 32 + (warp % 2 ^ lane_row / 4 * 5) * 4 + lane_row % 4;
  }

  __device__ explicit MMajorFragment(int thread) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int m = row(thread) + i % 2 * 8, k = thread % 4 + i / 2 * 4;
      at[i] = m / 32 * 4096 + k * 128 + (m % 32 / 4 ^ k) * 16 + m % 4 * 4;
    }
  }

  __device__ void load(Fragment& to, u32 tile) const {
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) to[step][i] = shared_load_word(tile + at[i] + step * 1024);
  }
};
