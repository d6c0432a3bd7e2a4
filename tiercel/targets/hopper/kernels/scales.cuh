// Scales of float8 operands: one number for both, one of each row and column, or one for each block
// of 128 values of K, applied to sums of 128 products. Such a block of B has 128 columns, or one.
#pragma once
#include "mainloop.cuh"
#include "memory.cuh"

// Mirrored by ../operands/scales.py. Strides in elements, 0 where one scale is for all.
struct Scales {
  const float *a, *b;
  long long a_row_stride, a_k_stride;     // row of A, block of K
  long long b_k_stride, b_column_stride;  // block of K; column of B, or block of columns
};

template <class P>
__device__ float number_scale(const P& params) {
  return *params.scales.a * *params.scales.b;
}

// Of rows and columns. They are copied to shared memory while the products run: loaded into registers
// before the products they would be waited for there.
template <class C>
struct VectorScales {
  static constexpr int rows = 64 * C::blocks;
  u32 of_columns, of_rows;  // shared addresses, this consumer's

  template <class P>
  __device__ VectorScales(const Consumer<C>& tile, const P& params)
      : of_columns(tile.pipe.base + Layout<C>::scales + tile.group * (C::tile_n + rows) * 4),
        of_rows(of_columns + C::tile_n * 4) {
    const Scales& s = params.scales;
    const int first_row = tile.tile.row + tile.first_row(), first_column = tile.tile.n * C::tile_n;
    tile.sync();  // those of the tile before have been read
    // What lies outside is not stored: any scale will do.
#pragma unroll
    for (int i = tile.thread; i < C::tile_n; i += 128)
      async_copy_word(of_columns + i * 4, s.b + min(first_column + i, params.block_columns - 1) *
                                                    s.b_column_stride);
    if (tile.thread < rows)
      async_copy_word(of_rows + tile.thread * 4,
                      s.a + min(first_row + tile.thread, params.block_rows - 1) * s.a_row_stride);
    async_copy_commit();
  }

  __device__ void apply(const Consumer<C>& tile, Accumulator<C>& acc) const {
    async_copy_wait<0>();
    tile.sync();
    float row[C::blocks][2];
#pragma unroll
    for (int block = 0; block < C::blocks; ++block)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        row[block][half] = __uint_as_float(
            shared_load_word(of_rows + (64 * block + 8 * half + row_of(tile.thread)) * 4));
#pragma unroll
    for (int j = 0; j < C::tile_n / 8; ++j) {
      const float2 pair = shared_load_pair(of_columns + (8 * j + tile.thread % 4 * 2) * 4);
#pragma unroll
      for (int block = 0; block < C::blocks; ++block)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          acc[block][4 * j + 2 * half] *= row[block][half] * pair.x;
          acc[block][4 * j + 2 * half + 1] *= row[block][half] * pair.y;
        }
    }
  }
};

// For Consumer::multiply_promoted, `add`: part of acc (=|+=) scales · sums. Sums taken as they are,
struct NoScales {
  static constexpr bool late = false;  // are scales still read when the products are done?
  __device__ void read(int) {}
  template <From from, int n>
  __device__ void add(float* acc, const float (&sum)[n], int, int) const {
#pragma unroll
    for (int i = 0; i < n; ++i) acc[i] = from == From::zero ? sum[i] : acc[i] + sum[i];
  }
};

// or scaled by what lies beside the operands in the ring: numbers for rows of A, and for blocks of
// 128 columns of B or, where C::column_scales, for columns.
template <class C>
struct BlockScales {
  static constexpr bool late = C::column_scales;
  static constexpr int parts = C::tile_n / C::wgmma_n;
  u32 a_scales, b_scales;  // of stage 0
  u32 columns;             // of this stage
  float a[C::blocks][2], b[parts];

  __device__ explicit BlockScales(const Consumer<C>& tile)
      : a_scales(tile.pipe.scales(0) + (tile.first_row() + row_of(tile.thread)) * 4),
        b_scales(tile.pipe.scales(0) + C::tile_m * 4 +
                 (C::column_scales ? tile.thread % 4 * 8 : 0)) {}

  __device__ void read(int stage) {
    const u32 at = stage * Layout<C>::scales_stage;
#pragma unroll
    for (int block = 0; block < C::blocks; ++block)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        a[block][half] =
            __uint_as_float(shared_load_word(a_scales + at + (64 * block + 8 * half) * 4));
    if constexpr (C::column_scales) {
      columns = b_scales + at;
    } else {
#pragma unroll
      for (int part = 0; part < parts; ++part)
        b[part] = __uint_as_float(shared_load_word(b_scales + at + part * 4));
    }
  }

  template <From from, int n>
  __device__ void add(float* acc, const float (&sum)[n], int block, int part) const {
#pragma unroll
    for (int i = 0; i < n; i += 4) {
      float2 of_columns;
      if constexpr (C::column_scales)
        of_columns = shared_load_pair(columns + (part * C::wgmma_n + 2 * i) * 4);
      else of_columns = {b[part], b[part]};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float &low = acc[i + 2 * half], &high = acc[i + 2 * half + 1];
        low = fmaf(a[block][half] * of_columns.x, sum[i + 2 * half], from == From::zero ? 0 : low);
        high = fmaf(a[block][half] * of_columns.y, sum[i + 2 * half + 1],
                    from == From::zero ? 0 : high);
      }
    }
  }
};

// One warp copies the scales of each stage, of any strides, and another one those of columns. Loaded
// into registers by the threads that use them, even one block of K ahead, they came too late: 0.92
// instead of 1.05 of cuBLAS at 8192³.
template <bool of_columns, class C, class Schedule, class P>
__device__ void load_block_scales(const Pipeline<C>& pipe, Schedule schedule, const P& params,
                                  int lane) {
  constexpr int each = (of_columns ? C::tile_n : C::tile_m) / 32;
  const Scales& s = params.scales;
  const float* first = of_columns ? s.b : s.a;
  const long long stride = of_columns ? s.b_column_stride : s.a_row_stride;
  const long long k_stride = of_columns ? s.b_k_stride : s.a_k_stride;
  const int last = (of_columns ? params.block_columns : params.block_rows) - 1;
  Stage<C> stage;
  for (; schedule.valid(); schedule.skip(1)) {
    const Tile tile = schedule.tile();
    const int start = of_columns ? tile.n * C::tile_n : tile.row;
    const float* from[each];
#pragma unroll
    for (int i = 0; i < each; ++i) from[i] = first + min(start + lane + 32 * i, last) * stride;
    const int column = tile.n * C::tile_n + lane * C::wgmma_n;  // of a part, for some lanes
    const float* b = s.b + min(column, params.block_columns - 1) / 128 * s.b_column_stride;
#pragma unroll 1
    for (int k = 0; k < params.k_tiles; ++k) {
      mbarrier_wait(pipe.empty(stage.index), stage.phase ^ 1);
      const u32 target = pipe.scales(stage.index) + (lane + (of_columns ? C::tile_m : 0)) * 4;
#pragma unroll
      for (int i = 0; i < each; ++i) {
        async_copy_word(target + 128 * i, from[i]);
        from[i] += k_stride;
      }
      if constexpr (!C::column_scales) {
        if (lane < C::tile_n / C::wgmma_n) async_copy_word(target + C::tile_m * 4, b);
        b += s.b_k_stride;
      }
      async_copy_arrive(pipe.full(stage.index));
      stage.advance();
    }
  }
}
