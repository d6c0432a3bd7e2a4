// What happens to a value between the accumulator and the output.
//
// An epilogue object lives for 64 rows of a tile. `apply` changes, in place, the values of a thread:
// x[j] holds (row, column + 8j), (row, column + 8j + 1), then the same at row + 8. `finish` writes
// what was gathered over the tile's columns.
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
  static constexpr int shrink = 0;
  static constexpr bool staged = true;
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
// tiercel/lower/epilogue/cuda.py). `Main` says which output goes through shared memory:
//   shrink, staged;  take(outputs, low, high);  store_rest(params, batch, row, column, outputs)
template <class E, class Main>
struct Traced {
  using Params = typename E::Params;
  static constexpr int shrink = Main::shrink;
  static constexpr bool staged = Main::staged;
  typename E::RowPartials rows[2];  // of this thread's two rows

  template <int n, class P>
  __device__ void apply(float (&x)[n][4], const P& params, const Place& at, int first) {
    const Params& p = params.epilogue;
    const auto scalars = E::load_scalars(p, at.batch);
    const int row = at.block_row + at.row;
    typename E::Column columns[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (at.row + 8 * half < params.block_rows)
        columns[half] = E::load_column(p, at.batch, row + 8 * half);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const int in_block = at.column + first + 8 * j, column = at.block_column + in_block;
      typename E::ColumnPartials gathered;
      if (in_block < params.block_columns) {
        const auto along = E::load_row(p, at.batch, column);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (at.row + 8 * half >= params.block_rows) continue;
          const float pair[2] = {x[j][2 * half], x[j][2 * half + 1]};
          typename E::Outputs out;
          E::apply(p, row + 8 * half, column, pair, scalars, along, columns[half],
                   E::load_tile(p, at.batch, row + 8 * half, column), out, rows[half], gathered);
          Main::take(out, x[j][2 * half], x[j][2 * half + 1]);
          Main::store_rest(p, at.batch, row + 8 * half, column, out);
        }
      }
      if constexpr (E::has_column_partials) {  // of the 16 rows of this warp
#pragma unroll
        for (int mask = 4; mask < 32; mask *= 2) E::merge(gathered, E::from_lane(gathered, mask));
        const int first_row = row - static_cast<int>(threadIdx.x) % 32 / 4;
        if (threadIdx.x % 32 < 4 && in_block < params.block_columns &&
            at.row - (row - first_row) < params.block_rows)
          E::store_column_partials(p, at.batch, first_row / 16, column, gathered);
      }
    }
  }

  template <class P>
  __device__ void finish(const P& params, const Place& at, int tile_column) {
    if constexpr (E::has_row_partials) {
      const int block = at.block_column / params.block_columns * params.tile_columns + tile_column;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        E::merge(rows[half], E::from_lane(rows[half], 1));
        E::merge(rows[half], E::from_lane(rows[half], 2));
        if (threadIdx.x % 4 == 0 && at.row + 8 * half < params.block_rows)
          E::store_row_partials(params.epilogue, at.batch, at.block_row + at.row + 8 * half, block,
                                rows[half]);
      }
    }
  }
};
