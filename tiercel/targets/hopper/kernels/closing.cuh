// Results of rows beside the products, of cooperative tiles: a consumer leaves partial results of its rows
// in memory and goes on; an idle warp for each consumer counts them, and completes the rows to which
// nothing is missing. Counting waits for memory: 4,500 cycles a tile, now 750. Behind its last classical
// tile a consumer does it all itself: its four warps are sooner done than one.
//
// PingPong hides that anyway, and completes twice as many rows: an idle warp was too slow for it.
#pragma once
#include "epilogue.cuh"
#include "mainloop.cuh"

template <class C>
struct Closing {
  using Epilogue = typename C::Epilogue;
  // Of what is merged, how much a lane asks for at a time. It decides the order of summation, so that it
  // is the same whoever merges; an idle warp has registers for 4.
  static constexpr int together = Layout<C>::closes ? 4 : 8;

  // By all threads of a consumer, which have written the partial results of their rows; `at`: where
  // this thread's first value lies.
  template <class P>
  static __device__ void leave(Consumer<C>& consumer, const P& params, Place at) {
    if (!Layout<C>::closes || !consumer.followed) {
      at.row -= consumer.thread % 32 / 4;
      Epilogue::template close<64, together>(params, at, consumer.tile.n, C::blocks);
      return;
    }
    hand_over(consumer, consumer.left);
  }

  // The `number`th tile, or block of a scheme's output, to the idle warp. An arrival at a barrier is
  // ordered behind what was written before; a counter would wait for that: 2,000 cycles.
  static __device__ void hand_over(const Consumer<C>& consumer, u32& number) {
    mbarrier_wait(consumer.pipe.rows_taken(consumer.group, number), parity(number) ^ 1);
    __syncwarp();
    if (consumer.thread % 32 == 0) mbarrier_arrive(consumer.pipe.rows_left(consumer.group, number));
    __syncwarp();
    ++number;
  }

  // By the idle warp of consumer `group`, whose rows begin at `at`.
  template <class P>
  static __device__ void take_over(const Pipeline<C>& pipe, const P& params, const Place& at, int tile_n,
                                   int group, u32& number) {
    mbarrier_wait(pipe.rows_left(group, number), parity(number));
    Epilogue::template close<16, together>(params, at, tile_n, 4 * C::blocks);
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(pipe.rows_taken(group, number));
    ++number;
  }

  // All tiles but the last, of a classical product.
  template <class Schedule, class P>
  static __device__ void run(const Pipeline<C>& pipe, Schedule schedule, const P& params, int group) {
    for (u32 number = 0; schedule.valid(1); schedule.skip(1)) {
      const Tile tile = schedule.tile();
      const Place at{tile.batch, 0, 0, tile.row + group * C::blocks * 64, tile.n * C::tile_n};
      take_over(pipe, params, at, tile.n, group, number);
    }
  }

 private:
  static __device__ u32 parity(u32 number) { return number / Layout<C>::turns & 1; }
};
