// Gains: powers of two that operands are multiplied by before they are combined, so that small data, too,
// suit a scheme. Each product leaves the gains that its data ask for to the next one of its kind.
#pragma once
#include "memory.cuh"

// The power of two that brings an operand into float16's range: what the data of the last product of
// its kind asked for. As bits of floats.
struct Gain {
  static constexpr float unheard = 16384, most = 0x1p42f;  // a step where data do not tell; the end

  u32* next;  // for the next product; null: gains stay 1
  u32* used;  // of this product, 0 until somebody asks, whatever other streams do to `next`; null: 1

  __device__ float value() const {
    u32 bits = used == nullptr ? 0 : acquire_load(used);
    if (bits == 0 && next != nullptr) {
      const u32 mine = *const_cast<const volatile u32*>(next), first = atomicCAS(used, 0, mine);
      bits = first == 0 ? mine : first;
    }
    return bits == 0 ? 1.0f : __uint_as_float(bits);
  }

  // By the operand's record. Means near 1 stay as they are: 2^-6 is 2^7 above what is refused, and an
  // element is at most 128 times its segment's mean. The others become 1 to 2.
  __device__ float wanted(const u32* record) const {
    const float gain = value(), mean = __uint_as_float(record[0]);
    if (next == nullptr) return gain;
    if (record[2] != 0) return gain <= 1 / most ? 1 : gain / unheard;
    if (mean == 0) return gain >= most ? 1 : gain * unheard;
    if (mean >= 0x1p-6f && mean <= 0x1p6f) return 1;
    const int exponent = static_cast<int>(record[0] >> 23) - 127;
    return __uint_as_float((127 - min(max(exponent, -60), 60)) << 23);
  }
};
