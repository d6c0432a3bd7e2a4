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
#include "closing.cuh"
#include "machine.cuh"
#include "portions.cuh"
#include "scheme_params.cuh"
#include "settle.cuh"
#include "supply.cuh"
#include "traced.cuh"

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
    named_arrive(barrier::rows + group, 128 + 32);
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
