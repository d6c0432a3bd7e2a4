// Reductions along the rows of the output by an epilogue: tiles write partial results, whoever comes last
// merges them. E is the generated tiercel::Epilogue, see traced.cuh.
#pragma once
#include "epilogue.cuh"
#include "memory.cuh"

template <class E>
struct ReducedRows {
  // The partial results of `count` times 16 rows are written, `apart` rows from each other, the first of
  // them at `at`. Whoever comes last of `bundle` tiles for 16 rows merges theirs into one, whoever comes
  // last of all bundles finishes the rows. So no one merges many.
  // `together`: of what is merged, how much a lane asks for at a time.
  template <int apart, int together, class P>
  static __device__ void close(const P& params, const Place& at, int tile_column, int count) {
    complete<apart, together>(params, at, tile_column, arrive<apart>(params, at, tile_column, count));
  }

 private:
  // Whether this lane's 16 rows are the last ones of their bundle.
  template <int apart, class P>
  static __device__ bool arrive(const P& params, const Place& at, int tile_column, int count) {
    if constexpr (E::has_row_partials) {
      const int lane = threadIdx.x % 32, row = at.row + apart * lane;
      const Bundles bundles = bundles_of(params, at, tile_column);
      __syncwarp();
      return tile_column < params.tile_columns && lane < count && row < params.block_rows &&
             is_last(counters_of(params, at, bundles, row) + bundles.own, bundles.size());
    }
    return false;
  }

  // What the last one has to do.
  template <int apart, int together, class P>
  static __device__ void complete(const P& params, const Place& at, int tile_column, bool last) {
    if constexpr (E::has_row_partials) {
      const int lane = threadIdx.x % 32;
      const Bundles bundles = bundles_of(params, at, tile_column);
      for (unsigned left = __ballot_sync(0xffffffffu, last); left != 0; left &= left - 1) {
        const int begin = at.row + apart * (__ffs(left) - 1);
        Run run{bundles.own * bundle, 1, bundles.size()};
        bool finishes = bundles.count() == 1;
#pragma unroll 1
        while (true) {
          merge_rows<together>(params, at, begin, run, finishes);
          if (finishes) break;
          __syncwarp();
          int* const arrived = counters_of(params, at, bundles, begin) + bundles.count();
          finishes = __any_sync(0xffffffffu, lane == 0 && is_last(arrived, bundles.count()));
          if (!finishes) break;
          run = {0, bundle, bundles.count()};
        }
      }
    }
  }

  static constexpr int bundle = 32;  // mirrored by ../epilogues/plan.py

  // The partial results of a row, `total` of them, in bundles. Counters of 16 rows: how many tiles of
  // each bundle have arrived, and how many bundles, if there are more than one.
  struct Bundles {
    int total, own;

    __device__ int count() const { return (total + bundle - 1) / bundle; }
    __device__ int counters() const { return count() + (count() > 1); }
    __device__ int size() const { return min(bundle, total - own * bundle); }
  };

  template <class P>
  static __device__ Bundles bundles_of(const P& params, const Place& at, int tile_column) {
    const int of_block = at.block_column / params.block_columns * params.tile_columns;
    return {params.epilogue.blocks, (of_block + tile_column) / bundle};
  }

  // Of the 16 rows that `row` of a block is one of.
  template <class P>
  static __device__ int* counters_of(const P& params, const Place& at, const Bundles& bundles,
                                     int row) {
    const int of_batch = at.batch * ((params.block_rows + 15) / 16);
    return params.epilogue.arrived + (of_batch + (at.block_row + row) / 16) * bundles.counters();
  }

  // Of `expected` arrivals, after which the counter is at 0 again for the next launch.
  static __device__ bool is_last(int* arrived, int expected) {
    if (release_add(arrived, 1) != expected - 1) return false;
    *arrived = 0;
    return true;
  }

  struct Run {
    int first, step, count;  // of partial results of a row
  };

  // One of several partial results, for each of 16 rows from `begin` on, into the place of the first
  // one; or the rows' results. Two lanes share a row. The order does not depend on who comes last: the
  // same call gives the same bits.
  template <int together, class P>
  static __device__ void merge_rows(const P& params, const Place& at, int begin, const Run& run,
                                    bool finishes) {
    const typename E::Params& p = params.epilogue.operands;
    const int lane = threadIdx.x % 32, own = begin + lane / 2;
    const int row = at.block_row + min(own, params.block_rows - 1);
    acquire_fence();
    typename E::RowPartials whole;
#pragma unroll 1
    for (int i = lane % 2; i < run.count; i += 2 * together) {
      typename E::RowPartials some[together];
#pragma unroll
      for (int j = 0; j < together; ++j)
        if (i + 2 * j < run.count)
          some[j] = E::load_row_partials(p, at.batch, row, run.first + (i + 2 * j) * run.step);
#pragma unroll
      for (int apart = 1; apart < together; apart *= 2)
#pragma unroll
        for (int j = 0; j < together; j += 2 * apart) E::merge(some[j], some[j + apart]);
      E::merge(whole, some[0]);
    }
    E::merge(whole, E::from_lane(whole, 1));
    if (lane % 2 != 0 || own >= params.block_rows) return;
    if (finishes) E::store_row_results(p, at.batch, row, whole);
    else E::store_row_partials(p, at.batch, row, run.first, whole);
  }
};
