// Planes that are combined inside the product, by warps that have nothing else to do. A warp's item is
// 8 rows × 32 vectors; 32 items make a square, a panel of rows (of M or N) by a span of K. Items go by
// bands of panels, and in a band by K: the product that first needs them walks along K as well.
#pragma once
#include "combine.cuh"
#include "memory.cuh"

template <bool first, class A, class B>
struct Choose {
  using Type = A;
};
template <class A, class B>
struct Choose<false, A, B> {
  using Type = B;
};
template <bool first, class A, class B>
using Choice = typename Choose<first, A, B>::Type;

struct Squares {
  static constexpr int side = 256, items = 32, rows = side / items, vectors = 32;
  static constexpr int k_tiles = 4;  // of a span: 512 bytes, or 256 rows of 16-bit values
};

// Rows on their way through a warp's part of shared memory, `room` bytes: registers for that do not
// exist beside the accumulators.
template <int blocks, int room>
struct RowBuffer {
  static constexpr bool wide = room >= 2 * blocks * Squares::vectors * 16;
  using Vector = Choice<wide, uint4, uint2>;
  static constexpr int row = blocks * 32 * sizeof(Vector);
  static constexpr int depth = room / row < Squares::rows ? room / row : Squares::rows - 1;
  static_assert(depth >= 2);
};

// Warps that combine, each every `workers`-th item of those that are theirs: `mine` of 16 that follow one
// another, behind the first `others`. Mirrored by ../fused/params.py.
struct Crew {
  int workers, left_workers;  // the first of them combine A, the others B
  int others, mine;
  __device__ int item(int index) const { return index / mine * 16 + others + index % mine; }
};

// Where an item begins.
struct Item {
  int row, column;
};

// The counter of its square.
template <bool mn_major, int blocks>
__device__ int counter_of(const Combination<blocks>& p, const Item& item) {
  const int down = item.row / Squares::side, across = item.column / Squares::vectors;
  return mn_major ? across * p.squares_down + down : down * p.squares_across + across;
}

template <bool mn_major, int blocks>
__device__ Item item_at(const Combination<blocks>& p, int index) {
  const int panels = mn_major ? p.squares_across : p.squares_down;
  const int spans = mn_major ? p.squares_down : p.squares_across;
  const int square = index / Squares::items;
  const int band = square / (p.band * spans);
  const int width = min(p.band, panels - band * p.band);
  const int in_band = square - band * p.band * spans;
  const int span = in_band / width;
  const int panel = band * p.band + in_band - span * width;
  return {(mn_major ? span : panel) * Squares::side + index % Squares::items * Squares::rows,
          (mn_major ? panel : span) * Squares::vectors};
}

// The items `worker`, `worker` + `workers`, … of a crew's. Each is worked out once, which takes five
// divisions, and its rows are prefetched into L2 while the one before it is fetched: what is on its way
// to shared memory alone does not cover memory's latency.
template <bool mn_major, bool prefetches, int blocks>
struct Items {
  const Combination<blocks>& p;
  const Crew& crew;
  int index, step, total;
  Item item;  // number `index`

  __device__ Items(const Combination<blocks>& p, const Crew& crew, int worker, int workers)
      : p(p), crew(crew), index(worker), step(workers),
        total(p.squares_down * p.squares_across * Squares::items / 16 * crew.mine) {
    find();
  }
  __device__ bool valid() const { return index < total; }
  __device__ void advance() {
    index += step;
    find();
  }

 private:
  __device__ void find() {
    if (!valid()) return;
    item = item_at<mn_major>(p, crew.item(index));
    if constexpr (prefetches) prefetch();
  }
  __device__ void prefetch() const {
#pragma unroll
    for (int i = threadIdx.x % 32; i < blocks * Squares::rows; i += 32) {
      const int row = item.row + i % Squares::rows;
      if (row >= p.rows || item.column + Squares::vectors > p.columns) continue;
      const uint4* from =
          p.operand + p.offset[i / Squares::rows] + row * p.row_stride + item.column;
#pragma unroll
      for (int line = 0; line < Squares::vectors; line += 8) prefetch_line(from + line);
    }
  }
};

// A row of an item, of which a lane has a vector of each block, in one step or in two.
template <class Vector, int blocks>
struct RowCursor {
  static constexpr int steps = sizeof(uint4) / sizeof(Vector);  // of a row
  static constexpr int length = steps * Squares::rows;          // of an item
  const Combination<blocks>& p;
  bool valid;
  int within = 0;  // in steps
  Item item;

  __device__ bool inside() const { return valid & (row() < p.rows) & (column() < columns()); }
  __device__ int row() const { return item.row + within / steps; }
  // In units of Vector, this lane's and all.
  __device__ int column() const { return steps * item.column + within % steps * 32 + lane(); }
  __device__ int columns() const { return steps * p.columns; }
  __device__ static int lane() { return threadIdx.x % 32; }
  __device__ bool last() const { return within == length - 1; }
  __device__ void go_to(bool exists, const Item& next) {
    within = 0;
    valid = exists;
    item = next;
  }
};

// Each lane fetches what it will use itself: no barrier is needed.
template <class Vector, int blocks>
__device__ void fetch_row(const RowCursor<Vector, blocks>& at, u32 buffer) {
  const bool inside = at.inside();
  const uint4* row = at.p.operand + at.row() * at.p.row_stride;
#pragma unroll
  for (int i = 0; i < blocks; ++i)
    async_copy(buffer + i * 32 * sizeof(Vector),
               reinterpret_cast<const Vector*>(row + at.p.offset[i]) + at.column(), inside);
  async_copy_commit();
}

// `fetch_next`: another row into the buffer, once this one is in registers.
template <class Element, class Sums, bool exact, bool measures, bool gained, class Vector, int blocks,
          class Next>
