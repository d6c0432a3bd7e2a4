// The epilogue: accumulator → output tile, through staging in shared memory and TMA stores.
#pragma once
#include "epilogue.cuh"
#include "mainloop.cuh"

// A 64-row × 128-byte subtile is written to swizzled shared memory, then stored by one thread,
// while the next subtile is computed. TMA clips what lies outside the output.
//
// C::Epilogue changes the values of a subtile in place before that; see epilogue.cuh. `shrink` is 1
// where it makes one output column of two columns of the product.
template <class C>
struct Store {
  using Output = typename C::Output;
  using Epilogue = typename C::Epilogue;
  static constexpr int columns = 128 / sizeof(Output);          // of a subtile
  static constexpr int span = columns << Epilogue::shrink;      // of the product behind it
  static constexpr int pieces = span / 8;                       // of a thread's fragment

  // D[block] = epilogue(alpha · scale · acc), for the block of the output grid at (row, column).
  template <class P>
  static __device__ void run(Consumer<C>& consumer, Accumulator<C>& acc, const P& params,
                             const TensorMap& map, int row, int column, float scale) {
    const int lane = consumer.thread % 32;
    const int tile_column = consumer.tile.n * C::tile_n;
    const float alpha = params.alpha * scale;
    const u32 staging = consumer.pipe.base + Layout<C>::staging +
                        consumer.group * Layout<C>::subtiles_staged * Layout<C>::subtile;
    int buffer = 0;
#pragma unroll
    for (int block = 0; block < C::blocks; ++block) {
      const int tile_row = consumer.tile.m * C::tile_m + consumer.first_row() + block * 64;
      Epilogue epilogue;
      const Place place{consumer.tile.batch, row, column, tile_row + consumer.thread / 32 * 16 + lane / 4,
                        tile_column + lane % 4 * 2};
#pragma unroll
      for (int first = 0; first < C::tile_n; first += span) {
        float x[pieces][4];
#pragma unroll
        for (int j = 0; j < pieces; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) x[j][i] = alpha * acc[block][(first / 8 + j) * 4 + i];
        epilogue.apply(x, params, place, first);

        if constexpr (Epilogue::staged) {
          const u32 target = staging + buffer * Layout<C>::subtile;
          if (consumer.thread == 0) tma_store_wait_read<Layout<C>::subtiles_staged - 1>();
          __syncwarp();
          named_sync(1 + consumer.group, 128);
          stage(target, x, consumer.thread);
          proxy_fence_shared();
          named_sync(1 + consumer.group, 128);
          if (consumer.thread == 0)
            tma_store(map, target, (tile_column + first) >> Epilogue::shrink, tile_row,
                      consumer.tile.batch);
          __syncwarp();
          buffer ^= 1;
        }
      }
      epilogue.finish(params, place, consumer.tile.n);
    }
  }

 private:
  // Into rows of 128 bytes whose 16-byte chunks are permuted by the row (128-byte swizzle), as the
  // output's tensor map expects; this also spreads the 8 rows of a matrix over all banks.
  static __device__ void stage(u32 target, const float (&x)[pieces][4], int thread) {
    const int lane = thread % 32, warp_row = thread / 32 * 16;
    if constexpr (Epilogue::shrink == 1) {  // one value of each piece and row
      const int row = warp_row + lane / 4, in_piece = lane % 4 * sizeof(Output);
#pragma unroll
      for (int j = 0; j < pieces; ++j) {
        const int byte = j * 4 * sizeof(Output) + in_piece;
        const u32 at = target + row * 128 + (byte / 16 ^ row % 8) * 16 + byte % 16;
        store_one(at, x[j][0]);
        store_one(at + 8 * 128, x[j][2]);  // row + 8: the same row % 8
      }
    } else if constexpr (sizeof(Output) == 2) {
      const int row = warp_row + lane % 16;  // matrices 0, 2: upper 8 rows; 1, 3: lower 8
#pragma unroll
      for (int j = 0; j < pieces; j += 2)
        stmatrix_x4(target + row * 128 + (((j + lane / 16) ^ (row % 8)) * 16),
                    Output::pack(x[j][0], x[j][1]), Output::pack(x[j][2], x[j][3]),
                    Output::pack(x[j + 1][0], x[j + 1][1]), Output::pack(x[j + 1][2], x[j + 1][3]));
    } else {
      const int row = warp_row + lane / 4, half = lane % 4 / 2, in_chunk = lane % 2 * 8;
#pragma unroll
      for (int j = 0; j < pieces; ++j) {
        const u32 chunk = ((2 * j + half) ^ (row % 8)) * 16 + in_chunk;
        shared_store(target + row * 128 + chunk, x[j][0], x[j][1]);
        shared_store(target + (row + 8) * 128 + chunk, x[j][2], x[j][3]);
      }
    }
  }

  static __device__ void store_one(u32 address, float x) {
    if constexpr (sizeof(Output) == 2) shared_store(address, static_cast<u16>(Output::pack(x, x)));
    else shared_store(address, x);
  }
};
