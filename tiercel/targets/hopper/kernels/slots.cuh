// Partial sums that outlive a product: packed to half precision, in memory that stays in L2. Each
// thread reads back what it wrote itself, so that nothing has to be fenced or waited for.
#pragma once
#include "mainloop.cuh"
#include "memory.cuh"
#include "values.cuh"

// Half as many registers as the accumulator has, through which packed values leave and return while
// the tensor cores multiply: a block of the output on its way (outbox.cuh), or a sum that was fetched.
template <class C>
struct Box {
  static_assert(C::blocks == 1);
  static constexpr int vectors = C::tile_n / 16;  // of 16 bytes
  u32 pair[C::tile_n / 4];
  float unscale;
};

// What the box holds is not wanted any more: its registers are free until it is filled, although a
// fetch that is not wanted leaves them as they are.
template <class C>
__device__ void forget(Box<C>& box) {
#pragma unroll
  for (int i = 0; i < C::tile_n / 4; ++i) asm("" : "=r"(box.pair[i]));
  asm("" : "=f"(box.unscale));
}

// A condition that the compiler knows nothing about: it would make a copy of a whole loop for each of
// its values, 39,000 instructions instead of 9,000.
__device__ inline bool opaque(bool condition) {
  int value = condition;
  asm volatile("" : "+r"(value));
  return value != 0;
}

// Power of two that a thread's saved sums are multiplied by: it puts the largest value of the first
// sum of a tile just under 2^8. Later sums may be 2^8 times larger, and values down to 2^-22 keep 11
// bits. Looking for the largest value each time took as long as all the rest of saving. What is too
// large after all becomes infinite and shows in `bad`: the result is not wanted then. All sums of a
// tile are saved in one `unit`, that of products that are read in place: planes may be 2^20 larger.
struct Scale {
  float factor = 0, inverse;  // 0: not known yet
  u32 bad = 0;

  template <class C>
  __device__ void find(const Accumulator<C>& acc, float unit) {
    if (factor != 0) return;
    float largest = 0;
#pragma unroll
    for (int i = 0; i < C::tile_n / 2; ++i) largest = fmaxf(largest, fabsf(acc[0][i]));
    largest *= unit;
    const int exponent = min(max(static_cast<int>(__float_as_uint(largest) >> 23), 16), 250);
    inverse = __uint_as_float((exponent - 7) << 23);
    factor = largest == 0 ? 0 : __uint_as_float((261 - exponent) << 23);
  }
};

template <class C>
__device__ void rescale(Accumulator<C>& acc, float factor) {
#pragma unroll
  for (int i = 0; i < C::tile_n / 2; ++i) acc[0][i] *= factor;
}

// A slot: [vector][thread of both consumers], then each thread's scale.
template <class C>
__device__ char* slot_of(const Consumer<C>& consumer, int number) {
  return consumer.scratch + number * C::slot_bytes;
}

template <class C>
constexpr int vector_pitch = C::consumers * 128 * 16;

template <class C>
__device__ char* vectors_in(char* slot, const Consumer<C>& consumer) {
  return slot + (consumer.group * 128 + consumer.thread) * 16;
}

template <class C>
__device__ float* scale_in(char* slot, const Consumer<C>& consumer) {
  return reinterpret_cast<float*>(slot + Box<C>::vectors * vector_pitch<C>) +
         consumer.group * 128 + consumer.thread;
}

template <class C>
__device__ u32 packed(const Accumulator<C>& acc, int pair, float factor) {
  return f16::pack(acc[0][2 * pair] * factor, acc[0][2 * pair + 1] * factor);
}

template <class C>
__device__ void pack(Box<C>& box, const Accumulator<C>& acc, Scale& scale, float unit) {
  scale.find<C>(acc, unit);
  box.unscale = scale.inverse;
  const float factor = scale.factor * unit;
#pragma unroll
  for (int i = 0; i < C::tile_n / 4; ++i) box.pair[i] = packed<C>(acc, i, factor);
}

template <class C>
__device__ void write_vector(char* slot, const Consumer<C>& consumer, int v, uint4 pairs) {
  char* place = vectors_in(slot, consumer) + v * vector_pitch<C>;
  store_vector(reinterpret_cast<uint4*>(place), pairs);
}

// One of several parts of what was packed.
template <int part, int parts, class C>
__device__ void write(const Box<C>& box, char* slot, const Consumer<C>& consumer, Scale& scale) {
  constexpr int vectors = Box<C>::vectors / parts;
  u32 most = 0;
#pragma unroll
  for (int v = part * vectors; v < (part + 1) * vectors; ++v) {
    const u32* pair = &box.pair[v * 4];
#pragma unroll
    for (int i = 0; i < 4; ++i) most = largest(most, pair[i]);
    write_vector(slot, consumer, v, {pair[0], pair[1], pair[2], pair[3]});
  }
  scale.bad |= not_finite(most);
  if constexpr (part == parts - 1) *scale_in(slot, consumer) = box.unscale;
}

// All at once, where the box is full.
template <class C>
__device__ void save_now(const Consumer<C>& consumer, int number, const Accumulator<C>& acc,
                         Scale& scale, float unit) {
  scale.find<C>(acc, unit);
  const float factor = scale.factor * unit;
  char* slot = slot_of(consumer, number);
  u32 most = 0;
#pragma unroll
  for (int v = 0; v < Box<C>::vectors; ++v) {
    u32 pair[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pair[i] = packed<C>(acc, 4 * v + i, factor);
      most = largest(most, pair[i]);
    }
    write_vector(slot, consumer, v, {pair[0], pair[1], pair[2], pair[3]});
  }
  scale.bad |= not_finite(most);
  *scale_in(slot, consumer) = scale.inverse;
}

// Into the box, where a slot is given; without a branch, since the tensor cores work meanwhile.
template <class C>
__device__ void fetch(const Consumer<C>& consumer, int number, bool wanted, Box<C>& box) {
  char* slot = slot_of(consumer, number);
#pragma unroll
  for (int v = 0; v < Box<C>::vectors; ++v)
    global_load_if(wanted, vectors_in(slot, consumer) + v * vector_pitch<C>, &box.pair[v * 4]);
  global_load_if(wanted, scale_in(slot, consumer), box.unscale);
}

// acc (=|+=) factor · what was fetched
template <From from, class C>
__device__ void load(Accumulator<C>& acc, const Box<C>& box, float factor) {
  factor *= box.unscale;
#pragma unroll
  for (int i = 0; i < C::tile_n / 4; ++i) {
    float &low = acc[0][2 * i], &high = acc[0][2 * i + 1];
    const u32 pair = box.pair[i];
    low = from == From::zero ? f16::low(pair) * factor : fmaf(f16::low(pair), factor, low);
    high = from == From::zero ? f16::high(pair) * factor : fmaf(f16::high(pair), factor, high);
  }
}
