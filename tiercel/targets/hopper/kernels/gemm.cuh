// D = alpha · A·B + beta · C: one producer warp group feeds two consumer warp groups.
//
// cooperative   both consumers multiply halves of one tile, then both store it
// pingpong      each has its own tile; one multiplies while the other stores
//
// A program (generated, see ../source.py) says which products make up a tile, and what is kept,
// saved and stored in between; the plain product is the program "multiply, store".
#pragma once
#include "grouped.cuh"
#include "mainloop.cuh"
#include "paced.cuh"
#include "scales.cuh"
#include "split.cuh"
#include "store.cuh"
#include "store_neighbours.cuh"
#include "store_transposed.cuh"
#include "store_warps.cuh"
#include "stream_k.cuh"
#include "traced.cuh"

// Mirrored by ../products/params.py.
template <class C>
struct Params {
  TensorMap a[C::a_planes], b[C::b_planes], d[C::d_blocks];
  Groups groups;             // where each has its own B
  Scales scales;             // of float8 operands
  const void* c;             // of the output's shape; read when beta is not 0
  long long c_row_stride, c_batch_stride;
  int block_rows, block_columns;  // of one block of D's grid: bounds for the epilogue
  int tile_columns;          // tiles across one block
  int k_tiles;
  int cluster_rows, cluster_columns, batches, group;
  int a_batch_step, b_batch_step;  // 0 where the operand is the same for all batches
  int unloaded;              // bytes of a stage beyond the rows that an operand has
  int alternates;            // every other tile is multiplied backwards along K
  float alpha, beta;
  [[no_unique_address]] typename Trace<C::traced>::Params trace;
  [[no_unique_address]] StreamK<C::stream_k> stream_k;
  [[no_unique_address]] PaceCounter<C::paced> paced;
  typename C::Epilogue::Params epilogue;
};

template <class C>
__device__ auto walk(const Params<C>& params, u32 rank, unsigned char* shared) {
  if constexpr (C::grouped)
    return GroupedScheduler<C>(params, rank, shared + Layout<C>::groups);
  else if constexpr (C::stream_k) return StreamKScheduler<C>(params, rank);
  else return Scheduler<C>(params, rank);
}

template <class C, class Program>
__device__ void gemm(const Params<C>& params) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int warp_group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int thread = threadIdx.x % 128;
  const u32 cta = C::cluster * C::cluster_k == 1 ? 0 : cluster_rank();
  const u32 rank = C::cluster_k == 1 ? cta : 0;  // CTAs that split K have the same tile
  const KPart k_part = C::cluster_k == 1 ? KPart(params.k_tiles) : KPart(params.k_tiles, cta);
  const Pipeline<C> pipe{shared_address(shared)};
  auto schedule = walk(params, rank, shared);
  if constexpr (C::cluster_k > 1) schedule.position /= C::cluster_k;

  if (threadIdx.x == 0) {
    pipe.init();
    if constexpr (C::cluster_k > 1) open_inbox(pipe);
  }
  __syncwarp();
  if constexpr (C::cluster * C::cluster_k == 1) __syncthreads();
  else cluster_meet();  // no CTA may be written to before its barriers exist

  // The kernel before this one may still run: its results count from here on.
  wait_for_previous_kernel();
  start_next_kernel();
  if (threadIdx.x == 0) Trace<C::traced>::clocks(params, 0);
  if constexpr (C::grouped) schedule.open();

  if (warp_group == 0) {
    registers_shrink<C::producer_registers>();
    if (threadIdx.x == 0) {
      PacedProducer<C> producer{{pipe, {}, k_part.count, schedule.m_rank, schedule.n_rank},
                                Steps<C::paced>::template of<C>(params, rank)};
      producer.k_first = k_part.first;
      producer.loaded = Layout<C>::stage - params.unloaded;
      producer.trace = {params, 0, true};
      for (; schedule.valid(); schedule.skip(1)) {
        producer.tile = schedule.tile();
        producer.a_batch = producer.tile.batch * params.a_batch_step;
        producer.b_batch = producer.tile.batch * params.b_batch_step;
        if constexpr (C::stream_k) producer.take(schedule.share(), params.k_tiles);
        Program::produce(producer, params);
        if constexpr (C::stream_k) producer.backwards ^= params.alternates && !schedule.helps();
        else if constexpr (!C::grouped && !C::block_scales)
          producer.backwards ^= params.alternates != 0;
      }
      producer.steps.stop();
      producer.finish();
    } else if constexpr (C::block_scales) {
      const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
      if (warp == 1) load_block_scales<false>(pipe, schedule, params, lane);
      if constexpr (C::column_scales) {
        if (warp == 2) load_block_scales<true>(pipe, schedule, params, lane);
      }
    } else if constexpr (C::grouped) {
      if (threadIdx.x >= 32)
        clear_rest(params.groups, Store<C>::row_bytes(params), threadIdx.x - 32, 96);
    }
    if constexpr (Layout<C>::closes) {
      const int warp = static_cast<int>(threadIdx.x) / 32;
      if (warp == 1 || warp == 2) Closing<C>::run(pipe, schedule, params, warp - 1);
    }
    __syncwarp();
  } else {
    registers_grow<C::consumer_registers>();
    const int group = warp_group - 1;
    Consumer<C> consumer{pipe, {}, k_part.count, group, thread};
    consumer.trace = {params, warp_group, thread == 0};
    if constexpr (C::pingpong) {
      schedule.skip(group);
      consumer.stage.advance(group * params.k_tiles);
      if (group == 1) named_arrive(barrier::turn, 256);  // consumer 0 starts
    }
    if constexpr (C::brings && C::pingpong) {  // cooperative consumers do so beside their products
      if (thread == 0 && group == 0 && schedule.valid())
        Store<C>::bring(pipe, params, schedule.tile(), group);
      __syncwarp();
    }
    Accumulator<C> acc;
    for (; schedule.valid(); schedule.skip(C::pingpong ? C::consumers : 1)) {
      consumer.tile = schedule.tile();
      consumer.followed = schedule.valid(1);
      if constexpr (C::stream_k) {
        consumer.share = schedule.share();
        consumer.k_tiles = consumer.share.count;
      }
      if constexpr (C::Epilogue::loads) Store<C>::prefetch(consumer, params);
      // Waiting for a turn also keeps a consumer from mistaking an earlier filling of a stage for
      // its own: all fillings before its tile have then been seen by the other one.
      consumer.trace.mark(Mark::turn);
      if constexpr (C::pingpong) named_sync(barrier::turn + group, 256);
      consumer.trace.mark(Mark::row, consumer.tile.row / 64);
      consumer.trace.mark(Mark::column, consumer.tile.n);
      Program::consume(consumer, acc, params);
      if constexpr (C::brings && C::pingpong) {  // for the next tile, the other consumer's
        if (thread == 0 && consumer.followed) {
          auto next = schedule;
          next.skip(1);
          tma_store_wait_read<0>();
          Store<C>::bring(pipe, params, next.tile(), group ^ 1);
        }
        __syncwarp();
      }
      consumer.trace.mark(Mark::done);
      if constexpr (C::pingpong) consumer.stage.advance(params.k_tiles);
    }
    if (thread % 32 == 0) tma_store_wait<0>();
    __syncwarp();
  }
  if constexpr (C::cluster > 1) cluster_meet();
  if constexpr (C::traced) {
    __syncthreads();
    if (threadIdx.x == 0) Trace<C::traced>::clocks(params, 1);
  }
}
