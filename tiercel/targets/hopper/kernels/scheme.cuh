// D = alpha · A·B by a scheme: at each tile position of the output grid an accumulator program runs.
//
// One producer and two cooperative consumers, as in gemm.cuh. Planes of an operand may be combined by
// this kernel itself, behind the products that read none (the head of the program):
//   idle warps   three warps of every CTA, beside its producer thread
//   first turn   whole CTAs that take no tile in their first turn; where the last turn of the grid
//                would leave CTAs without a tile, this costs no time
// Heads of several tiles may run before their tails, so that the planes have longer to arrive.
#pragma once
#include "gemm.cuh"
#include "slots.cuh"
#include "steps.cuh"

// Mirrored by ../fused_params.py.
template <class C>
struct SchemeParams {
  TensorMap a[C::a_planes], b[C::b_planes], d[C::d_blocks];
  Combination<C::a_blocks> left;
  Combination<C::b_blocks> right;
  Groups groups;                // unused: Store asks for it
  char* scratch;                // grid × scratch_slots × scratch_bytes
  char* heads;                  // grid × split × head_bytes
  const int* gate;              // null, or: run only if *gate == gate_value
  int gate_value;
  int block_rows, block_columns, tile_columns, k_tiles;
  int cluster_rows, cluster_columns, batches, group;
  int first_turn;               // clusters that combine in their first turn
  int workers, left_workers;    // warps that combine; the first of them A, the others B
  int split;                    // tiles whose heads run ahead
  float alpha, plane_scale, plane_unscale;

  __device__ float in_unit(float factor, Unit unit) const {
    return factor * (unit == Unit::one ? 1.0f : unit == Unit::scale ? plane_scale : plane_unscale);
  }
};

// ---- Combining ------------------------------------------------------------------------------

template <class C, class Program>
__device__ void combine_share(const SchemeParams<C>& p, u32 buffer, int worker) {
  if (worker < p.left_workers)
    combine_items<typename C::Operand, typename Program::Left, C::a_mn_major, C::exact>(
        p.left, buffer, worker, p.left_workers);
  else if constexpr (Program::Right::planes > 0)
    combine_items<typename C::Operand, typename Program::Right, C::b_mn_major, C::exact>(
        p.right, buffer, worker - p.left_workers, p.workers - p.left_workers);
}

// What a tile's producer watches of one operand: counters of its panel of squares, along K.
struct Panel {
  const int* counters;
  int spans;
  int* flag;

  template <int blocks>
  __device__ Panel(const Combination<blocks>& p, bool mn_major, int row)
      : spans(mn_major ? p.squares_down : p.squares_across), flag(p.flag) {
    counters = p.ready + 1 + row / Squares::side * spans;
  }
  __device__ void wait(int span) const { Readiness::wait(counters + span, spans - span, flag); }
};

// ---- The walk over tiles ---------------------------------------------------------------------

struct Part {
  bool head, tail;
  int number;  // of a tile whose head runs ahead; −1: of the others
};

// First the heads of the first `split` tiles, then their tails, then whole tiles.
template <class C, class Run>
__device__ void for_each_part(const Scheduler<C>& first, int split, Run run) {
  for (int turn = 0;; ++turn) {
    const bool ahead = turn < split;
    const int number = ahead ? turn : turn - split;
    Scheduler<C> at = first;
    at.skip(number);
    if (at.valid()) run(at.tile(), Part{ahead || number >= split, !ahead, number < split ? number : -1});
    else if (!ahead) break;
  }
}

template <class C, class Program>
__device__ void produce(const SchemeParams<C>& p, Producer<C>& load, Part part) {
  constexpr int group = Readiness::width * Squares::k_tiles;
  const int end = part.tail ? Program::fetches : Program::head_fetches;
#pragma unroll 1
  for (int i = part.head ? 0 : Program::head_fetches; i < end; ++i) {
    const Fetch next = Program::fetch_at(i);
    if (next.what == Fetch::What::saved) {
      if (next.wait) load.await_saved(next.a);
      load.load_scratch(next.a);
      continue;
    }
    bool wait = false;
    if constexpr (C::combines || C::first_turn)
      if (next.wait) {
        wait = !Readiness::all(p.left.ready, p.left_workers);
        if (Program::Right::planes > 0)
          wait |= !Readiness::all(p.right.ready, p.workers - p.left_workers);
        wait &= count(p.left.flag) == 0;  // the result is not wanted any more
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
      load.k_tile(p.a[next.a], p.b[next.b], k);
    }
  }
}

// ---- A consumer's program --------------------------------------------------------------------

template <class C, class Program>
struct Machine {
  const SchemeParams<C>& p;
  Consumer<C>& tile;
  Accumulator<C>& acc;
  Packed<C>& kept;
  float* inverse;       // of the scales of sums in scratch: indexed, so apart from what must stay in registers
  int unpublished = -1;                 // slot that was written and is not yet to be read

