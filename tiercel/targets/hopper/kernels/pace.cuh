// Clusters that walk along K together read each panel from DRAM once, and from L2 afterwards. They drift
// apart, a little with each product, until L2 no longer holds what the last one needs: at 16384³ 31 GB
// were read from DRAM instead of 10.6.
#pragma once
#include "memory.cuh"

// A producer of each cluster counts the periods of k-tiles that it has begun, and goes on when all have.
struct Pace {
  static constexpr int period = 32, lead = 8;  // k-tiles; so many one may be ahead
  static constexpr int patience = 400;         // looks: whoever is very late is not waited for

  int* counter;
  int clusters;       // 0: this thread does not take part
  int begun = 0;      // k-tiles
  int seen = 0;       // of the counter
  bool holds = true;  // not while planes are waited for, by each cluster at another time: all would
                      // wait for each of them (1.074 instead of 1.128 at 8192 × 8192 × 28672)

  template <class C, class P>
  static __device__ Pace of(const P& p, u32 rank) {
    return {p.paced, p.paced != nullptr && rank == 0 ? static_cast<int>(gridDim.x) / C::cluster : 0};
  }

  // Before each k-tile. The counter is looked at a k-tile before it is needed.
  __device__ void step() {
    if (clusters == 0) return;
    const int at = begun++ % period;
    if (at == 0) add(1);
    if (at == lead - 1) look();
    if (at == lead && holds)
      for (int looks = 0; seen < goal() && looks < patience; ++looks) {
        pause();
        look();
      }
  }
  // Of a cluster that does something else while others go so many k-tiles.
  __device__ void skip(int k_tiles) const {
    if (clusters != 0) add((k_tiles + period - 1) / period);
  }
  // Nobody waits for this cluster any more, nor does it.
  __device__ void stop() {
    if (clusters != 0) add(1 << 22);
    clusters = 0;
  }

 private:
  __device__ int goal() const { return clusters * ((begun - 1) / period + 1); }
  __device__ void look() {
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  }
  __device__ void add(int periods) const {
    asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;" ::"l"(counter), "r"(periods) : "memory");
  }
};
