// What happens to a value between the accumulator and the output.
//
// An epilogue object lives for 64 rows of a tile. `apply` changes, in place, the values of a thread:
// x[j] holds (row, column + 8j), (row, column + 8j + 1), then the same at row + 8. `finish` writes
// what was gathered over the tile's columns, `close` says so for all rows of the tile.
//
// One that `loads` operands gets them as values: Rows, for its 64 rows, and Operands, for a subtile of
// n pieces; `prefetch` brings what a row of a tile needs to L2, see Store. With `further` outputs beside
// the first, its `apply` also fills pairs of them: more[i][j][0] at row, more[i][j][1] at row + 8. One
// that `closes` completes the results of rows: `close`, or `arrive` and later `complete`.
#pragma once
#include "ptx.cuh"

// Where a thread's first value lies: block of the output grid, and position within the block.
struct Place {
  int batch;
  int block_row, block_column;  // first row and column of the block
  int row, column;
};

struct PlainEpilogue {
  struct Params {};
  static constexpr int shrink = 0, further = 0;
  static constexpr bool staged = true, loads = false, closes = false, unit = false;
  struct Rows {};
  template <int n>
  struct Operands {};
  template <class P>
  static __device__ void prefetch(const P&, const Place&, int) {}
  template <int n, class P>
  __device__ void apply(float (&)[n][4], const P&, const Place&, int) {}
  template <class P>
  __device__ void finish(const P&, const Place&, int) {}
};

// + beta · C, C of the output's type, rows of an even stride.
template <class Output>
struct AddC : PlainEpilogue {
  template <int n, class P>
  __device__ void apply(float (&x)[n][4], const P& params, const Place& at, int first) {
    const Output* c = static_cast<const Output*>(params.c) + at.batch * params.c_batch_stride;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = at.row + 8 * half;
      if (row >= params.block_rows) continue;
      const Output* line = c + (at.block_row + row) * params.c_row_stride + at.block_column;
#pragma unroll
      for (int j = 0; j < n; ++j) {
        const int column = at.column + first + 8 * j;
        float &low = x[j][2 * half], &high = x[j][2 * half + 1];
        if (column + 1 < params.block_columns) add(low, high, line + column, params.beta);
        else if (column < params.block_columns) add(low, line + column, params.beta);
      }
    }
  }

 private:
  static __device__ void add(float& x, float& y, const Output* c, float beta) {
    if constexpr (sizeof(Output) == 2) {
      const u32 both = *reinterpret_cast<const u32*>(c);
      x = fmaf(beta, Output::low(both), x);
      y = fmaf(beta, Output::high(both), y);
    } else {
      const float2 both = *reinterpret_cast<const float2*>(c);
      x = fmaf(beta, both.x, x);
      y = fmaf(beta, both.y, y);
    }
  }
  static __device__ void add(float& x, const Output* c, float beta) {
    if constexpr (sizeof(Output) == 2)
      x = fmaf(beta, Output::low(*reinterpret_cast<const u16*>(c)), x);
    else x = fmaf(beta, *c, x);
  }
};

// Stores by each thread, one element at a time: for outputs that TMA cannot address. It writes whole
// chunks of 16 bytes, so that rows of another length would lose what lies behind them.
template <class Output, class Before>
struct Direct : Before {
  struct Params {
    Output* d;
    long long row_stride, batch_stride;
  };
  static constexpr bool staged = false;

  template <int n, class P>
  __device__ void apply(float (&x)[n][4], const P& params, const Place& at, int first) {
    Before::apply(x, params, at, first);
    const Params& p = params.epilogue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = at.row + 8 * half;
      if (row >= params.block_rows) continue;
      Output* line = p.d + at.batch * p.batch_stride + (at.block_row + row) * p.row_stride;
#pragma unroll
      for (int j = 0; j < n; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = at.column + first + 8 * j + i;
          if (column < params.block_columns)
            store(line + at.block_column + column, x[j][2 * half + i]);
        }
    }
  }

 private:
  static __device__ void store(Output* to, float x) {
    if constexpr (sizeof(Output) == 2) to->bits = static_cast<u16>(Output::pack(x, x));
    else *to = x;
  }
};

