// The values of a vector of operand elements, and vectors of plane elements from sums of them.
#pragma once
#include "types.cuh"

// Non-zero where a half of a pair of float16 has all of its exponent bits: inf or NaN. A block of
// the operand that is not finite shows in every sum that it is part of.
__device__ inline u32 not_finite(u32 pair) {
  return (pair & 0x7fff7fffu) + 0x04000400u & 0x80008000u;
}

template <class Vector>
constexpr int words = sizeof(Vector) / 4;

// The values of a vector, as floats, and a vector of plane elements from floats: float16 planes of
// 16-bit operands, float32 planes of float32.
template <class Element, class Vector = uint4>
struct Values {
  static constexpr int count = 2 * words<Vector>;
  static __device__ float at(const Vector& v, int i) {
    const u32 both = (&v.x)[i / 2];
    return i % 2 ? Element::high(both) : Element::low(both);
  }
  static __device__ Vector pack(const float (&x)[count], u32& bad) {
    Vector v;
#pragma unroll
    for (int i = 0; i < words<Vector>; ++i) {
      (&v.x)[i] = f16::pack(x[2 * i], x[2 * i + 1]);
      bad |= not_finite((&v.x)[i]);
    }
    return v;
  }
};

template <class Vector>
struct Values<tf32, Vector> {
  static constexpr int count = words<Vector>;
  static __device__ float at(const Vector& v, int i) { return __uint_as_float((&v.x)[i]); }
  static __device__ Vector pack(const float (&x)[count], u32& bad) {
    Vector v;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      (&v.x)[i] = __float_as_uint(x[i]);
      bad |= ((&v.x)[i] & 0x7fffffffu) >= 0x7f800000u;
    }
    return v;
  }
};

// float8 planes of float8. Sums are taken in float16, whose 11 bits are enough beside the planes' 4.
template <class Vector>
struct Values<e4m3, Vector> {
  static constexpr int count = 4 * words<Vector>;
  static __device__ u32 pair(const Vector& v, int i) {
    return e4m3::to_f16(static_cast<u16>((&v.x)[i / 2] >> i % 2 * 16));
  }
  static __device__ float at(const Vector& v, int i) {
    return i % 2 ? f16::high(pair(v, i / 2)) : f16::low(pair(v, i / 2));
  }
  template <class Sums, int plane, int blocks>
  static __device__ Vector combined(const Vector (&in)[blocks], float scale, u32& bad) {
    Vector v;
#pragma unroll
    for (int word = 0; word < words<Vector>; ++word) {
      u32 half[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        f16x2 block[blocks];
#pragma unroll
        for (int j = 0; j < blocks; ++j) block[j].pair = pair(in[j], 2 * word + i);
        half[i] = e4m3::from_f16((scale * Sums::template plane<plane>(block)).pair);
      }
      const u32 out = (&v.x)[word] = half[0] | half[1] << 16;
      bad |= (out & 0x7f7f7f7fu) + 0x01010101u & 0x80808080u;  // NaN: all other bits set
    }
    return v;
  }
};
