// A consumer's side of a scheme's kernel: it runs the steps of the accumulator program in order.
#pragma once
#include "outbox.cuh"
#include "portions.cuh"
#include "scheme_params.cuh"
#include "settle.cuh"
#include "slots.cuh"
#include "tma.cuh"

template <class C, class Program>
struct Machine {
  const SchemeParams<C>& p;
  Consumer<C>& tile;
  Accumulator<C>& acc;
  Box<C>& box;
  Outbox<C> outbox{};
  Pending<C> pending{};
  bool exact = false;  // a block whose epilogue is pending is kept in float32

  // A part of a product has 8 k-tiles at least, and 12 where it is not alone: ../fused/schedule.py.
  static constexpr int ahead = 3;  // k-tiles, of 1024 cycles, before a saved sum is needed
  static constexpr int apart = 2;
  static_assert(Outbox<C>::parts + 1 + ahead <= 8);

  __device__ void run(Portion portion) {
    const Lines lines(portion, Program::head_steps, Program::steps, Program::steps_again);
    outbox.scale.factor = 0;
    exact = portion.again;
#pragma unroll 1
    for (int i = lines.begin; i < lines.end; ++i) run(Program::step_at(i));
  }

  __device__ void finish() {
    outbox.send_all(box, tile);
    if constexpr (C::postpones) forget(box);
    pending.finish(tile, p);
    if constexpr (Layout<C>::closes)
      named_sync(barrier::rows + tile.group, 128 + 32);  // its rows are complete
    if (outbox.scale.bad) *p.flag = 1;
  }

  // Behind all else; the same for all threads.
  __device__ bool is_refused() const {
    tile.sync();
    if (tile.thread == 0) {
      settle_arrive(p);
      ::is_refused<C, Program>(p);
    }
    tile.sync();
    return __any_sync(0xffffffffu, acquire_load(p.flag) != 0);  // of a warp, ptxas must know
  }

 private:
  __device__ void run(const Step& step) {
    const bool stores = step.op == Step::Op::store || step.op == Step::Op::store_now;
    if (C::postpones && stores) {
      forget(box);
      pending.finish(tile, p);
    }
    const float factor = step.factor * Units<C>(tile).of(step.unit);
    const bool zero = step.from == From::zero;
    switch (step.op) {
      case Step::Op::multiply:
        products<typename Program::Plane>(step, zero);
        break;
      case Step::Op::multiply_in_place:
        if constexpr (Program::in_place)
          products<typename C::Operand>(step, zero);
        break;
      case Step::Op::save:
        outbox.save(box, tile, acc, step.slot, factor);
        break;
      case Step::Op::save_now:
        save_now(tile, step.slot, acc, outbox.scale, factor);
        break;
      case Step::Op::fetch_and_load:
        fetch(tile, step.slot, true, box);
        [[fallthrough]];
      case Step::Op::load:
        if (zero) load<From::zero>(acc, box, factor);
        else load<From::sum>(acc, box, factor);
        break;
      case Step::Op::rescale:
        rescale<C>(acc, factor);
        break;
      case Step::Op::store:
      case Step::Op::store_now:
        outbox.store(box, tile, acc, p, step.index, factor, pending, exact);
        if (step.op == Step::Op::store_now) outbox.send_all(box, tile);
        break;
    }
  }

  // Meanwhile the outbox is emptied, a pending epilogue goes on and a saved sum is fetched. There is no
  // control flow around the first and the last k-tile: where sums that other instructions made could
  // pass a loop by, ptxas serialises the tensor core instructions (1.06 instead of 1.15 times the
  // vendor at 8192³).
  template <class Kind>
  __device__ void products(const Step& step, bool zero) {
    const int k_tiles = border(step, step.part.number + 1) - border(step, step.part.number);
    typename Pending<C>::Fetched fetched;
    send_while_multiplying<Kind, 0>(zero, fetched);
    int k = Outbox<C>::parts;
#pragma unroll 1
    do tile.template k_tile<Kind>(acc, k, true, [] {}, [&] {
      if (pending.is_due(k, tile.group, p.k_tiles)) pending.step(tile, p, fetched);
    });
    while (++k < k_tiles - ahead);
    if constexpr (C::postpones) forget(box);
    fetch(tile, step.slot, step.slot != no_slot, box);
#pragma unroll 1
    do tile.template k_tile<Kind>(acc, k, true, [] {});
    while (++k < k_tiles);
    tile.drain(acc);
  }

  // Where a part of the products begins, in k-tiles. One consumer is at rest there a little earlier
  // than the other, which has the tensor cores for itself meanwhile.
  __device__ int border(const Step& step, int number) const {
    const int all = step.index * p.k_tiles, at = all * number / step.part.of;
    return number % step.part.of == 0 ? at : tile.group == 0 ? at - apart : at + apart;
  }

  template <class Kind, int part>
  __device__ void send_while_multiplying(bool zero, typename Pending<C>::Fetched& fetched) {
    constexpr bool last = part == Outbox<C>::parts - 1;
    tile.template k_tile<Kind>(acc, part, part > 0 || !zero, [&] {
      outbox.template send<part>(box, tile);
      if constexpr (last) fetched = pending.fetch(tile, p);
    });
    if constexpr (!last) send_while_multiplying<Kind, part + 1>(zero, fetched);
  }
};
