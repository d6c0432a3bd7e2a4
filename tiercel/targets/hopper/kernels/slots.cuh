// Partial sums that outlive a product, packed to half precision: in registers, or in L2.
#pragma once
#include "mainloop.cuh"

// Half of the registers of the accumulator. Each thread scales its values by a power of two so
// that the largest lies just under 2^14: nothing overflows, and values down to 2^-28 of it keep 11
// bits.
template <class C>
struct Packed {
  u32 pair[C::blocks][C::tile_n / 4];
  float unscale;
};

struct Scale {
  float factor, inverse;
};

template <class C>
__device__ Scale scale_of(const Accumulator<C>& acc) {
  float largest = 0;
#pragma unroll
  for (int block = 0; block < C::blocks; ++block)
#pragma unroll
    for (int i = 0; i < C::tile_n / 2; ++i) largest = fmaxf(largest, fabsf(acc[block][i]));
  const int exponent = min(max(static_cast<int>(__float_as_uint(largest) >> 23), 16), 250);
  return {__uint_as_float((267 - exponent) << 23), __uint_as_float((exponent - 13) << 23)};
}

template <class C>
__device__ void save(Packed<C>& slot, const Accumulator<C>& acc) {
  const Scale scale = scale_of<C>(acc);
  slot.unscale = scale.inverse;
#pragma unroll
  for (int block = 0; block < C::blocks; ++block)
#pragma unroll
    for (int i = 0; i < C::tile_n / 4; ++i)
      slot.pair[block][i] = f16::pack(acc[block][2 * i] * scale.factor,
                                      acc[block][2 * i + 1] * scale.factor);
}

template <class C>
__device__ void rescale(Accumulator<C>& acc, float factor) {
#pragma unroll
  for (int block = 0; block < C::blocks; ++block)
#pragma unroll
    for (int i = 0; i < C::tile_n / 2; ++i) acc[block][i] *= factor;
}

// acc (=|+=) factor · slot
template <From from>
__device__ void add_pair(float& low, float& high, u32 pair, float factor) {
  low = from == From::zero ? f16::low(pair) * factor : fmaf(f16::low(pair), factor, low);
  high = from == From::zero ? f16::high(pair) * factor : fmaf(f16::high(pair), factor, high);
}

template <From from, class C>
__device__ void load(Accumulator<C>& acc, const Packed<C>& slot, float factor) {
#pragma unroll
  for (int block = 0; block < C::blocks; ++block)
#pragma unroll
    for (int i = 0; i < C::tile_n / 4; ++i)
      add_pair<from>(acc[block][2 * i], acc[block][2 * i + 1], slot.pair[block][i],
                        factor * slot.unscale);
}

// ---- Memory, each thread its own values, while other tiles are worked on ----------------------

template <class C>
constexpr int head_bytes = C::tile_m * C::tile_n * 2 + C::consumers * 128 * 4;

template <class C>
__device__ void spill(const Packed<C>& slot, char* place, int thread) {
#pragma unroll
  for (int v = 0; v < C::blocks * C::tile_n / 16; ++v) {
    const u32* pair = &slot.pair[v / (C::tile_n / 16)][v % (C::tile_n / 16) * 4];
    reinterpret_cast<uint4*>(place)[v * C::consumers * 128 + thread] = {pair[0], pair[1], pair[2], pair[3]};
  }
  reinterpret_cast<float*>(place + C::tile_m * C::tile_n * 2)[thread] = slot.unscale;
}

template <class C>
__device__ void restore(Packed<C>& slot, const char* place, int thread) {
#pragma unroll
  for (int v = 0; v < C::blocks * C::tile_n / 16; ++v) {
    const uint4 from = reinterpret_cast<const uint4*>(place)[v * C::consumers * 128 + thread];
    u32* pair = &slot.pair[v / (C::tile_n / 16)][v % (C::tile_n / 16) * 4];
    pair[0] = from.x, pair[1] = from.y, pair[2] = from.z, pair[3] = from.w;
  }
  slot.unscale = reinterpret_cast<const float*>(place + C::tile_m * C::tile_n * 2)[thread];
}

// ---- L2: written by each thread, read back through the ring ---------------------------------
// A part is one ring stage: [consumer][vector of 16 bytes][thread].

template <class C>
constexpr int vectors_per_part = C::scratch_part / (C::consumers * 128 * 16);

// The copy engine reads it back: a fence and an arrival at `saved` come before that.
template <class C>
__device__ float save_scratch(Consumer<C>& consumer, int slot, const Accumulator<C>& acc) {
  const Scale scale = scale_of<C>(acc);
  constexpr int vectors = vectors_per_part<C>;
  char* target = consumer.scratch + slot * C::scratch_bytes +
                 consumer.group * vectors * 2048 + consumer.thread * 16;
#pragma unroll
  for (int v = 0; v < C::blocks * C::tile_n / 16; ++v) {
    const float* x = &acc[v / (C::tile_n / 16)][v % (C::tile_n / 16) * 8];
    uint4 packed;
    packed.x = f16::pack(x[0] * scale.factor, x[1] * scale.factor);
    packed.y = f16::pack(x[2] * scale.factor, x[3] * scale.factor);
    packed.z = f16::pack(x[4] * scale.factor, x[5] * scale.factor);
    packed.w = f16::pack(x[6] * scale.factor, x[7] * scale.factor);
    *reinterpret_cast<uint4*>(target + v / vectors * C::scratch_part + v % vectors * 2048) = packed;
  }
  return scale.inverse;
}

template <From from, class C>
__device__ void load_scratch(Consumer<C>& consumer, Accumulator<C>& acc, float factor) {
  constexpr int vectors = vectors_per_part<C>;
#pragma unroll
  for (int part = 0; part < C::scratch_bytes / C::scratch_part; ++part) {
    mbarrier_wait(consumer.pipe.full(consumer.stage.index), consumer.stage.phase);
    const u32 source = consumer.pipe.a(consumer.stage.index) +
                       consumer.group * vectors * 2048 + consumer.thread * 16;
#pragma unroll
    for (int i = 0; i < vectors; ++i) {
      const int v = part * vectors + i;
      float* x = &acc[v / (C::tile_n / 16)][v % (C::tile_n / 16) * 8];
      const uint4 packed = shared_load(source + i * 2048);
      add_pair<from>(x[0], x[1], packed.x, factor);
      add_pair<from>(x[2], x[3], packed.y, factor);
      add_pair<from>(x[4], x[5], packed.z, factor);
      add_pair<from>(x[6], x[7], packed.w, factor);
    }
    named_sync(1 + consumer.group, 128);  // one thread answers for all 128
    consumer.held = consumer.stage.index;
    consumer.release();
    consumer.held = -1;
    consumer.stage.advance();
  }
}
