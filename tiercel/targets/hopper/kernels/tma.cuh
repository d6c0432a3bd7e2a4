// The Tensor Memory Accelerator: copies of boxes between global and shared memory, by one thread.
#pragma once
#include "types.cuh"

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
