// Which output tile comes next: a persistent walk over all tiles, grouped for reuse in L2.
#pragma once
#include "ptx.cuh"

struct Tile {
  int m, n, batch;  // in units of this CTA's tile; batch as is
};

// Cluster i of the grid takes walk positions i, i + clusters, i + 2·clusters, … A walk goes down
// `group` rows of cluster tiles, then one column on: 8 rows × 8 columns in flight at a time read
// 16 panels for 64 tiles, where a plain row-major walk reads 65.
template <class C>
struct Scheduler {
  int rows, columns, group, total;  // of cluster tiles
  int position, stride;
  int m_rank, n_rank;

  template <class P>
  __device__ Scheduler(const P& params, u32 rank)
      : rows(params.cluster_rows), columns(params.cluster_columns), group(params.group),
        total(params.cluster_rows * params.cluster_columns * params.batches),
        position(blockIdx.x / C::cluster), stride(gridDim.x / C::cluster),
        m_rank(rank % C::cluster_m), n_rank(rank / C::cluster_m) {}

  __device__ bool valid() const { return position < total; }
  __device__ void stop() { position = total; }
  __device__ void skip(int tiles) { position += tiles * stride; }

  __device__ Tile tile() const {
    const int batch = position / (rows * columns);
    const int in_batch = position - batch * rows * columns;
    const int band = in_batch / (group * columns);
    const int in_band = in_batch - band * group * columns;
    const int height = min(group, rows - band * group);
    const int column = in_band / height;
    const int row = band * group + in_band - column * height;
    return {row * C::cluster_m + m_rank, column * C::cluster_n + n_rank, batch};
  }
};
