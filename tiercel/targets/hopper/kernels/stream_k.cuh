// The last turn of a persistent walk, shared by all clusters ("stream-K": Osama, Merrill, Cecka,
// Garland, Owens 2023).
//
// Tiles that are left for the last turn are fewer than clusters. Each has an owner, which multiplies
// its first `own` k-tiles; the rests of all of them, laid end to end, are divided among the clusters
// without a tile, the helpers. A helper writes its float32 sums to memory, where L2 holds them, and the
// owner adds them in a fixed order. All owners walk along K together, as in any other turn, so that
// they read the same operands at the same time.
//
// Only owners wait, and only for helpers, which are the first clusters of the grid: they run by then.
#pragma once
#include "mainloop.cuh"
#include "memory.cuh"

// Mirrored by ../products/stream_k.py. Nothing in a kernel that does not share.
template <bool on>
struct StreamK {};

template <>
struct StreamK<true> {
  float4* sums;  // [slot][CTA of a cluster][consumer][values / 4][thread]
  int* flags;    // [slot][CTA of a cluster][consumer]: 1 while sums are there, 0 outside the kernel
  int owners;    // tiles of the last turn
  int own;       // k-tiles that an owner multiplies
  int each;      // k-tiles that a helper multiplies; the last ones may have fewer, or none
  int unused;
};

template <class C>
struct StreamKScheduler : Scheduler<C> {
  using Base = Scheduler<C>;
  using Base::position, Base::stride, Base::total;
  const StreamK<true>& plan;
  int k_tiles, rest;    // of a tile: all, and those left to helpers
  int at = 0, end = 0;  // this helper's part of the rests

  template <class P>
  __device__ StreamKScheduler(const P& params, u32 rank)
      : Base(params, rank), plan(params.stream_k), k_tiles(params.k_tiles),
        rest(params.k_tiles - params.stream_k.own) {
    const int helpers = stride - plan.owners, line = plan.owners * rest;
    if (position < helpers) {
      at = min(position * plan.each, line);
      end = min(at + plan.each, line);
      position += plan.owners;
    } else {
      position -= helpers;
    }
  }

  __device__ bool helps() const { return position >= total; }

  __device__ bool valid(int ahead = 0) const {
    if (position + ahead * stride < total) return true;
    return at + (ahead && helps() ? count() : 0) < end;
  }
  __device__ void skip(int) {
    if (helps()) at += count();
    else position += stride;
  }

  __device__ Tile tile() const {
    return this->tile_at(helps() ? total - plan.owners + at / rest : position);
  }

  // A new slot begins where the rest of another tile does, and where another helper's part does.
  __device__ Share share() const {
    if (helps()) return {plan.own + at % rest, count(), true, at / rest + at / plan.each, 1};
    const int owner = position - (total - plan.owners);
    if (owner < 0) return {0, k_tiles};
    const int first = owner * rest / plan.each, last = ((owner + 1) * rest - 1) / plan.each;
    return {0, plan.own, false, owner + first, last - first + 1};
  }

 private:
  // k-tiles of the current tile that this helper multiplies
  __device__ int count() const { return min(rest - at % rest, end - at); }
};

// To or from the slots of this consumer's share; false in a helper, which has nothing to store then.
template <class C, class P>
__device__ bool exchange(const Consumer<C>& tile, Accumulator<C>& acc, const P& params) {
  constexpr int vectors = C::tile_n / 8, batch = 8;  // batch: loads in flight
  static_assert(C::blocks == 1 && !C::pingpong && vectors % batch == 0);
  const Share& share = tile.share;
  const int cta = C::cluster == 1 ? 0 : static_cast<int>(cluster_rank());
  for (int i = 0; i < share.sums; ++i) {
    const int place = ((share.slot + i) * C::cluster + cta) * C::consumers + tile.group;
    float4* sums = params.stream_k.sums + place * vectors * 128 + tile.thread;
    int* flag = params.stream_k.flags + place;
    if (share.gives) {
#pragma unroll
      for (int v = 0; v < vectors; ++v)
        global_store(sums + v * 128, acc[0][4 * v], acc[0][4 * v + 1], acc[0][4 * v + 2],
                     acc[0][4 * v + 3]);
      tile.sync();
      if (tile.thread == 0) release_add(flag, 1);
      __syncwarp();
      return false;
    }
    if (tile.thread == 0) {
      while (acquire_load(flag) == 0) {}
      *flag = 0;
    }
    __syncwarp();
    tile.sync();
#pragma unroll
    for (int first = 0; first < vectors; first += batch) {
      float x[batch][4];
#pragma unroll
      for (int v = 0; v < batch; ++v) global_load_l2(sums + (first + v) * 128, x[v]);
#pragma unroll
      for (int v = 0; v < batch; ++v)
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[0][4 * (first + v) + j] += x[v][j];
    }
  }
  return true;
}
