// What generated epilogues are made of: storage types, loads and stores of lanes, and the few
// operations that CUDA C++ has no single function for. No header is included, so that NVRTC
// compiles this in milliseconds.
#pragma once

namespace tiercel {

// Storage types. Arithmetic is in float; these only hold bits.
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
struct e4m3 { unsigned char bits; };
struct e5m2 { unsigned char bits; };

// ---- Conversions ---------------------------------------------------------------------------

__device__ __forceinline__ float widened(float x) { return x; }
__device__ __forceinline__ float widened(double x) { return static_cast<float>(x); }
__device__ __forceinline__ int widened(int x) { return x; }
__device__ __forceinline__ long long widened(long long x) { return x; }

__device__ __forceinline__ float widened(bf16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}

__device__ __forceinline__ float widened(f16 x) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
  return value;
}

__device__ __forceinline__ float widened(e4m3 x) {
  unsigned halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<unsigned short>(x.bits)));
  return widened(f16{static_cast<unsigned short>(halves)});
}

__device__ __forceinline__ float widened(e5m2 x) {
  // The upper byte of a half: same exponent, two bits of fraction.
  return widened(f16{static_cast<unsigned short>(x.bits << 8)});
}

template <class T> __device__ __forceinline__ T narrowed(float x);

template <> __device__ __forceinline__ float narrowed<float>(float x) { return x; }
template <> __device__ __forceinline__ double narrowed<double>(float x) { return x; }

template <> __device__ __forceinline__ bf16 narrowed<bf16>(float x) {
  bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}

template <> __device__ __forceinline__ f16 narrowed<f16>(float x) {
  f16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}

template <> __device__ __forceinline__ e4m3 narrowed<e4m3>(float x) {
  unsigned short two;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(x));
  return e4m3{static_cast<unsigned char>(two)};
}

template <> __device__ __forceinline__ e5m2 narrowed<e5m2>(float x) {
  unsigned short two;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(x));
  return e5m2{static_cast<unsigned char>(two)};
}

// x as T would hold it: what a cast in the epilogue does.
template <class T> __device__ __forceinline__ float rounded(float x) {
  return widened(narrowed<T>(x));
}

// ---- Arrays ------------------------------------------------------------------------------------

// Strides count elements. An array that has no such axis, or repeats along it, leaves it unused.
template <class T> struct Array { T* data; long long batch, row, column; };

// An operand of `period` columns that repeats along the columns of the product.
template <class T> struct Repeated { T* data; long long batch, row, column; unsigned period; };

// ---- Lanes: the adjacent elements that one call reads or writes ------------------------------

template <class T, int L> struct alignas(sizeof(T) * L) Lanes { T lane[L]; };

// Aligned lanes: one access.
template <class T, int L, class V>
__device__ __forceinline__ void load_lanes(V (&to)[L], const T* from) {
  const Lanes<T, L> all = *reinterpret_cast<const Lanes<T, L>*>(from);
#pragma unroll
  for (int i = 0; i < L; ++i) to[i] = widened(all.lane[i]);
}

template <class T, int L>
__device__ __forceinline__ void store_lanes(T* to, const float (&from)[L]) {
  Lanes<T, L> all;
#pragma unroll
  for (int i = 0; i < L; ++i) all.lane[i] = narrowed<T>(from[i]);
  *reinterpret_cast<Lanes<T, L>*>(to) = all;
}

// Lanes of any stride, of which the first `valid` exist; the others read as zero.
template <class T, int L, class V>
__device__ __forceinline__ void load_lanes(V (&to)[L], const T* from, long long stride, int valid) {
#pragma unroll
  for (int i = 0; i < L; ++i) to[i] = i < valid ? widened(from[i * stride]) : V(0);
}

template <class T, int L>
__device__ __forceinline__ void store_lanes(T* to, const float (&from)[L], long long stride,
                                            int valid) {
#pragma unroll
  for (int i = 0; i < L; ++i)
    if (i < valid) to[i * stride] = narrowed<T>(from[i]);
}

// ---- Arithmetic --------------------------------------------------------------------------------

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

// NaN if either argument is, as NumPy and PyTorch have it; fmaxf drops it.
__device__ __forceinline__ float maximum(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

__device__ __forceinline__ float minimum(float a, float b) {
  float c;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

// 7 instructions; 15 with expf, 50 with an IEEE division too. __expf is off by up to 2 + 1.2 |x|
// units in the last place of float32.
__device__ __forceinline__ float sigmoid(float x) {
  return __fdividef(1.0f, 1.0f + __expf(-x));
}

// 26 instructions; 48 with erfcf and 61 with normcdff, which keep the relative error of the lower
// tail. Here the absolute error is that of a float near 1/2, as in PyTorch.
__device__ __forceinline__ float normal_cdf(float x) {
  return 0.5f + 0.5f * erff(0.70710678f * x);
}

// ---- Online log-sum-exp ------------------------------------------------------------------------

// log of the sum of exp(x) over the x seen so far is largest + log(sum).
struct alignas(8) LogSumExp {
  float largest = -infinity();
  float sum = 0.0f;
};

// What exponents are taken relative to: inf - inf would be NaN.
__device__ __forceinline__ float finite_base(float largest) {
  return fabsf(largest) == infinity() ? 0.0f : largest;
}

// __expf: its error grows with |x| as fast as exp(x) falls, so it never shows in the sum.
template <int L> __device__ __forceinline__ void fold(LogSumExp& state, const float (&x)[L]) {
  float largest = state.largest;
#pragma unroll
  for (int i = 0; i < L; ++i) largest = maximum(largest, x[i]);
  const float base = finite_base(largest);
  float sum = state.sum * __expf(state.largest - base);
#pragma unroll
  for (int i = 0; i < L; ++i) sum += __expf(x[i] - base);
  state = LogSumExp{largest, sum};
}

__device__ __forceinline__ void merge(LogSumExp& into, const LogSumExp& other) {
  const float largest = maximum(into.largest, other.largest);
  const float base = finite_base(largest);
  into.sum = into.sum * __expf(into.largest - base) + other.sum * __expf(other.largest - base);
  into.largest = largest;
}

// ---- Partial results across the threads of a warp, and to memory --------------------------------

__device__ __forceinline__ float from_lane(float x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}

__device__ __forceinline__ LogSumExp from_lane(const LogSumExp& x, int mask) {
  return LogSumExp{from_lane(x.largest, mask), from_lane(x.sum, mask)};
}

template <class T>
__device__ __forceinline__ void store_partial(const Array<T>& to, int batch, int row, int column,
                                              const T& x) {
  to.data[batch * to.batch + row * to.row + column * to.column] = x;
}

}  // namespace tiercel
