// A producer's side of a scheme's kernel: it loads the planes of each product of the accumulator program,
// and waits for those that this kernel combines itself.
#pragma once
#include "pace.cuh"
#include "portions.cuh"
#include "producer.cuh"
#include "scheme_params.cuh"

// What a tile's producer watches of one operand: counters of its panel of squares, along K.
struct Panel {
  const int* counters;
  int spans;
  u32* record;

  template <int blocks>
  __device__ Panel(const Combination<blocks>& p, bool mn_major, int row)
      : spans(mn_major ? p.squares_down : p.squares_across), record(p.record) {
    counters = p.ready + 1 + row / Squares::side * spans;
  }
  __device__ void wait(int span) const { Readiness::wait(counters + span, spans - span, record); }
};

template <class C, class Program>
__device__ void produce(const SchemeParams<C>& p, Producer<C>& load, Pace& pace, Portion portion) {
  constexpr int group = Readiness::width * Squares::k_tiles;
  const Lines lines(portion, Program::head_products, Program::products, Program::products_again);
#pragma unroll 1
  for (int i = lines.begin; i < lines.end; ++i) {
    const Product next = Program::product_at(i);
    const BlockPlace a = Program::left_at(next.a), b = Program::right_at(next.b);
    load.a_batch = a.across, load.a_down = a.down;
    load.b_batch = b.across, load.b_down = b.down;
    bool wait = false;
    if constexpr (C::combines || C::first_turn)
      if (next.wait) {
        const int left = p.first.left_workers + p.beside.left_workers;
        wait = !Readiness::all(p.left.ready, left);
        if (Program::Right::planes > 0)
          wait |= !Readiness::all(p.right.ready, p.first.workers + p.beside.workers - left);
        pace.holds = C::first_turn || !wait;
        wait &= !Extremes::refused(p.left.record);  // the result is not wanted any more
        proxy_fence();
      }
#pragma unroll 1
    for (int k = 0; k < load.k_tiles; ++k) {
      if constexpr (C::combines || C::first_turn)
        if (wait && k % group == 0) {
          const int span = k / Squares::k_tiles;
          if (Program::Left::planes > 0) Panel(p.left, C::a_mn_major, load.tile.row).wait(span);
          if (Program::Right::planes > 0)
            Panel(p.right, C::b_mn_major, load.tile.n * C::tile_n).wait(span);
        }
      pace.step();
      load.k_tile(p.a[a.array], p.b[b.array], k);
    }
  }
}
