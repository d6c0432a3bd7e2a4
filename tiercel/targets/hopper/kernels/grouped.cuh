// Groups of rows of A, each with its own B: D[rows of g] = A[rows of g] · B[g].
//
// Where a group ends is known on the device only. Each CTA counts the tiles of all groups once, in
// shared memory; a walk position is then looked up there. A tile may reach into the rows of the next
// group: it multiplies them, too, and does not store them.
//
// A cluster of two CTAs in M takes two rows of tiles, which share B, and of a group's odd last row two
// columns, which share A.
#pragma once
#include "memory.cuh"
#include "scheduler.cuh"

// Mirrored by ../products/grouped.py.
struct Groups {
  static constexpr int most = 512;
  static constexpr int table_bytes = (most + 1) * 4;

  const int* ends;      // row behind the last of each group; of 64-bit numbers the low words
  char* d;
  long long row_bytes;  // of D
  int step;             // words from one end to the next
  int count;
  int rows;             // of A and D

  // Whatever the numbers are, rows outside D are never touched.
  __device__ int end(int group) const { return min(max(ends[group * step], 0), rows); }
  __device__ int start(int group) const { return group == 0 ? 0 : end(group - 1); }
};

template <class C>
struct GroupedScheduler {
  const Groups& groups;
  int* before;  // [g]: cluster tiles before group g; [count]: all
  int columns, band, total;
  int position, stride;
  int m_rank, n_rank;
  int group = 0;  // of the last tile: positions only grow

  template <class P>
  __device__ GroupedScheduler(const P& params, u32 rank, void* table)
      : groups(params.groups), before(static_cast<int*>(table)), columns(params.cluster_columns),
        band(params.group), total(0), position(blockIdx.x / C::cluster),
        stride(gridDim.x / C::cluster), m_rank(rank % C::cluster_m), n_rank(rank / C::cluster_m) {}

  // By all threads of the CTA, once the offsets are there.
  __device__ void open() {
    if (threadIdx.x == 0) before[0] = 0;
    for (int g = threadIdx.x; g < groups.count; g += blockDim.x) {
      const int all = rows(g);
      before[g + 1] = all / C::cluster_m * columns + all % C::cluster_m * ((columns + 1) / 2);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      int sum = 0;
      for (int first = 0; first < groups.count; first += 32) {
        const int g = first + threadIdx.x;
        int x = g < groups.count ? before[g + 1] : 0;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
          const int below = __shfl_up_sync(0xffffffffu, x, step);
          if (threadIdx.x >= step) x += below;
        }
        x += sum;
        if (g < groups.count) before[g + 1] = x;
        sum = __shfl_sync(0xffffffffu, x, 31);
      }
    }
    __syncthreads();
    total = before[groups.count];
  }

  // Is there a tile here, or `ahead` turns on?
  __device__ bool valid(int ahead = 0) const { return position + ahead * stride < total; }
  __device__ void skip(int tiles) { position += tiles * stride; }

  __device__ Tile tile() {
    for (int last = groups.count - 1; group < last;) {  // the first group that ends behind it
      const int middle = (group + last) / 2;
      if (before[middle + 1] > position) last = middle;
      else group = middle + 1;
    }
    const int start = groups.start(group), end = groups.end(group);
    const int in_group = position - before[group], whole = rows(group) / C::cluster_m;
    if (C::cluster_m > 1 && in_group >= whole * columns)
      return {start + whole * C::cluster_m * C::tile_m, 2 * (in_group - whole * columns) + m_rank,
              group, end, true};
    const Band at(in_group, whole, columns, band);
    return {start + (at.row * C::cluster_m + m_rank) * C::tile_m, at.column * C::cluster_n + n_rank,
            group, end};
  }

 private:
  // of tiles
  __device__ int rows(int group) const {
    return (max(groups.end(group) - groups.start(group), 0) + C::tile_m - 1) / C::tile_m;
  }
};

// What an epilogue sees of the parameters: the rows of D end where the tile's group does.
template <class EpilogueParams>
struct Limited {
  const EpilogueParams& epilogue;
  int block_rows, block_columns, tile_columns;
};

template <class C, class P>
__device__ decltype(auto) limited(const P& params, const Tile& tile) {
  if constexpr (C::grouped)
    return Limited<decltype(params.epilogue)>{params.epilogue, tile.end, params.block_columns,
                                              params.tile_columns};
  else return (params);
}

// The first `rows` rows of a staged subtile (see store.cuh) to D, 16 bytes a thread: TMA would store
// all 64.
__device__ inline void store_rows(const Groups& groups, u32 staged, int row, int rows, int byte,
                                  int row_end, int thread) {
#pragma unroll 1
  for (int i = thread; i < rows * 8; i += 128) {
    const int r = i / 8, at = byte + i % 8 * 16;
    if (at < row_end)
      *reinterpret_cast<uint4*>(groups.d + (row + r) * groups.row_bytes + at) =
          shared_load(staged + r * 128 + (i % 8 ^ r % 8) * 16);
  }
}

// Zeros in the rows behind the last group, by `threads` threads of each CTA.
__device__ inline void clear_rest(const Groups& groups, int row_end, int thread, int threads) {
  const int chunks = row_end / 16;
  for (int row = groups.end(groups.count - 1) + blockIdx.x; row < groups.rows; row += gridDim.x)
    for (int i = thread; i < chunks; i += threads)
      *reinterpret_cast<uint4*>(groups.d + row * groups.row_bytes + i * 16) = uint4{};
}
