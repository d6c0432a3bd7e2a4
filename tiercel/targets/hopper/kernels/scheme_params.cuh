// The argument of a scheme's kernel, and what its planes' values are multiplied by.
#pragma once
#include "crew.cuh"
#include "mainloop.cuh"
#include "steps.cuh"
#include "verdict.cuh"

// Mirrored by ../fused/params.py.
template <class C>
struct SchemeParams {
  TensorMap a[2], b[2], d[C::d_blocks];  // blocks in place, and written planes: grids of blocks
  Combination<C::a_blocks> left;
  Combination<C::b_blocks> right;
  Groups groups;                // unused: Store asks for it
  char* scratch;                // grid × tiles whose heads run ahead (at least 1) × slots × slot_bytes
  int* flag;                    // set where the scheme's result is not wanted: 1, or 2 if it will be
                                // of the same data in the next product, with other gains
  int block_rows, block_columns, tile_columns, k_tiles;
  int cluster_rows, cluster_columns, batches, group;
  int first_turn;               // clusters that combine in their first turn
  Crew first, beside;           // whole clusters; idle warps
  int split;                    // tiles whose heads run ahead
  float alpha, plane_scale;     // before gains
  Verdict verdict;
  int* arrived;                 // consumers that are done
  int* paced;                   // null: clusters do not keep pace
  [[no_unique_address]] typename Trace<C::traced>::Params trace;
  [[no_unique_address]] typename C::Epilogue::Params epilogue;
};

// What the planes' values are multiplied by, and its inverse, where a consumer finds them at once.
template <class C>
struct Units {
  static constexpr int bytes = 8 * C::consumers;
  u32 place;  // in shared memory

  __device__ Units(const Consumer<C>& consumer)
      : place(consumer.pipe.base + Layout<C>::bytes + 8 * consumer.group) {}
  __device__ void find(const SchemeParams<C>& p, const Consumer<C>& consumer) const {
    if (consumer.thread == 0) {
      const float scale = p.plane_scale * p.left.gain.value() * p.right.gain.value();
      shared_store(place, scale, 1 / scale);
    }
    consumer.sync();
  }
  __device__ float of(Unit unit) const {
    if (unit == Unit::one) return 1;
    const float2 both = shared_load_pair(place);
    return unit == Unit::scale ? both.x : both.y;
  }
};