// An epilogue traced from Python: E is the generated tiercel::Epilogue (see the contract in
// tiercel/lower/epilogue/cuda.py). `Main` says which outputs go through shared memory:
//   shrink, staged, further;  take(outputs, low, high);  take_further(outputs, pairs);
//   has_rest;  store_rest(params, batch, row, column, outputs);  bring(tile, pair);  whole;  unit;
//   neighbours;  period
//
// `whole`: tiles do not reach beyond the last column, so that nothing has to be asked of columns.
// `unit`: the product has no factor before the epilogue.
// `neighbours`: a thread's pieces are neighbours in fours, see store_neighbours.cuh, and `period` is the
// number of columns after which all operands of tiles are the same again, or 0.
// There are no branches around the arithmetic: with them, a pair of values took as long as its chain
// of instructions, 110 cycles for GELU, because nothing overlapped. What lies outside the output is
// computed, too, and not stored or counted.
template <class E, class Main>
struct Traced {
  struct Params {
    int* arrived;  // counters at 0, see close; unused without partial results of rows
    int blocks;    // partial results of a row
    typename E::Params operands;
  };
  static constexpr int shrink = Main::shrink, further = Main::further;
  static constexpr bool staged = Main::staged, loads = true, closes = E::has_row_partials;
  static constexpr bool unit = Main::unit, neighbours = Main::neighbours;
  static constexpr int period = Main::period;
  typename E::RowPartials rows[2];  // of this thread's two rows

  struct Rows {
    typename E::Scalars scalars;
    typename E::Column columns[2];
  };

  template <int n>
  struct Operands {
    typename E::Row along[n];
    typename E::Tile tiles[n][2];
  };

  // Of `columns` columns of a row, from a place on.
  template <class P>
  static __device__ void prefetch(const P& params, const Place& at, int columns) {
    const int existing = min(columns, params.block_columns - at.column);
    if (at.row < params.block_rows && existing > 0)
      E::prefetch_tile(params.epilogue.operands, at.batch, at.block_row + at.row,
                       at.block_column + at.column, existing);
  }

  template <class P>
  static __device__ Rows load_rows(const P& params, const Place& at) {
    const typename E::Params& p = params.epilogue.operands;
    Rows rows;
    rows.scalars = E::load_scalars(p, at.batch);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      rows.columns[half] = E::load_column(p, at.batch, row_inside(params, at, half));
    return rows;
  }

  template <int n, class P>
  static __device__ Operands<n> load(const P& params, const Place& at, int first) {
    const typename E::Params& p = params.epilogue.operands;
    const int column = at.block_column + at.column + first;
    Operands<n> values{};  // without a value, the registers would be kept from one tile to the next
#pragma unroll
    for (int j = 0; j < n; ++j) {
      if (!inside(params, at.column + first + behind(j))) continue;
      E::load_row(p, at.batch, column, behind(j), values.along[j]);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        E::load_tile(p, at.batch, row_inside(params, at, half), column, behind(j),
                     values.tiles[j][half]);
    }
    const int rows[2] = {row_inside(params, at, 0), row_inside(params, at, 1)};
    E::load_fours(p, at.batch, rows, column, values.tiles);
    return values;
  }

  // The same where pieces are neighbours; what lies beyond the last column is left as it is. Operands
  // of tiles:
  template <int n, class P>
  static __device__ void load_tiles(Operands<n>& values, const P& params, const Place& at, int first) {
    const typename E::Params& p = params.epilogue.operands;
    const int rows[2] = {row_inside(params, at, 0), row_inside(params, at, 1)};
#pragma unroll
    for (int j = 0; j < n; j += 4) {
      const int column = at.column + first + behind(j);
      if (!inside(params, column)) continue;
      E::load_tile_eights(p, at.batch, rows, at.block_column + column, &values.tiles[j]);
#pragma unroll
      for (int i = 0; i < 8; ++i)
        E::load_tile(p, at.batch, rows[i % 2], at.block_column + column, i / 2 * 2,
                     values.tiles[j + i / 2][i % 2]);
    }
  }