__device__ void combine_row(const RowCursor<Vector, blocks>& at, u32 buffer, u32 gains, u32& bad,
                            Extremes& seen, HalfExtremes& halves, Next fetch_next) {
  constexpr int count = Values<Element, Vector>::count, lanes = Extremes::segment / count;
  const Combination<blocks>& p = at.p;
  const bool inside = at.inside();
  const bool measured = measures && at.row() < p.rows;
  const int segment = max(min(at.columns() - at.column() / lanes * lanes, lanes), 0) * count;
  Vector* target = reinterpret_cast<Vector*>(p.planes + static_cast<long long>(at.row()) * p.columns) +
                   at.column();
  Vector in[blocks];
#pragma unroll
  for (int i = 0; i < blocks; ++i) {
    shared_load(buffer + i * 32 * sizeof(Vector), in[i]);
  }
  if constexpr (exact) {
    fetch_next();
    if (measured) seen.take<Element>(in, segment);
    if (inside) combine_plane<Element, Sums, 0>(p, in, p.scale, target, bad);
  } else {
    f16x2 pairs[words<Vector>][blocks];
#pragma unroll
    for (int i = 0; i < blocks; ++i)
#pragma unroll
      for (int pair = 0; pair < words<Vector>; ++pair) {
        u32 both = (&in[i].x)[pair];
        if constexpr (gained) both = bf16::times(both, gains);
        pairs[pair][i].pair = Element::to_f16(both);
      }
    fetch_next();
    if (measured) halves.take(pairs, segment);
    constexpr bool watched = !(measures && Sums::simple);
    u32 most = 0;
    if (inside) combine_plane_f16<Sums, watched, 0>(p, pairs, target, most);
    if constexpr (watched) bad |= not_finite(most);
  }
}

// By one warp. `exact`: sums in float32, rounded once. `measured`: for the guard, whose registers are
// wanted elsewhere if not. `gained`: bfloat16 with a gain.
//
// Where K runs down the rows nothing is measured: a warp would have to combine 128 of them for a segment,
// and with lanes of 8 bytes, to have registers for the sums, that was 0.96 instead of 1.08 times the vendor
// at 8192³.
template <class Element, class Sums, bool mn_major, bool exact, bool measured, bool gained, int room,
          int blocks>
__device__ void combine_items(const Combination<blocks>& p, u32 buffer, const Crew& crew, int worker,
                              int workers) {
  using Buffer = RowBuffer<blocks, room>;
  using Vector = typename Buffer::Vector;
  using Cursor = RowCursor<Vector, blocks>;
  static_assert(Buffer::depth <= Cursor::length);  // who fetches is in the same item or in the next
  constexpr bool measures = measured && !mn_major;
  const int lane = Cursor::lane();
  const u32 base = buffer + lane * sizeof(Vector), end = base + Buffer::depth * Buffer::row;
  u32 bad = 0;
  Extremes seen;
  HalfExtremes halves;
  Items<mn_major, Buffer::depth < Squares::rows - 1, blocks> items(p, crew, worker, workers);
  Cursor now{p, items.valid(), 0, items.item}, ahead = now;
  items.advance();
  auto step_ahead = [&] {
    if (++ahead.within == Cursor::length) {
      ahead.go_to(items.valid(), items.item);
      items.advance();
    }
  };
#pragma unroll 1
  for (u32 to = base; to != end; to += Buffer::row) {
    fetch_row(ahead, to);
    step_ahead();
  }
  int* done = nullptr;         // counter of an item that is finished
  const u32 gains = gained ? bf16::pack(p.gain.value(), p.gain.value()) : 0;
  // TMA reads the planes: who waits for the count fences that. Counting waits for what was stored,
  // which has had time meanwhile.
  auto count_done = [&] {
    __syncwarp();
    if (done != nullptr && lane == 0) count_up(done);
    done = nullptr;
  };
  for (u32 from = base; now.valid;) {
    async_copy_wait<Buffer::depth - 1>();
    count_done();
    combine_row<Element, Sums, exact, measures, gained>(now, from, gains, bad, seen, halves,
                                                        [&] { fetch_row(ahead, from); });
    step_ahead();  // here, where few registers are in use
    from = from + Buffer::row == end ? base : from + Buffer::row;
    if (now.last()) {
      done = p.ready + 1 + counter_of<mn_major>(p, now.item);
      now.go_to(ahead.valid, ahead.item);
    } else {
      ++now.within;
    }
  }
  if constexpr (measures && !exact) {
    halves.add_to(seen);
    if (Sums::simple) bad |= halves.overflows();
  }
  if (bad) Extremes::refuse(p.record);
  if (measures) seen.add_to(p.record, gained ? p.gain.value() : 1);
  async_copy_wait<0>();
  count_done();
  if (lane == 0) count_up(p.ready);  // this worker is done
}

// Before a product reads planes that are being combined: have all workers finished? Else wait for
// the next `width` spans of its panel, four k-tiles each.
struct Readiness {
  static constexpr int width = 4;
  static constexpr int patience = 1 << 18;  // looks, 0.2 s or more

  static __device__ bool all(const int* ready, int workers) { return acquire_load(ready) == workers; }

  // All thread blocks are resident at once, unless something else holds multiprocessors for long. Then
  // the operand is refused, and what is multiplied here does not matter.
  static __device__ void wait(const int* spans, int number, u32* record) {
    for (int looks = 0; looks < patience; ++looks) {
      int least = Squares::items;
#pragma unroll
      for (int i = 0; i < width; ++i)
        if (i < number) least = min(least, acquire_load(spans + i));
      if (least == Squares::items) {
        proxy_fence();
        return;
      }
      pause();
    }
    Extremes::refuse(record);
  }
};
