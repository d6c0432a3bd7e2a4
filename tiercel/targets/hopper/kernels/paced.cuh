// The producer of the classical product, which keeps pace with those of other clusters where the product
// is long: over 16384³ clusters had drifted apart, and read panels from DRAM again that L2 no longer held.
#pragma once
#include "pace.cuh"
#include "producer.cuh"

// Mirrored by ../products/paced.py. Nothing in a kernel whose clusters go on alone.
template <bool on>
struct PaceCounter {};

template <>
struct PaceCounter<true> {
  int* counter;  // 0 when the kernel begins
};

template <bool on>
struct Steps {
  template <class C, class P>
  static __device__ Steps of(const P&, u32) {
    return {};
  }
  __device__ void step() {}
  __device__ void stop() {}
};

template <>
struct Steps<true> {
  Pace pace;

  // One CTA of each cluster takes part.
  template <class C, class P>
  static __device__ Steps of(const P& params, u32 rank) {
    return {{params.paced.counter, rank == 0 ? static_cast<int>(gridDim.x) / C::cluster : 0}};
  }
  __device__ void step() { pace.step(); }
  __device__ void stop() { pace.stop(); }
};

template <class C>
struct PacedProducer : Producer<C> {
  [[no_unique_address]] Steps<C::paced> steps;

  // One product: all k-tiles of a plane of A and a plane of B at this tile.
  __device__ void multiply(const TensorMap& a, const TensorMap& b) {
#pragma unroll 1
    for (int k = 0; k < this->k_tiles; ++k) {
      steps.step();
      this->k_tile(a, b, this->backwards ? this->k_tiles - 1 - k : k);
    }
  }
};
