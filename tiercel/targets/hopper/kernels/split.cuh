// K split over the two CTAs of a cluster: each multiplies one half of the k-tiles of the same tile,
// then each sums half of the tile's rows. For products of few tiles; one tile for each cluster.
#pragma once
#include "mainloop.cuh"
#include "memory.cuh"

// A CTA's part of the k-tiles.
struct KPart {
  int first, count;

  __device__ explicit KPart(int k_tiles) : first(0), count(k_tiles) {}
  __device__ KPart(int k_tiles, int rank)
      : first(rank == 0 ? 0 : (k_tiles + 1) / 2), count((k_tiles + 1 - rank) / 2) {}
};

// Counts the bytes that the other CTA sends.
template <class C>
__device__ u32 inbox_barrier(const Pipeline<C>& pipe) {
  return pipe.base + Layout<C>::groups;  // there are none
}

// By one thread, before the CTAs of the cluster meet.
template <class C>
__device__ void open_inbox(const Pipeline<C>& pipe) {
  mbarrier_init(inbox_barrier(pipe), 1);
  mbarrier_init_fence();
  mbarrier_expect(inbox_barrier(pipe), 64 * C::tile_n * 4);
}

// The sum of both CTAs' accumulators. Consumer `rank` of a CTA gets that of its rows; returns false
// in the other one, which has sent its part away. By way of the memory where outputs are staged
// later: 64 rows × 128 columns of float32.
template <class C>
__device__ bool gather(const Consumer<C>& tile, Accumulator<C>& acc) {
  static_assert(!C::pingpong && C::blocks == 1 && C::tile_n <= 128);
  const int rank = static_cast<int>(cluster_rank());
  const u32 inbox = tile.pipe.base + Layout<C>::staging + tile.thread * 16;
  if (tile.group != rank) {
    const u32 outbox = shared_address_of(inbox, rank ^ 1);
    const u32 barrier = shared_address_of(inbox_barrier(tile.pipe), rank ^ 1);
#pragma unroll
    for (int i = 0; i < C::tile_n / 2; i += 4)
      remote_store(outbox + i * 512, barrier, acc[0][i], acc[0][i + 1], acc[0][i + 2],
                   acc[0][i + 3]);
    return false;
  }
  mbarrier_wait(inbox_barrier(tile.pipe), 0);
#pragma unroll
  for (int i = 0; i < C::tile_n / 2; i += 4) {
    const uint4 other = shared_load(inbox + i * 512);
    acc[0][i] += __uint_as_float(other.x);
    acc[0][i + 1] += __uint_as_float(other.y);
    acc[0][i + 2] += __uint_as_float(other.z);
    acc[0][i + 3] += __uint_as_float(other.w);
  }
  tile.sync();  // all have read: the memory is free for the output
  return true;
}
