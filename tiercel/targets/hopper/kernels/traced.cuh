// Epilogues that are written in Python: traced, and printed as CUDA by
// tiercel/lower/epilogue/cuda, whose __init__.py has the contract.
#pragma once
#include "epilogue.cuh"
#include "reduced_rows.cuh"

// E is the generated tiercel::Epilogue. `Main` says which outputs go through shared memory:
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
struct Traced : ReducedRows<E> {
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
};
