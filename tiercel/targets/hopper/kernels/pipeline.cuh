// The ring of shared-memory stages between the producer thread and the consumer warp groups.
#pragma once
#include "grouped.cuh"
#include "ptx.cuh"
#include "trace.cuh"

// Byte offsets in dynamic shared memory, which is aligned to 1024 bytes (128-byte swizzle).
//   stages × (A tile | B tile) | output staging | items being combined | barriers | table of groups |
//   scales, of each stage or of each consumer's columns
//
// Each consumer stages its output apart, but where PingPong `brings` an operand of the epilogue to the
// same places: then they take turns.
template <class C>
struct Layout {
  static constexpr int row = 128;  // bytes of K per tile row: one swizzle span
  static constexpr int a_bytes = C::tile_m * row;
  static constexpr int b_bytes = C::tile_n * row;
  static constexpr int stage = a_bytes + b_bytes;
  static constexpr int staging = C::stages * stage;
  static constexpr int subtile = 64 * 128;    // 64 rows × 128 bytes of output
  static constexpr int subtiles_staged = C::subtiles_staged;  // 2: one is filled while one is stored
  static constexpr int areas = C::brings && C::pingpong ? 1 : C::consumers;
  static constexpr int area = C::brings ? C::operand_bytes : subtiles_staged * subtile;
  static constexpr int items = staging + areas * area;
  static constexpr int items_warp = 6 * 1024;
  static constexpr int barriers = items + (C::combines ? 3 * items_warp : 0);
  static constexpr int brought = barriers + 16 * C::stages;  // a barrier for each consumer
  static constexpr bool closes = C::Epilogue::closes && !C::pingpong;  // closing.cuh
  // Two barriers for each of a consumer's last tiles, or blocks of a scheme's output, whose rows idle
  // warps complete. These may be late where they combine planes at first.
  static constexpr int turns = C::postpones ? 8 : 1;
  static constexpr int rows = brought + (C::brings ? 8 * C::consumers : 0);
  static constexpr int groups = rows + (closes ? 16 * turns * C::consumers : 0);
  static constexpr int scales = groups + (C::grouped ? Groups::table_bytes : 0);
  // Rows of A, and columns of B or parts of them.
  static constexpr int scales_stage = (C::tile_m + (C::column_scales ? C::tile_n : 4)) * 4;
  static constexpr int bytes = scales + C::scale_bytes;
};

// A position in the ring. The phase flips each time the ring comes round.
template <class C>
struct Stage {
  int index = 0;
  u32 phase = 0;

  __device__ void advance() {
    if (++index == C::stages) {
      index = 0;
      phase ^= 1;
    }
  }
  __device__ void advance(int steps) {
    const int to = index + steps;
    phase ^= (to / C::stages) & 1;
    index = to % C::stages;
  }
};

template <class C>
struct Pipeline {
  u32 base;  // shared address of dynamic shared memory

  __device__ u32 a(int stage) const { return base + stage * Layout<C>::stage; }
  __device__ u32 b(int stage) const { return a(stage) + Layout<C>::a_bytes; }
  __device__ u32 full(int stage) const { return base + Layout<C>::barriers + 8 * stage; }
  __device__ u32 empty(int stage) const { return full(stage) + 8 * C::stages; }
  __device__ u32 brought(int consumer) const { return base + Layout<C>::brought + 8 * consumer; }
  __device__ u32 rows_left(int consumer, u32 number) const {
    return base + Layout<C>::rows + 16 * (consumer * Layout<C>::turns + number % Layout<C>::turns);
  }
  __device__ u32 rows_taken(int consumer, u32 number) const { return rows_left(consumer, number) + 8; }
  __device__ u32 staging(int consumer) const {
    return base + Layout<C>::staging + (Layout<C>::areas == 1 ? 0 : consumer * Layout<C>::area);
  }
  __device__ u32 scales(int stage) const {
    return base + Layout<C>::scales + stage * Layout<C>::scales_stage;
  }

  // full: the producer's one arrival, plus the bytes, and warps that copy scales. empty: each warp
  // group that reads the stage, in every CTA of the cluster, since multicast writes into all of them.
  __device__ void init() const {
    constexpr int readers = C::pingpong ? 1 : C::consumers;
    for (int i = 0; i < C::stages; ++i) {
      mbarrier_init(full(i), 1 + 32 * (C::block_scales + C::column_scales));
      mbarrier_init(empty(i), readers * C::cluster);
    }
    if constexpr (C::brings)
      for (int i = 0; i < C::consumers; ++i) mbarrier_init(brought(i), 1);
    if constexpr (Layout<C>::closes)
      for (int i = 0; i < C::consumers; ++i)
        for (u32 turn = 0; turn < Layout<C>::turns; ++turn) {
          mbarrier_init(rows_left(i, turn), 4);  // a consumer's warps
          mbarrier_init(rows_taken(i, turn), 1);
        }
    mbarrier_init_fence();
  }
};
