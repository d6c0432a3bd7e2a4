// The store of float8 sums that are added up in float32: each warp stages and stores its own 16 rows.
//
// Both consumers of such a product end a tile together, so that nobody multiplies meanwhile, and what
// counts is how soon they go on: 1.074 instead of 1.060 of cuBLAS at 8192³ with blocks, 1.090 instead
// of 1.076 at 4096³. Where they end it in turn, and in wholes of 64 rows, stores are cheaper in energy:
// 1.027 instead of 1.015 at 4096³ with fast accumulation, 1.016 instead of 1.013 for TF32.
#pragma once
#include "mainloop.cuh"
#include "memory.cuh"
#include "tma.cuh"

template <class C>
struct StoreWarps {
  using Output = typename C::Output;
  static constexpr int whole = 128 / sizeof(Output);  // columns
  static constexpr int columns = C::tile_n % whole ? whole / 2 : whole;
  static constexpr int pieces = columns / 8;  // of a thread's fragment
  static constexpr int pitch = columns * sizeof(Output);
  static constexpr int rows = 16, box = rows * pitch;  // bytes
  static constexpr int area = Layout<C>::area / 4, buffers = area / box;
  static_assert(C::tile_n % columns == 0 && buffers >= 2);

  // D = alpha · scale · acc, by boxes of 16 rows.
  template <class P>
  static __device__ void run(Consumer<C>& consumer, const Accumulator<C>& acc, const P& params,
                             const TensorMap& map, float scale) {
    const int warp = consumer.thread / 32, lane = consumer.thread % 32;
    const u32 staging = consumer.pipe.staging(consumer.group) + warp * area;
    const float alpha = params.alpha * scale;
    int buffer = 0;
#pragma unroll
    for (int block = 0; block < C::blocks; ++block)
#pragma unroll
      for (int first = 0; first < C::tile_n; first += columns) {
        float x[pieces][4];
#pragma unroll
        for (int j = 0; j < pieces; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) x[j][i] = alpha * acc[block][(first / 8 + j) * 4 + i];
        const u32 target = staging + buffer * box;
        consumer.trace.mark(Mark::free, first);
        if (lane == 0) tma_store_wait_read<buffers - 1>();
        __syncwarp();
        consumer.trace.mark(Mark::fill, first);
        stage(target, x, lane);
        proxy_fence_shared();
        __syncwarp();
        if (lane == 0) {
          tma_store(map, target, consumer.tile.n * C::tile_n + first,
                    consumer.tile.row + consumer.first_row() + 64 * block + rows * warp,
                    consumer.tile.batch);
          tma_store_commit();
        }
        __syncwarp();
        consumer.trace.mark(Mark::sent, first);
        buffer = (buffer + 1) % buffers;
      }
  }

 private:
  static __device__ void stage(u32 target, const float (&x)[pieces][4], int lane) {
    if constexpr (sizeof(Output) == 2) {
      const int row = lane % rows;  // matrices 0, 2: upper 8 rows; 1, 3: lower 8
#pragma unroll
      for (int j = 0; j < pieces; j += 2)
        stmatrix_x4(target + place(row, j + lane / 16), Output::pack(x[j][0], x[j][1]),
                    Output::pack(x[j][2], x[j][3]), Output::pack(x[j + 1][0], x[j + 1][1]),
                    Output::pack(x[j + 1][2], x[j + 1][3]));
    } else {
      // 16 lanes write 8 bytes each, 4 rows × 32 bytes, at once. Of two neighbouring rows the swizzle
      // puts a piece into the same 32 bytes of a span, in another order; so odd rows write the piece
      // two further on meanwhile, and all 32 banks are used.
      const int row = lane / 4, odd = row % 2, half = lane % 4 / 2, in_chunk = lane % 2 * 8;
#pragma unroll
      for (int j = 0; j < pieces; ++j) {
        const u32 at = target + place(row, 2 * j ^ 4 * odd ^ half) + in_chunk;
        float y[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) y[i] = odd ? x[j ^ 2][i] : x[j][i];
        shared_store(at, y[0], y[1]);
        shared_store(at + 8 * pitch, y[2], y[3]);
      }
    }
  }

  // The swizzle of the output's tensor map permutes the 16-byte chunks of a row.
  static __device__ u32 place(int row, int chunk) {
    constexpr int chunks = pitch / 16, spans = 128 / pitch;
    return row * pitch + (chunk ^ row / spans % chunks) * 16;
  }
};
