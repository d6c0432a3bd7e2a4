// D = alpha · A·B + beta · C: one producer warp group feeds two consumer warp groups.
//
// cooperative   both consumers multiply halves of one tile, then both store it
// pingpong      each has its own tile; one multiplies while the other stores
//
// A program (generated, see ../source.py) says which products make up a tile, and what is kept,
// saved and stored in between; the plain product is the program "multiply, store".
#pragma once
#include "mainloop.cuh"
#include "producer.cuh"
#include "slots.cuh"
#include "store.cuh"

// Mirrored by ../params.py.
template <class C>
struct Params {
  TensorMap a[C::a_planes], b[C::b_planes], d[C::d_blocks];
  Combination<C::a_blocks> combination;  // of A, when the product itself combines it
  const void* c;             // of the output's shape; read when beta is not 0
  long long c_row_stride, c_batch_stride;
  char* scratch;             // grid × scratch_slots × scratch_bytes
  const int* gate;           // null, or: run only if *gate == gate_value
  int gate_value;
  int block_rows, block_columns;  // of one block of D's grid: bounds for the epilogue
  int tile_columns;          // tiles across one block
  int k_tiles;
  int cluster_rows, cluster_columns, batches, group;
  int a_batch_step, b_batch_step;  // 0 where the operand is the same for all batches
  float alpha, beta;
  float plane_scale, plane_unscale;  // combined planes hold this power of two times A·B
  typename C::Epilogue::Params epilogue;
};

template <class C, class Program>
__device__ void gemm(const Params<C>& params) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int warp_group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int thread = threadIdx.x % 128;
  const u32 rank = C::cluster == 1 ? 0 : cluster_rank();
  const Pipeline<C> pipe{shared_address(shared)};
  Scheduler<C> schedule(params, rank);
  char* scratch = params.scratch + static_cast<u64>(blockIdx.x) * C::scratch_slots * C::scratch_bytes;

  if (threadIdx.x == 0) pipe.init();
  __syncwarp();
  if constexpr (C::cluster == 1) __syncthreads();
  else cluster_sync();  // no CTA may be written to before its barriers exist

  // The kernel before this one may still run: its results count from here on.
  wait_for_previous_kernel();
  start_next_kernel();
  if (params.gate != nullptr && *params.gate != params.gate_value) schedule.stop();

  if (warp_group == 0) {
    registers_shrink<C::producer_registers>();
    if (threadIdx.x == 0) {
      Producer<C> producer{pipe, {}, params.k_tiles, schedule.m_rank, schedule.n_rank};
      producer.scratch = scratch;
      producer.ready = params.combination.ready;
      producer.spans = C::a_mn_major ? params.combination.squares_down
                                     : params.combination.squares_across;
      for (; schedule.valid(); schedule.skip(1)) {
        producer.tile = schedule.tile();
        producer.a_batch = producer.tile.batch * params.a_batch_step;
        producer.b_batch = producer.tile.batch * params.b_batch_step;
        if constexpr (C::combines)
          producer.panel = producer.ready + 1 +
                           producer.tile.m * C::tile_m / Squares::side * producer.spans;
        Program::produce(producer, params);
      }
      producer.finish();
    } else if constexpr (C::combines) {
      const int warp = threadIdx.x / 32;
      if (warp > 0)
        combine_items<typename C::Operand, typename Program::Sums, C::a_mn_major>(
            params.combination, pipe.base + Layout<C>::items + (warp - 1) * ItemBuffer<C::a_blocks>::warp,
            blockIdx.x + (warp - 1) * gridDim.x, 3 * gridDim.x);
    }
    __syncwarp();
  } else {
    registers_grow<C::consumer_registers>();
    const int group = warp_group - 1;
    Consumer<C> consumer{pipe, {}, params.k_tiles, group, thread};
    consumer.scratch = scratch;
    if constexpr (C::pingpong) {
      schedule.skip(group);
      consumer.stage.advance(group * params.k_tiles);
      if (group == 1) named_arrive(3, 256);  // consumer 0 starts
    }
    Accumulator<C> acc;
    for (; schedule.valid(); schedule.skip(C::pingpong ? C::consumers : 1)) {
      consumer.tile = schedule.tile();
      // Waiting for a turn also keeps a consumer from mistaking an earlier filling of a stage for
      // its own: all fillings before its tile have then been seen by the other one.
      if constexpr (C::pingpong) named_sync(3 + group, 256);
      Program::consume(consumer, acc, params);
      if constexpr (C::pingpong) consumer.stage.advance(params.k_tiles);
    }
    if (thread == 0) tma_store_wait<0>();
    __syncwarp();
  }
  if constexpr (C::cluster > 1) cluster_sync();
}
