// What happens to a value between the accumulator and the output.
//
// An epilogue object lives for 64 rows of a tile. `apply` changes, in place, the values of a thread:
// x[j] holds (row, column + 8j), (row, column + 8j + 1), then the same at row + 8. `finish` writes
// what was gathered over the tile's columns, `close` says so for all rows of the tile.
//
// One that `loads` operands gets them as values: Rows, for its 64 rows, and Operands, for a subtile of
// n pieces; `prefetch` brings what a row of a tile needs to L2, see Store. With `further` outputs beside
// the first, its `apply` also fills pairs of them: more[i][j][0] at row, more[i][j][1] at row + 8. One
// that `closes` completes the results of rows: `close`.
#pragma once
#include "types.cuh"

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
