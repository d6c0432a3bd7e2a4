// D = alpha · A·B by a scheme: at each tile position of the output grid an accumulator program runs.
//
// One producer and two cooperative consumers, as in gemm.cuh. Planes of an operand may be combined by
// this kernel itself, behind the products that read none (the head of the program):
//   idle warps   three warps of every CTA, beside its producer thread
//   first turn   whole CTAs that take no tile in their first turn; where the last turn of the grid
//                would leave CTAs without a tile, this costs no time
// or by both, which share the items.
// Heads of several tiles may run before their tails, so that the planes have longer to arrive.
#pragma once
#include "crew.cuh"
#include "gemm.cuh"
#include "outbox.cuh"
#include "pace.cuh"
#include "settle.cuh"
#include "slots.cuh"
#include "steps.cuh"

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
    named_sync(1 + consumer.group, 128);
  }
  __device__ float of(Unit unit) const {
    if (unit == Unit::one) return 1;
    const float2 both = shared_load_pair(place);
    return unit == Unit::scale ? both.x : both.y;
  }
};

// ---- Combining ------------------------------------------------------------------------------

template <int room, class C, class Program>
__device__ void combine_share(const SchemeParams<C>& p, const Crew& crew, u32 buffer, int worker) {
  const int left = crew.left_workers;
  if (worker < left)
    combine_items<typename C::Operand, typename Program::Left, C::a_mn_major, C::exact, C::measures,
                  C::gained, room>(
        p.left, buffer, crew, worker, left);
  else if constexpr (Program::Right::planes > 0)
    combine_items<typename C::Operand, typename Program::Right, C::b_mn_major, C::exact, C::measures,
                  C::gained, room>(
        p.right, buffer, crew, worker - left, crew.workers - left);
}

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

// ---- The walk over tiles ---------------------------------------------------------------------

struct Portion {
  bool head, tail;
  int number;          // of a tile whose head runs ahead; 0: of the others
  bool again = false;  // a whole tile, classically, in place of all this
};

// Of one of a program's tables: the scheme's `all`, the first `head` of them, or what follows.
struct Lines {
  int begin, end;

  __device__ Lines(const Portion& portion, int head, int all, int again)
      : begin(portion.again ? all : portion.head ? 0 : head),
        end(portion.again ? all + again : portion.tail ? all : head) {}
};

// First the heads of the first `split` tiles, then their tails, then whole tiles. Inline, or ptxas
// serialises the tensor core instructions, whose accumulators a call would cross (its note C7510).
template <class C, class Run>
__device__ __forceinline__ void for_each_portion(const Scheduler<C>& first, int split, Run run) {
  for (int turn = 0;; ++turn) {
    const bool ahead = turn < split;
    const int number = ahead ? turn : turn - split;
    Scheduler<C> at = first;
    at.skip(number);
    if (at.valid()) run(at.tile(), Portion{ahead || number >= split, !ahead, number < split ? number : 0});
    else if (!ahead) break;
  }
}

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

