// Timestamps of the warp groups, for `tiercel trace`; nothing at all in a kernel that is not traced.
#pragma once
#include "types.cuh"

// What begins at a timestamp; ../tracing/recording.py has the same list. `want` and `have` are of a stage
// of the ring: the producer wants it empty, a consumer wants it full.
enum class Mark : u32 { turn, row, column, want, have, drain, epilogue, free, fill, sent, done };

// One thread of each warp group writes, 64 bits a mark: clock · 2^24 + value · 2^8 + mark. What does
// not fit into `capacity` marks is left out.
template <bool on>
struct Trace {
  struct Params {};
  template <class P>
  __device__ Trace(const P&, int, bool) {}
  __device__ Trace() {}
  __device__ void mark(Mark, int = 0) {}
  template <class P>
  static __device__ void clocks(const P&, int) {}
};

template <>
struct Trace<true> {
  struct Params {
    u64* marks;   // [CTA][warp group][capacity], all bits set where nothing is written
    u64* times;   // [CTA][multiprocessor, (clock, nanoseconds) at the start and at the end]
    int capacity;
  };
  u64* next = nullptr;
  u64* end = nullptr;

  __device__ Trace() {}
  template <class P>
  __device__ Trace(const P& params, int warp_group, bool writes) {
    if (!writes) return;
    next = params.trace.marks + (u64(blockIdx.x) * 3 + warp_group) * params.trace.capacity;
    end = next + params.trace.capacity;
  }

  __device__ void mark(Mark what, int value = 0) {
    if (next >= end) return;  // a thread that does not write has neither
    *next++ = u64(clock64()) << 24 | u64(value & 0xffff) << 8 | static_cast<u32>(what);
  }

  // By one thread, at the start (0) and at the end (1): multiprocessors' clocks differ.
  template <class P>
  static __device__ void clocks(const P& params, int when) {
    u64* to = params.trace.times + u64(blockIdx.x) * 5;
    u32 multiprocessor;
    u64 nanoseconds;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    to[0] = multiprocessor;
    to[1 + 2 * when] = u64(clock64()) & ((u64(1) << 40) - 1);
    to[2 + 2 * when] = nanoseconds;
  }
};
