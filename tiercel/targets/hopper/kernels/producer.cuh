// The producer: one thread that keeps the ring full.
#pragma once
#include "pipeline.cuh"
#include "scheduler.cuh"
#include "tma.cuh"

template <class C>
struct Producer {
  Pipeline<C> pipe;
  Stage<C> stage;
  int k_tiles;
  int m_rank, n_rank;
  int k_first = 0;           // k-tile
  u32 loaded;                // bytes of a stage that arrive; fewer where the operand is smaller
  Tile tile;
  int a_batch, b_batch;      // third TMA coordinate; 0 where the operand is broadcast
  int a_down, b_down;        // of a block in a grid: `batch` is its place across then
  Trace<C::traced> trace;
  bool backwards = false;    // from the last k-tile to the first

  // One product: all k-tiles of a plane of A and a plane of B at this tile.
  __device__ void multiply(const TensorMap& a, const TensorMap& b) {
#pragma unroll 1
    for (int k = 0; k < k_tiles; ++k) k_tile(a, b, backwards ? k_tiles - 1 - k : k);
  }

  // A part of the k-tiles of a tile, which are `all`.
  __device__ void take(const Share& share, int all) {
    k_tiles = share.count;
    k_first = backwards ? all - share.first - share.count : share.first;
  }

  // The next stage, once it is empty; returns the barrier that counts its bytes.
  __device__ u32 acquire(u32 bytes) {
    mbarrier_wait(pipe.empty(stage.index), stage.phase ^ 1);
    const u32 full = pipe.full(stage.index);
    mbarrier_expect(full, bytes);
    return full;
  }

  // One stage: k-tile k of both planes.
  __device__ void k_tile(const TensorMap& a, const TensorMap& b, int k) {
    trace.mark(Mark::want, k);
    const u32 full = acquire(loaded);
    trace.mark(Mark::have, k);
    if (C::boxes > 1 && tile.beside) load_both<1, C::cluster>(a, b, full, k, 0, m_rank);
    else load_both<C::cluster_m, C::cluster_n>(a, b, full, k, m_rank, n_rank);
    stage.advance();
  }

  // Other CTAs of the cluster may still write here and count arrivals: leave last.
  __device__ void finish() {
#pragma unroll 1
    for (int i = 0; i < C::stages; ++i) {
      mbarrier_wait(pipe.empty(stage.index), stage.phase ^ 1);
      stage.advance();
    }
  }

 private:
  // k-tile k of A and B, by CTA (m, n) of a cluster of cluster_m × cluster_n.
  template <int cluster_m, int cluster_n>
  __device__ void load_both(const TensorMap& a, const TensorMap& b, u32 full, int k, int m, int n) {
    load<C::tile_m, C::a_mn_major, cluster_n>(pipe.a(stage.index), a, full, tile.row,
                                              (k_first + k) * C::tile_k, a_batch, a_down, n,
                                              cluster_m, m);
    load<C::tile_n, C::b_mn_major, cluster_m, C::neighbours>(
        pipe.b(stage.index), b, full, tile.n * C::tile_n, (k_first + k) * C::tile_k, b_batch, b_down, m,
        1, n * cluster_m);
  }

  // One operand tile, `extent` rows of M or N. The `sharers` CTAs of the cluster that need the
  // same tile load 1/sharers of it each and multicast it. CTAs `first + i·step` share. Where
  // tiles may be shared either way, a box is a half of each, and one CTA loads both. `in_groups`:
  // of 32 rows, which the tensor map puts in the order that store_neighbours.cuh describes.
  template <int extent, bool mn_major, int sharers, bool in_groups = false>
  __device__ void load(u32 target, const TensorMap& map, u32 full, int mn, int k, int batch,
                       int down, int share, int step, int first) {
    u16 mask = 0;
    for (int i = 0; i < sharers; ++i) mask |= 1 << (first + i * step);
    auto box = [&](u32 to, int x, int y) {
      if constexpr (C::gridded && sharers == 1) tma_load_of_grid(to, map, full, x, y, batch, down);
      else if constexpr (C::gridded) tma_load_of_grid_multicast(to, map, full, x, y, batch, down, mask);
      else if constexpr (in_groups && sharers == 1) tma_load_groups(to, map, full, x, y / 32);
      else if constexpr (in_groups) tma_load_groups_multicast(to, map, full, x, y / 32, mask);
      else if constexpr (sharers == 1) tma_load(to, map, full, x, y, batch);
      else tma_load_multicast(to, map, full, x, y, batch, mask);
    };
    constexpr int parts = C::boxes > sharers ? C::boxes : sharers;
#pragma unroll
    for (int i = 0; i < parts / sharers; ++i, share += sharers) {
      if constexpr (mn_major) {  // chunks of 128 bytes along MN, each tile_k rows
        constexpr int k_rows = C::tile_k / parts;
#pragma unroll
        for (int chunk = 0; chunk < extent / C::tile_k; ++chunk)  // as many elements as of K
          box(target + chunk * C::tile_k * 128 + share * k_rows * 128, mn + chunk * C::tile_k,
              k + share * k_rows);
      } else {  // rows of 128 bytes along K
        constexpr int rows = extent / parts;
        box(target + share * rows * 128, k, mn + share * rows);
      }
    }
  }
};
