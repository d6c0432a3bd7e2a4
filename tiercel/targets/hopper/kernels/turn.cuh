// A copy of a float32 matrix in the other order, at the bandwidth of a copy: TF32 is read along K only.
#pragma once
#include "ptx.cuh"

// Mirrored by ../operands/turned.py. Strides in elements.
struct Turn {
  const float* from;  // rows × columns, rows contiguous
  float* to;          // columns × rows, likewise
  long long from_stride, to_stride;
  int rows, columns;
};

constexpr int turn_side = 64, turn_threads = 256;

// A thread block for each square: rows of 64 values pass through shared memory, whose padding lets a
// warp read them down a column without two lanes in a bank.
__device__ inline void turn(const Turn& p) {
  __shared__ float square[turn_side][turn_side + 1];
  constexpr int step = turn_threads / turn_side, each = turn_side / step;
  const int across = (p.columns + turn_side - 1) / turn_side;
  const int row = static_cast<int>(blockIdx.x) / across * turn_side;
  const int column = static_cast<int>(blockIdx.x) % across * turn_side;
  const int x = static_cast<int>(threadIdx.x) % turn_side, y = static_cast<int>(threadIdx.x) / turn_side;
  float value[each];  // all on their way at once
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int down = row + y + i * step;
    value[i] = down < p.rows && column + x < p.columns ? p.from[down * p.from_stride + column + x] : 0;
  }
#pragma unroll
  for (int i = 0; i < each; ++i) square[y + i * step][x] = value[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int down = column + y + i * step;
    if (down < p.columns && row + x < p.rows)
      p.to[down * p.to_stride + row + x] = square[x][y + i * step];
  }
}
