// The epilogue of a product that is computed as Dᵀ = Bᵀ·Aᵀ: float32, written as rows of D.
#pragma once
#include "mainloop.cuh"
#include "memory.cuh"
#include "tma.cuh"

template <class C>
struct StoreTransposed {
  // D = alpha · accᵀ. 64 columns of the accumulator are 64 rows of D; of its 64 rows, each half is
  // one subtile of 128 bytes.
  template <class P>
  static __device__ void run(Consumer<C>& consumer, Accumulator<C>& acc, const P& params,
                             const TensorMap& map) {
    const int lane = consumer.thread % 32, own = row_of(consumer.thread);
    const u32 staging = consumer.pipe.base + Layout<C>::staging +
                        consumer.group * Layout<C>::subtiles_staged * Layout<C>::subtile;
    const u32 mine = staging + own / 32 * Layout<C>::subtile;
#pragma unroll
    for (int block = 0; block < C::blocks; ++block)
#pragma unroll
      for (int first = 0; first < C::tile_n; first += 64) {
        if (consumer.thread == 0) tma_store_wait_read<0>();
        __syncwarp();
        consumer.sync();
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int row = 8 * j + lane % 4 * 2 + i % 2;
            const int column = own % 32 + i / 2 * 8;
            // 4 rows × 8 columns of a warp lie in 32 different banks.
            shared_store(mine + row * 128 + (column / 4 ^ row % 8) * 16 + column % 4 * 4,
                         params.alpha * acc[block][(first / 8 + j) * 4 + i]);
          }
        proxy_fence_shared();
        consumer.sync();
        if (consumer.thread == 0) {
          const int x = consumer.tile.row + consumer.first_row() + 64 * block;
          const int y = consumer.tile.n * C::tile_n + first;
          tma_store(map, staging, x, y, consumer.tile.batch);
          tma_store(map, staging + Layout<C>::subtile, x + 32, y, consumer.tile.batch);
          tma_store_commit();
        }
        __syncwarp();
      }
  }
};
