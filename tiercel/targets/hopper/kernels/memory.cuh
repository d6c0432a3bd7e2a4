// Accesses to memory by threads, one function per PTX instruction: what others see and when, copies to
// shared memory, and loads and stores that C++ has no words for.
#pragma once
#include "types.cuh"

// ---- Order ----------------------------------------------------------------------------------

// What this thread has seen or written is seen before the addition, by all of the GPU. A fence would
// also empty L1.
__device__ inline int release_add(int* to, int x) {
  int before;
  asm volatile("atom.release.gpu.global.add.s32 %0, [%1], %2;"
               : "=r"(before) : "l"(to), "r"(x) : "memory");
  return before;
}

template <class Word>
__device__ Word acquire_load(const Word* from) {
  Word x;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}

// The same addition of 1 where nobody asks what was there.
__device__ inline void count_up(int* counter) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
}

// Between two looks at a counter: whoever only waits leaves L2 and issue slots to those who multiply.
__device__ inline void pause() { asm volatile("nanosleep.u32 100;" ::: "memory"); }

// What others released is seen from here on.
__device__ inline void acquire_fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// Ordinary accesses before, accesses of TMA or the tensor cores after. The general form waits for
// the whole GPU's memory; of shared memory it costs a few cycles.
__device__ inline void proxy_fence() { asm volatile("fence.proxy.async;" ::: "memory"); }
__device__ inline void proxy_fence_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- Asynchronous copies to shared memory -----------------------------------------------------

// Zeros where it does not exist.
__device__ inline void async_copy(u32 target, const uint4* source, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               ::"r"(target), "l"(source), "r"(exists ? 16 : 0) : "memory");
}

__device__ inline void async_copy(u32 target, const uint2* source, bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
               ::"r"(target), "l"(source), "r"(exists ? 8 : 0) : "memory");
}

__device__ inline void async_copy_word(u32 target, const void* source) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(target), "l"(source) : "memory");
}

// This thread arrives at the barrier when all of its copies so far have.
__device__ inline void async_copy_arrive(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

__device__ inline void async_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int pending>
__device__ inline void async_copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// ---- Global memory --------------------------------------------------------------------------

// The 128 bytes around an address, into L2.
__device__ inline void prefetch_line(const void* source) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(source) : "memory");
}

__device__ inline uint4 load_once(const uint4* source) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(source));
  return v;
}

__device__ inline void store_vector(uint2* target, uint2 v) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(target), "r"(v.x), "r"(v.y) : "memory");
}

__device__ inline void store_vector(uint4* target, uint4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
               ::"l"(target), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

__device__ inline void global_store(float4* to, float a, float b, float c, float d) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};"
               ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

// From L2: what another multiprocessor has written.
__device__ inline void global_load_l2(const float4* from, float (&to)[4]) {
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]) : "l"(from) : "memory");
}

// What this thread has written itself. `to` keeps its value where it is not wanted.
__device__ inline void global_load_if(bool wanted, const void* source, u32* to) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.s32 wanted, %5, 0;\n"
      "@wanted ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
      "}"
      : "+r"(to[0]), "+r"(to[1]), "+r"(to[2]), "+r"(to[3])
      : "l"(source), "r"(static_cast<int>(wanted))
      : "memory");
}

__device__ inline void global_load_if(bool wanted, const float* source, float& to) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.s32 wanted, %2, 0;\n"
      "@wanted ld.global.f32 %0, [%1];\n"
      "}" : "+f"(to) : "l"(source), "r"(static_cast<int>(wanted)) : "memory");
}

// ---- Shared memory --------------------------------------------------------------------------

// Four 8×8 matrices of 16-bit pairs; lane 8·i + r gives the address of row r of matrix i.
__device__ inline void stmatrix_x4(u32 address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};"
               ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// The reverse.
__device__ inline void ldmatrix_x4(u32 address, u32& a, u32& b, u32& c, u32& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address) : "memory");
}

__device__ inline float2 shared_load_pair(u32 address) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
  return x;
}

__device__ inline u32 shared_load_word(u32 address) {
  u32 x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}

// The same place in the shared memory of another CTA of the cluster, and a store there that counts
// its bytes at a barrier of that CTA: no fence is needed.
__device__ inline u32 shared_address_of(u32 address, u32 cta) {
  u32 remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(cta));
  return remote;
}

__device__ inline void remote_store(u32 address, u32 barrier, float a, float b, float c, float d) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, [%1];"
      ::"r"(address), "r"(barrier), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

__device__ inline void shared_store(u32 address, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

__device__ inline void shared_store(u32 address, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}

__device__ inline void shared_store(u32 address, u16 x) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(x) : "memory");
}

__device__ inline void shared_store(u32 address, u32 x, u32 y, u32 z, u32 w) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
               ::"r"(address), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
}

__device__ inline uint4 shared_load(u32 address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address) : "memory");
  return v;
}

__device__ inline void shared_load(u32 address, uint4& v) { v = shared_load(address); }

__device__ inline void shared_load(u32 address, uint2& v) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
}
