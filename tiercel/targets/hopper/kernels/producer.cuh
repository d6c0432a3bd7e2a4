// The producer: one thread that keeps the ring full.
#pragma once
#include "pipeline.cuh"
#include "scheduler.cuh"

enum class Planes { present, awaited };

template <class C>
struct Producer {
  Pipeline<C> pipe;
  Stage<C> stage;
  int k_tiles;
  int m_rank, n_rank;
  Tile tile;
  int a_batch, b_batch;      // third TMA coordinate; 0 where the operand is broadcast
  const char* scratch;       // this CTA's saved sums in L2
  const int* ready;          // see Combination
  const int* panel;          // the counters of this tile's panel of A, one for each span of K
  int spans;
  u32 saved_phase[C::scratch_slots + 1] = {};

  // One product: all k-tiles of a plane of A and a plane of B at this tile. `Planes::awaited`: the
  // first product of a tile that reads planes which other CTAs may still be combining.
  template <Planes planes = Planes::present>
  __device__ void multiply(const TensorMap& a, const TensorMap& b) {
    constexpr int group = Readiness::width * (Squares::side / C::tile_k);  // k-tiles
    const bool wait = planes == Planes::awaited && !Readiness::all(ready, 3 * gridDim.x);
    if constexpr (planes == Planes::awaited) proxy_fence();
#pragma unroll 1
    for (int k = 0; k < k_tiles; ++k) {
      if constexpr (planes == Planes::awaited)
        if (wait && k % group == 0) {
          const int span = k / (Squares::side / C::tile_k);
          Readiness::wait(panel + span, spans - span);
        }
      const u32 full = acquire(Layout<C>::stage);
      load<C::tile_m, C::a_mn_major, C::cluster_n>(
          pipe.a(stage.index), a, full, tile.m * C::tile_m, k * C::tile_k, a_batch,
          n_rank, C::cluster_m, m_rank);
      load<C::tile_n, C::b_mn_major, C::cluster_m>(
          pipe.b(stage.index), b, full, tile.n * C::tile_n, k * C::tile_k, b_batch,
          m_rank, 1, n_rank * C::cluster_m);
      stage.advance();
    }
  }

  // A sum that the consumers saved in L2 returns through the ring, so that they find it waiting.
  __device__ void load_scratch(int slot) {
    mbarrier_wait(pipe.saved(slot), saved_phase[slot]);
    saved_phase[slot] ^= 1;
    proxy_fence();
    const char* source = scratch + slot * C::scratch_bytes;
    for (int part = 0; part < C::scratch_bytes; part += C::scratch_part) {
      const u32 full = acquire(C::scratch_part);
      bulk_load(pipe.a(stage.index), source + part, C::scratch_part, full);
      stage.advance();
    }
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
  __device__ u32 acquire(u32 bytes) {
    mbarrier_wait(pipe.empty(stage.index), stage.phase ^ 1);
    const u32 full = pipe.full(stage.index);
    mbarrier_expect(full, bytes);
    return full;
  }

  // One operand tile, `extent` rows of M or N. The `sharers` CTAs of the cluster that need the
  // same tile load 1/sharers of it each and multicast it. CTAs `first + i·step` share.
  template <int extent, bool mn_major, int sharers>
  __device__ void load(u32 target, const TensorMap& map, u32 full, int mn, int k, int batch,
                       int share, int step, int first) {
    u16 mask = 0;
    for (int i = 0; i < sharers; ++i) mask |= 1 << (first + i * step);
    auto box = [&](u32 to, int x, int y) {
      if constexpr (sharers == 1) tma_load(to, map, full, x, y, batch);
      else tma_load_multicast(to, map, full, x, y, batch, mask);
    };
    if constexpr (mn_major) {  // chunks of 64 along MN, each tile_k rows of 128 bytes
      constexpr int k_rows = C::tile_k / sharers;
#pragma unroll
      for (int chunk = 0; chunk < extent / 64; ++chunk)
        box(target + chunk * C::tile_k * 128 + share * k_rows * 128, mn + chunk * 64,
            k + share * k_rows);
    } else {  // rows of 128 bytes along K
      constexpr int rows = extent / sharers;
      box(target + share * rows * 128, k, mn + share * rows);
    }
  }
};
