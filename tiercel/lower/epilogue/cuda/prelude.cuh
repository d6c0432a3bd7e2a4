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

// In 32 bits, which are enough beside the index of a column: beyond them there is none.
__device__ __forceinline__ int beside_index(int x) { return x; }
__device__ __forceinline__ int beside_index(long long x) {
  return static_cast<int>(x < -0x7fffffff ? -0x7fffffff : x > 0x7fffffff ? 0x7fffffff : x);
}

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

// The first integer from x on, and the last up to x: an index is compared with a number as with these.
__device__ __forceinline__ int first_from(float x) { return __float2int_ru(x); }
__device__ __forceinline__ int last_up_to(float x) { return __float2int_rd(x); }

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

// Lanes of 16 bits in a register for each two, until they are used: values that are loaded long before
// then cost half the registers.
template <class T, int L> struct alignas(2 * L) Packed {
  unsigned word[L / 2];
  __device__ __forceinline__ float operator[](int i) const {
    const unsigned both = word[i / 2];
    return widened(T{static_cast<unsigned short>(i % 2 ? both >> 16 : both)});
  }
};

template <class T, int L>
__device__ __forceinline__ void load_lanes(Packed<T, L>& to, const T* from) {
  to = *reinterpret_cast<const Packed<T, L>*>(from);
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

// Of four lanes, the i-th value of lane q to the q-th of lane i.
__device__ __forceinline__ void across_four(float (&x)[4]) {
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
  float a = __shfl_xor_sync(0xffffffffu, odd ? x[0] : x[1], 1);
  float b = __shfl_xor_sync(0xffffffffu, odd ? x[2] : x[3], 1);
  if (odd) x[0] = a, x[2] = b;
  else x[1] = a, x[3] = b;
  a = __shfl_xor_sync(0xffffffffu, upper ? x[0] : x[2], 2);
  b = __shfl_xor_sync(0xffffffffu, upper ? x[1] : x[3], 2);
  if (upper) x[0] = a, x[1] = b;
  else x[2] = a, x[3] = b;
}

// `count` adjacent elements on their way to L2; without the parts of chunks of 16 bytes at the ends.
template <class T> __device__ __forceinline__ void prefetch(const T* from, int count) {
  const unsigned long long begin = (reinterpret_cast<unsigned long long>(from) + 15) & ~15ull;
  const unsigned long long end = reinterpret_cast<unsigned long long>(from + count) & ~15ull;
  if (begin < end)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
                 ::"l"(begin), "r"(static_cast<unsigned>(end - begin)));
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

// Of several values, in four chains: few instructions depend on each other, and a sum of products is
// one of fused multiply-adds (in pairs, half of them would be multiplied and added apart).
template <int L, class Operation>
__device__ __forceinline__ float folded(const float (&x)[L], float neutral, Operation both) {
  float y[4] = {neutral, neutral, neutral, neutral};
#pragma unroll
  for (int i = 0; i < L; ++i) y[i % 4] = i < 4 ? x[i] : both(y[i % 4], x[i]);
  return both(both(y[0], y[1]), both(y[2], y[3]));
}

template <int L> __device__ __forceinline__ float sum_of(const float (&x)[L]) {
  return folded(x, 0.0f, [](float a, float b) { return a + b; });
}

template <int L> __device__ __forceinline__ float largest_of(const float (&x)[L]) {
  return folded(x, -infinity(), [](float a, float b) { return maximum(a, b); });
}

// The hardware's 2^x and 1/x, results below 2^-126 as 0: within 2 units in the last place of float32.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 4 instructions; 7 with __expf and __fdividef, 15 with expf, 50 with an IEEE division too.
__device__ __forceinline__ float sigmoid(float x) {
  return reciprocal_fast(1.0f + exp2_fast(-1.44269504f * x));
}

// 26 instructions; 48 with erfcf and 61 with normcdff, which keep the relative error of the lower
// tail. Here the absolute error is that of a float near 1/2, as in PyTorch.
__device__ __forceinline__ float normal_cdf(float x) {
  return 0.5f + 0.5f * erff(0.70710678f * x);
}

// For results that are rounded to 16 bits: 12 instructions, relative error 3.6e-4 down to -5 (half a
// unit in the last place of float16 is 4.9e-4), absolute error below 1e-6 beyond. The logit of the
// distribution function is an odd function; -log2(e) times it over x is fitted by a polynomial of
// x^2 on [0, 25], minimax in that relative error.
__device__ __forceinline__ float normal_cdf16(float x) {
  const float square = fminf(x * x, 25.0f);
  float q = 2.7590838e-08f;
  q = fmaf(q, square, -1.9491029e-06f);
  q = fmaf(q, square, 3.6518475e-05f);
  q = fmaf(q, square, 8.8197883e-04f);
  q = fmaf(q, square, -1.0705288e-01f);
  q = fmaf(q, square, -2.300325f);
  return reciprocal_fast(1.0f + exp2_fast(q * x));
}

// For results of 8 significant bits: 8 instructions, relative error 1.1e-3 down to -5 (half a unit in the
// last place of bfloat16 is 2.0e-3 at least). The last coefficient leads to the right limits by itself.
__device__ __forceinline__ float normal_cdf8(float x) {
  const float square = x * x;
  float q = -1.3276555e-05f;
  q = fmaf(q, square, 1.4344137e-03f);
  q = fmaf(q, square, -1.0953648e-01f);
  q = fmaf(q, square, -2.2971657f);
  return reciprocal_fast(1.0f + exp2_fast(q * x));
}

// ---- Online log-sum-exp ------------------------------------------------------------------------

// log of the sum of exp(x) over the x seen so far is largest + log(sum).
struct alignas(8) LogSumExp {
  float largest = -infinity();
  float sum = 0.0f;
};

// As a power of 2. Rounded, and never fused into a sum: it must be the same number wherever the same
// `largest` is meant.
__device__ __forceinline__ float in_base_2(float largest) { return __fmul_rn(1.44269504f, largest); }

// What powers are taken relative to: inf - inf would be NaN.
__device__ __forceinline__ float finite(float power) {
  return fabsf(power) == infinity() ? 0.0f : power;
}

// All values at once: what was summed before is rescaled once. exp2_fast: its error grows with |x| as
// fast as exp(x) falls, so it never shows in the sum.
template <int L> __device__ __forceinline__ void fold(LogSumExp& state, const float (&x)[L]) {
  const float largest = maximum(state.largest, largest_of(x));
  const float base = finite(in_base_2(largest));
  float powers[L];
#pragma unroll
  for (int i = 0; i < L; ++i) powers[i] = exp2_fast(fmaf(1.44269504f, x[i], -base));
  const float before = state.sum * exp2_fast(in_base_2(state.largest) - base);
  state = LogSumExp{largest, before + sum_of(powers)};
}

__device__ __forceinline__ void merge(LogSumExp& into, const LogSumExp& other) {
  const float largest = maximum(into.largest, other.largest);
  const float base = finite(in_base_2(largest));
  into.sum = into.sum * exp2_fast(in_base_2(into.largest) - base) +
             other.sum * exp2_fast(in_base_2(other.largest) - base);
  into.largest = largest;
}

__device__ __forceinline__ float finished(const LogSumExp& x) { return x.largest + logf(x.sum); }

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

// From L2: another multiprocessor may have written it while this kernel ran.
__device__ __forceinline__ float load_partial(const Array<float>& from, int batch, int row,
                                              int column) {
  return __ldcg(from.data + batch * from.batch + row * from.row + column * from.column);
}

__device__ __forceinline__ LogSumExp load_partial(const Array<LogSumExp>& from, int batch, int row,
                                                  int column) {
  const LogSumExp* at = from.data + batch * from.batch + row * from.row + column * from.column;
  const float2 both = __ldcg(reinterpret_cast<const float2*>(at));
  return LogSumExp{both.x, both.y};
}

}  // namespace tiercel
