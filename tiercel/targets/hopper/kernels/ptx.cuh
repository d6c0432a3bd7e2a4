// One function per PTX instruction. Shared memory is addressed by its 32-bit shared address.
#pragma once
#include "types.cuh"

__device__ inline u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

__device__ inline u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// All threads of the cluster have come here; says nothing about what they wrote. `cluster_sync` waits
// for the whole GPU's memory.
__device__ inline void cluster_meet() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// Programmatic dependent launch: this kernel's start overlaps the end of the previous one.
__device__ inline void wait_for_previous_kernel() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ inline void start_next_kernel() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// ---- mbarrier -------------------------------------------------------------------------------

__device__ inline void mbarrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ inline void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void mbarrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ inline void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrive at the same barrier of another CTA of the cluster. Unqualified on purpose:
// `.release.cluster` compiles to a fence of the whole GPU (590 instead of 790 TFLOP/s).
__device__ inline void mbarrier_arrive(u32 barrier, u32 cta) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(barrier), "r"(cta) : "memory");
}

__device__ inline void mbarrier_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier), "r"(parity) : "memory");
}

// ---- Tensor Memory Accelerator --------------------------------------------------------------

__device__ inline void tma_prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Box at (x, y, z), x contiguous, into the shared memory of this CTA.
__device__ inline void tma_load(u32 target, const TensorMap& map, u32 barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];"
      ::"r"(target), "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z) : "memory");
}

// The same box into every CTA of `mask`; each one's own barrier counts its bytes.
__device__ inline void tma_load_multicast(
    u32 target, const TensorMap& map, u32 barrier, int x, int y, int z, u16 mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;"
      ::"r"(target), "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(mask) : "memory");
}

// The box at (x, y) of a block in a grid of them, which an array of four dimensions describes.
__device__ inline void tma_load_of_grid(u32 target, const TensorMap& map, u32 barrier, int x, int y,
                                        int across, int down) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %5, %4, %6}], [%2];"
      ::"r"(target), "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(across), "r"(down) : "memory");
}

__device__ inline void tma_load_of_grid_multicast(u32 target, const TensorMap& map, u32 barrier, int x,
                                                  int y, int across, int down, u16 mask) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %5, %4, %6}], [%2], %7;"
      ::"r"(target), "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(across), "r"(down), "h"(mask)
      : "memory");
}

// Rows in groups of 32, from group `group` on, of an array that is described in five dimensions.
__device__ inline void tma_load_groups(u32 target, const TensorMap& map, u32 barrier, int x,
                                       int group) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %5, %5, %5, %4}], [%2];"
      ::"r"(target), "l"(&map), "r"(barrier), "r"(x), "r"(group), "r"(0) : "memory");
}

__device__ inline void tma_load_groups_multicast(u32 target, const TensorMap& map, u32 barrier,
                                                 int x, int group, u16 mask) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %5, %5, %5, %4}], [%2], %6;"
      ::"r"(target), "l"(&map), "r"(barrier), "r"(x), "r"(group), "r"(0), "h"(mask) : "memory");
}

// The 128 bytes around an address, into L2.
__device__ inline void prefetch_line(const void* source) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(source) : "memory");
}

__device__ inline void tma_store(const TensorMap& map, u32 source, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];"
      ::"l"(&map), "r"(source), "r"(x), "r"(y), "r"(z) : "memory");
}

__device__ inline void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Wait until at most `pending` of this thread's stores still read their shared memory.
template <int pending>
__device__ inline void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

template <int pending>
__device__ inline void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

// What this thread has seen or written is seen before the addition, by all of the GPU. A fence would
// also empty L1.
__device__ inline int release_add(int* to, int x) {
  int before;
  asm volatile("atom.release.gpu.global.add.s32 %0, [%1], %2;"
               : "=r"(before) : "l"(to), "r"(x) : "memory");
  return before;
}

__device__ inline int acquire_load(const int* from) {
  int x;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}

// What others released is seen from here on.
__device__ inline void acquire_fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// Ordinary accesses before, accesses of TMA or the tensor cores after. The general form waits for
// the whole GPU's memory; of shared memory it costs a few cycles.
__device__ inline void proxy_fence() { asm volatile("fence.proxy.async;" ::: "memory"); }
__device__ inline void proxy_fence_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- Copies by a thread, 16 bytes each --------------------------------------------------------

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

// ---- Warp groups ----------------------------------------------------------------------------

template <int registers>
__device__ inline void registers_grow() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers>
__device__ inline void registers_shrink() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

__device__ inline void named_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ inline void named_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int pending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

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