// ---- A consumer's program --------------------------------------------------------------------

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
    if constexpr (Layout<C>::closes) named_sync(5 + tile.group, 160);  // its rows are complete
    if (outbox.scale.bad) *p.flag = 1;
  }

  // Behind all else; the same for all threads.
  __device__ bool is_refused() const {
    named_sync(1 + tile.group, 128);
    if (tile.thread == 0) {
      settle_arrive(p);
      ::is_refused<C, Program>(p);
    }
    named_sync(1 + tile.group, 128);
    return __any_sync(0xffffffffu, count(p.flag) != 0);  // of a warp, ptxas must know
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

// ---- Rows that an epilogue reduces -------------------------------------------------------------

// Where a consumer's rows of a block of the output begin.
template <class C>
__device__ Place block_place(const SchemeParams<C>& p, const Tile& tile, int block, int group) {
  return {0, block / C::grid_columns * p.block_rows, block % C::grid_columns * p.block_columns,
          tile.row + group * 64, tile.n * C::tile_n};
}

// By an idle warp for each consumer, behind what it combines: see closing.cuh.
template <class C, class Program>
__device__ void close_rows(const SchemeParams<C>& p, const Pipeline<C>& pipe, Scheduler<C> schedule,
                           u32 rank, int group) {
  u32 number = 0;
  for (bool again = false;; again = true) {
    for_each_portion(schedule, again ? 0 : p.split, [&](Tile tile, Portion portion) {
      portion.again = opaque(again);
      const Lines lines(portion, Program::head_steps, Program::steps, Program::steps_again);
#pragma unroll 1
      for (int i = lines.begin; i < lines.end; ++i) {
        const Step step = Program::step_at(i);
        if (step.op == Step::Op::store || step.op == Step::Op::store_now)
          Closing<C>::take_over(pipe, p, block_place(p, tile, step.index, group), tile.n, group, number);
      }
    });
    named_arrive(5 + group, 160);
    if (again || !__any_sync(0xffffffffu, threadIdx.x % 32 == 0 && is_refused<C, Program>(p))) break;
    schedule = Scheduler<C>(p, rank);
  }
}

// ---- The kernel --------------------------------------------------------------------------------

template <class C, class Program>
__device__ __forceinline__ void scheme_gemm(const SchemeParams<C>& params) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int warp_group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const u32 rank = C::cluster == 1 ? 0 : cluster_rank();
  const Pipeline<C> pipe{shared_address(shared)};
  Scheduler<C> schedule(params, rank);

  if (threadIdx.x == 0) pipe.init();
  __syncwarp();
  if constexpr (C::cluster == 1) __syncthreads();
  else cluster_sync();  // no CTA may be written to before its barriers exist

  wait_for_previous_kernel();
  start_next_kernel();
  if (threadIdx.x == 0) Trace<C::traced>::clocks(params, 0);

  // Of clusters that combine in their first turn: k-tiles of others meanwhile.
  int late = 0;
  if constexpr (C::first_turn) {
    // Cluster c multiplies at walk positions c − first_turn + i · clusters: from i = 1 on where that
    // is negative at first, and all positions are taken.
    schedule.position -= params.first_turn;
    if (schedule.position < 0) {
      late = Program::products * params.k_tiles;
      if (threadIdx.x == 0) Pace::of<C>(params, rank).skip(late);
      constexpr int warps = (1 + C::consumers) * 4, room = Layout<C>::staging / warps / 1024 * 1024;
      const int warp = threadIdx.x / 32;
      combine_share<room, C, Program>(params, params.first, pipe.base + warp * room,
                                      blockIdx.x * warps + warp);
      schedule.skip(1);
      proxy_fence_shared();  // TMA writes there next
      cluster_sync();
    }
  }

  if (warp_group == 0) {
    registers_shrink<C::producer_registers>();
    if (threadIdx.x == 0) {
      Producer<C> producer{pipe, {}, params.k_tiles, schedule.m_rank, schedule.n_rank};
      producer.loaded = Layout<C>::stage;
      producer.trace = {params, 0, true};
      for (int i = 0; i < 2; ++i) {  // or the copy engine would wait for them
        tma_prefetch(params.a[i]);
        tma_prefetch(params.b[i]);
      }
      Pace pace = Pace::of<C>(params, rank);
      pace.begun = late;
      for (bool again = false;; again = true) {
        for_each_portion(schedule, again ? 0 : params.split, [&](Tile tile, Portion portion) {
          producer.tile = tile;
          portion.again = opaque(again);
          produce<C, Program>(params, producer, pace, portion);
        });
        pace.stop();
        if (again) break;
        const bool refused = is_refused<C, Program>(params);
        if (blockIdx.x == 0) choose_gains(params);
        if (!refused) break;
        schedule = Scheduler<C>(params, rank);
      }
      producer.finish();
    } else if constexpr (C::combines || Layout<C>::closes) {
      const int warp = static_cast<int>(threadIdx.x) / 32 - 1;
      if constexpr (C::combines)
        if (warp >= 0)
          combine_share<Layout<C>::items_warp, C, Program>(
              params, params.beside, pipe.base + Layout<C>::items + warp * Layout<C>::items_warp,
              blockIdx.x + warp * gridDim.x);
      if constexpr (Layout<C>::closes)
        if (warp >= 0 && warp < C::consumers) close_rows<C, Program>(params, pipe, schedule, rank, warp);
    }
    __syncwarp();
  } else {
    registers_grow<C::consumer_registers>();
    Consumer<C> consumer{pipe, {}, params.k_tiles, warp_group - 1, static_cast<int>(threadIdx.x % 128)};
    consumer.trace = {params, warp_group, consumer.thread == 0};
    Accumulator<C> acc;
    Box<C> box;
    Machine<C, Program> machine{params, consumer, acc, box};
    Units<C>(consumer).find(params, consumer);
    if (blockIdx.x == 0 && warp_group == 1 &&
        !unchanged<decltype(C::Operand::bits)>(params.verdict, consumer.thread, 128))
      *params.flag = 1;
    const u64 first = static_cast<u64>(blockIdx.x) * max(params.split, 1);
    for (bool again = false;; again = true) {
      for_each_portion(schedule, again ? 0 : params.split, [&](Tile tile, Portion portion) {
        consumer.tile = tile;
        consumer.scratch = params.scratch + (first + portion.number) * C::slots * C::slot_bytes;
        portion.again = opaque(again);
        machine.run(portion);
      });
      machine.finish();
      if (consumer.thread == 0) tma_store_wait<0>();
      __syncwarp();
      if (again || !machine.is_refused()) break;
      schedule = Scheduler<C>(params, C::cluster == 1 ? 0 : cluster_rank());
    }
  }
  if constexpr (C::cluster > 1) cluster_sync();
  if (threadIdx.x == 0) Trace<C::traced>::clocks(params, 1);
}