  __device__ void run(Part part) {
    char* place = p.heads + (static_cast<u64>(blockIdx.x) * p.split + part.number) * head_bytes<C>;
    if (!part.head) restore(kept, place, threadIdx.x - 128);
    const int end = part.tail ? Program::steps : Program::head_steps;
#pragma unroll 1
    for (int i = part.head ? 0 : Program::head_steps; i < end; ++i) run(Program::step_at(i));
    if (!part.tail) spill(kept, place, threadIdx.x - 128);
  }

 private:
  __device__ void run(const Step& step) {
    const float factor = p.in_unit(step.factor, step.unit);
    const bool zero = step.from == From::zero;
    switch (step.op) {
      case Step::Op::multiply:
        products<typename Program::Plane>(step.index, zero);
        break;
      case Step::Op::multiply_in_place:
        if constexpr (Program::in_place) products<typename C::Operand>(step.index, zero);
        break;
      case Step::Op::save:
        save(kept, acc);
        break;
      case Step::Op::load:
        if (zero) load<From::zero>(acc, kept, factor);
        else load<From::sum>(acc, kept, factor);
        break;
      case Step::Op::save_scratch:
        if constexpr (C::scratch_slots > 0) {
          publish();
          inverse[step.index] = save_scratch(tile, step.index, acc);
          unpublished = step.index;
        }
        break;
      case Step::Op::load_scratch:
        if constexpr (C::scratch_slots > 0) {
          if (unpublished == step.index) publish();
          if (zero) load_scratch<From::zero>(tile, acc, factor * inverse[step.index]);
          else load_scratch<From::sum>(tile, acc, factor * inverse[step.index]);
        }
        break;
      case Step::Op::rescale:
        rescale<C>(acc, factor);
        break;
      case Step::Op::store:
        Store<C>::run(tile, acc, p, p.d[step.index], step.index / Program::columns * p.block_rows,
                      step.index % Program::columns * p.block_columns, factor);
        break;
    }
  }

  // One loop, whatever it starts from, and no control flow before the wait: else ptxas serialises the
  // tensor core instructions (1.06 instead of 1.15 times the vendor at 8192³).
  template <class Kind>
  __device__ void products(int count, bool zero) {
    tile.k_tiles = count * p.k_tiles;
    tile.template multiply_onto<Kind>(acc, !zero);
    tile.drain(acc);
    publish();
  }

  // Let the producer fetch what was saved. The fence waits for the stores: a product later they have
  // long arrived.
  __device__ void publish() {
    if (C::scratch_slots == 0 || unpublished < 0) return;
    proxy_fence();
    mbarrier_arrive(tile.pipe.saved(unpublished));
    unpublished = -1;
  }
};

// ---- The kernel --------------------------------------------------------------------------------

template <class C, class Program>
__device__ void scheme_gemm(const SchemeParams<C>& params) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int warp_group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const u32 rank = C::cluster == 1 ? 0 : cluster_rank();
  const Pipeline<C> pipe{shared_address(shared)};
  Scheduler<C> schedule(params, rank);
  char* scratch = params.scratch + static_cast<u64>(blockIdx.x) * C::scratch_slots * C::scratch_bytes;

  if (threadIdx.x == 0) pipe.init();
  __syncwarp();
  if constexpr (C::cluster == 1) __syncthreads();
  else cluster_sync();  // no CTA may be written to before its barriers exist

  wait_for_previous_kernel();
  start_next_kernel();
  if (params.gate != nullptr && *params.gate != params.gate_value) return;

  if constexpr (C::first_turn) {
    // Cluster c multiplies at walk positions c − first_turn + i · clusters: from i = 1 on where that
    // is negative at first, and all positions are taken.
    schedule.position -= params.first_turn;
    if (schedule.position < 0) {
      const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
      combine_share<C, Program>(params, pipe.base + warp * ItemBuffer<C::a_blocks>::warp,
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
      producer.scratch = scratch;
      producer.a_batch = producer.b_batch = 0;
      for_each_part(schedule, params.split, [&](Tile tile, Part part) {
        producer.tile = tile;
        produce<C, Program>(params, producer, part);
      });
      producer.finish();
    } else if constexpr (C::combines) {
      const int warp = static_cast<int>(threadIdx.x) / 32 - 1;
      if (warp >= 0)
        combine_share<C, Program>(
            params, pipe.base + Layout<C>::items + warp * ItemBuffer<C::a_blocks>::warp,
            blockIdx.x + warp * gridDim.x);
    }
    __syncwarp();
  } else {
    registers_grow<C::consumer_registers>();
    Consumer<C> consumer{pipe, {}, params.k_tiles, warp_group - 1, static_cast<int>(threadIdx.x % 128)};
    consumer.scratch = scratch;
    Accumulator<C> acc;
    Packed<C> kept;
    float inverse[C::scratch_slots + 1];
    Machine<C, Program> machine{params, consumer, acc, kept, inverse};
    for_each_part(schedule, params.split, [&](Tile tile, Part part) {
      consumer.tile = tile;
      machine.run(part);
    });
    if (consumer.thread == 0) tma_store_wait<0>();
    __syncwarp();
  }
  if constexpr (C::cluster > 1) cluster_sync();
}
