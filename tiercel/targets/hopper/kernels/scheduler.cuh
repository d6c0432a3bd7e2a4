// Which output tile comes next: a persistent walk over all tiles, grouped for reuse in L2.
#pragma once
#include "types.cuh"

struct Tile {
  int row;       // first row of A and D
  int n, batch;  // in units of this CTA's tile; batch as is
  int end;       // D's rows from here on are another tile's, whatever this one's height
  bool beside = false;  // the cluster's CTAs have columns side by side, whatever the cluster is
};

// What a cluster does of a tile where several share it, see stream_k.cuh.
struct Share {
  int first, count;        // k-tiles, in the order of the walk
  bool gives = false;      // its sums to another cluster, or
  int slot = 0, sums = 0;  // adds those of others: the first one's place, and how many
};

// Walk position → cluster tile of a matrix. A walk goes down `group` rows of cluster tiles, then one
// column on: 8 rows × 8 columns in flight at a time read 16 panels for 64 tiles, where a plain
// row-major walk reads 65.
struct Band {
  int row, column;

  __device__ Band(int position, int rows, int columns, int group) {
    const int band = position / (group * columns);
    const int in_band = position - band * group * columns;
    const int height = min(group, rows - band * group);
    column = in_band / height;
    row = band * group + in_band - column * height;
  }
};

// Cluster i of the grid takes walk positions i, i + clusters, i + 2·clusters, …
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

  // Is there a tile here, or `ahead` turns on?
  __device__ bool valid(int ahead = 0) const { return position + ahead * stride < total; }
  __device__ void skip(int tiles) { position += tiles * stride; }

  __device__ Tile tile() const { return tile_at(position); }

  __device__ Tile tile_at(int position) const {
    const int batch = position / (rows * columns);
    const Band at(position - batch * rows * columns, rows, columns, group);
    return {(at.row * C::cluster_m + m_rank) * C::tile_m, at.column * C::cluster_n + n_rank, batch,
            0x7fffffff};
  }
};