  // … and of rows:
  template <int n, class P>
  static __device__ void load_along(Operands<n>& values, const P& params, const Place& at, int first) {
    const typename E::Params& p = params.epilogue.operands;
#pragma unroll
    for (int j = 0; j < n; j += 4) {
      const int column = at.column + first + behind(j);
      if (!inside(params, column)) continue;
      E::load_row_eights(p, at.batch, at.block_column + column, &values.along[j]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        E::load_row(p, at.batch, at.block_column + column, 2 * i, values.along[j + i]);
    }
  }

  // Loaded values, before they are used.
  template <int n>
  static __device__ void settle(Operands<n>& values) {
    E::settle_fours(values.tiles);
  }

  // Values of the operand that the kernel has brought to shared memory: `pair` is of piece j.
  template <int n>
  static __device__ void bring(Operands<n>& values, int j, int half, u32 pair) {
    Main::bring(values.tiles[j][half], pair);
  }

  template <int n, int m, class P>
  __device__ void apply(float (&x)[n][4], u32 (&more)[m][n][2], const Rows& of_rows,
                        const Operands<n>& values, const P& params, const Place& at, int first) {
    const typename E::Params& p = params.epilogue.operands;
    const int row = at.block_row + at.row;
    typename E::RowValues reduced[2][n];
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const int in_block = at.column + first + behind(j), column = at.block_column + in_block;
      typename E::ColumnPartials gathered;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool row_counts = at.row + 8 * half < params.block_rows;
        const bool column_counts = inside(params, in_block);
        float &low = x[j][2 * half], &high = x[j][2 * half + 1];
        const float pair[2] = {low, high};
        typename E::Outputs out;
        auto of_columns = gathered;
        E::apply(p, row + 8 * half, column, pair, of_rows.scalars, values.along[j],
                 of_rows.columns[half], values.tiles[j][half], out, reduced[half][j], of_columns);
        if (!column_counts) reduced[half][j] = E::nothing();
        if (row_counts) gathered = of_columns;
        Main::take(out, low, high);
        u32 pairs[m];
        Main::take_further(out, pairs);
#pragma unroll
        for (int i = 0; i < further; ++i) more[i][j][half] = pairs[i];
        if constexpr (Main::has_rest)
          if (row_counts && column_counts)
            Main::store_rest(p, at.batch, row + 8 * half, column, out);
      }
      if constexpr (E::has_column_partials) {  // of the 16 rows of this warp
#pragma unroll
        for (int mask = 4; mask < 32; mask *= 2) E::merge(gathered, E::from_lane(gathered, mask));
        const int first_row = row - static_cast<int>(threadIdx.x) % 32 / 4;
        if (threadIdx.x % 32 < 4 && inside(params, in_block) &&
            at.row - (row - first_row) < params.block_rows)
          E::store_column_partials(p, at.batch, first_row / 16, column, gathered);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      E::fold(rows[half], reduced[half], of_rows.columns[half], at.block_column + at.column + first);
  }

  template <class P>
  __device__ void finish(const P& params, const Place& at, int tile_column) {
    if constexpr (E::has_row_partials) {
      const int block = at.block_column / params.block_columns * params.tile_columns + tile_column;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        auto& whole = rows[half];
        E::merge(whole, E::from_lane(whole, 1));
        E::merge(whole, E::from_lane(whole, 2));
        if (threadIdx.x % 4 == 0 && at.row + 8 * half < params.block_rows &&
            tile_column < params.tile_columns)
          E::store_row_partials(params.epilogue.operands, at.batch, at.block_row + at.row + 8 * half,
                                block, whole);
      }
    }
  }

  // The partial results of `count` times 16 rows are written, `apart` rows from each other, the first of
  // them at `at`. Whoever comes last of `bundle` tiles for 16 rows merges theirs into one, whoever comes
  // last of all bundles finishes the rows. So no one merges many.
  // `together`: of what is merged, how much a lane asks for at a time.
  template <int apart, int together, class P>
  static __device__ void close(const P& params, const Place& at, int tile_column, int count) {
    complete<apart, together>(params, at, tile_column, arrive<apart>(params, at, tile_column, count));
  }

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

 private:
  template <class P>
  static __device__ bool inside(const P& params, int column) {
    return Main::whole || column < params.block_columns;
  }

  // What is loaded for a row beyond the last is not used: any row will do.
  template <class P>
  static __device__ int row_inside(const P& params, const Place& at, int half) {
    return at.block_row + min(at.row + 8 * half, params.block_rows - 1);
  }

  // Columns from a thread's first piece to piece j.
  static __device__ constexpr int behind(int j) { return neighbours ? j / 4 * 32 + j % 4 * 2 : 8 * j; }

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
