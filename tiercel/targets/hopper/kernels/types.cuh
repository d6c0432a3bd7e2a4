// Element types and the 128-byte tensor map, without any CUDA header: NVRTC then compiles in 0.3 s.
#pragma once

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// A TMA descriptor, filled by cuTensorMapEncodeTiled on the host and only passed on here.
struct alignas(64) TensorMap {
  u64 opaque[16];
};

// 16-bit elements are only ever converted in pairs: `pack` puts `low` at the lower address.
struct bf16 {
  u16 bits;
  static __device__ u32 pack(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
  }
  static __device__ float low(u32 both) { return __uint_as_float(both << 16); }
  static __device__ float high(u32 both) { return __uint_as_float(both & 0xffff0000u); }
  static __device__ u32 to_f16(u32 both);
  // By powers of two, exactly.
  static __device__ u32 times(u32 both, u32 factors) {
    u32 product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(both), "r"(factors));
    return product;
  }
};

struct f16 {
  u16 bits;
  static __device__ u32 pack(float low, float high) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
  }
  static __device__ float low(u32 both) { return widen(both & 0xffffu); }
  static __device__ float high(u32 both) { return widen(both >> 16); }
  static __device__ u32 to_f16(u32 both) { return both; }

 private:
  static __device__ float widen(u32 half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<u16>(half)));
    return value;
  }
};

__device__ inline u32 bf16::to_f16(u32 both) { return f16::pack(low(both), high(both)); }

// Operands only: names for instructions.
struct tf32 {
  u32 bits;
};
struct e4m3 {
  unsigned char bits;
  // Of pairs, to float16, which holds all of them, and back, rounded; NaN stays NaN.
  static __device__ u32 to_f16(u16 both) {
    u32 pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(both));
    return pair;
  }
  static __device__ u16 from_f16(u32 pair) {
    u16 both;
    asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(both) : "r"(pair));
    return both;
  }
};
struct e5m2 {
  unsigned char bits;
};

// Two float16 values that are computed with.
struct f16x2 {
  u32 pair;
  friend __device__ f16x2 operator+(f16x2 a, f16x2 b) {
    f16x2 c;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(c.pair) : "r"(a.pair), "r"(b.pair));
    return c;
  }
  friend __device__ f16x2 operator-(f16x2 a, f16x2 b) {
    f16x2 c;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(c.pair) : "r"(a.pair), "r"(b.pair));
    return c;
  }
  friend __device__ f16x2 operator-(f16x2 a) {
    f16x2 c;
    asm("neg.f16x2 %0, %1;" : "=r"(c.pair) : "r"(a.pair));
    return c;
  }
  friend __device__ f16x2 operator*(float factor, f16x2 a) {
    f16x2 c;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(c.pair) : "r"(f16::pack(factor, factor)), "r"(a.pair));
    return c;
  }
};

// By instructions of this type, which ptxas makes part of those that follow.
__device__ inline f16x2 absolute(f16x2 a) {
  f16x2 c;
  asm("abs.f16x2 %0, %1;" : "=r"(c.pair) : "r"(a.pair));
  return c;
}

// The lower, or the upper, halves of two pairs.
__device__ inline f16x2 lower(f16x2 a, f16x2 b) { return {__byte_perm(a.pair, b.pair, 0x5410)}; }
__device__ inline f16x2 upper(f16x2 a, f16x2 b) { return {__byte_perm(a.pair, b.pair, 0x7632)}; }

// Of each half, where neither is negative; of the smaller ones a number wins over NaN.
__device__ inline f16x2 larger(f16x2 a, f16x2 b) {
  f16x2 c;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(c.pair) : "r"(a.pair), "r"(b.pair));
  return c;
}
__device__ inline f16x2 smaller(f16x2 a, f16x2 b) {
  f16x2 c;
  asm("min.f16x2 %0, %1, %2;" : "=r"(c.pair) : "r"(a.pair), "r"(b.pair));
  return c;
}

// max(|a|, |b|) of each half; NaN wins.
__device__ inline u32 largest(u32 a, u32 b) {
  u32 c;
  asm("{\n.reg .b32 x, y;\nabs.f16x2 x, %1;\nabs.f16x2 y, %2;\nmax.NaN.f16x2 %0, x, y;\n}"
      : "=r"(c) : "r"(a), "r"(b));
  return c;
}
