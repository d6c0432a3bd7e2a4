// A block of the output whose epilogue is still to be computed, in a kernel with a scheme: it is saved
// like a sum, and a part of its columns goes through the epilogue beside each of the k-tiles that
// follow. So no tensor core waits for an epilogue, and no register holds a block meanwhile: each thread
// fetches what it wrote itself, one step before it needs it.
#pragma once
#include "slots.cuh"
#include "store.cuh"

template <class C, bool postpones = C::Epilogue::loads>
struct Pending {
  using Epilogue = typename C::Epilogue;
  static constexpr int pieces = Store<C>::pieces;  // of a step, in a thread's fragment
  static constexpr int steps = Store<C>::subtiles;
  static constexpr int outputs = Store<C>::outputs;
  static constexpr int bytes = 64 * Store<C>::pitch;  // of an output's step
  static constexpr int ring = C::subtiles_staged * Layout<C>::subtile / bytes;
  static_assert(C::blocks == 1 && pieces % 2 == 0);

  int next = steps;  // step
  int block;         // of the output grid
  int tile_row, tile_n;
  char* kept;        // where the block is
  bool exact;        // as float32, not as float16
  float factor;      // of float16
  int buffer = 0;
  Epilogue epilogue;  // what is gathered of the tile's rows
  bool last = false;  // with this thread's rows the row results are complete

  // What one step reads, fetched during the one before.
  struct Fetched {
    u32 pair[2 * pieces];  // not of float32
    typename Epilogue::Rows rows;
    typename Epilogue::template Operands<pieces> operands;
  };

  // The block has been saved in `slot`.
  __device__ void keep(char* slot, float unscale) {
    kept = slot;
    factor = unscale;
    exact = false;
  }

  // Keeps float32, all at once, in the places of the saved sums of a scheme that is not used.
  __device__ void keep(const Consumer<C>& consumer, const Accumulator<C>& acc) {
    kept = slot_of(consumer, 0);
    exact = true;
#pragma unroll
    for (int v = 0; v < C::tile_n / 8; ++v) {
      const float* x = &acc[0][4 * v];
      write_vector(kept, consumer, v, {__float_as_uint(x[0]), __float_as_uint(x[1]),
                                       __float_as_uint(x[2]), __float_as_uint(x[3])});
    }
  }

  // From now on `block` of the consumer's tile is pending, which is being kept.
  template <class P>
  __device__ void begin(const Consumer<C>& consumer, const P& p, int of) {
    next = 0;
    block = of;
    tile_row = consumer.tile.row;
    tile_n = consumer.tile.n;
    epilogue = {};
    Place at = place(consumer, p);
    at.row = tile_row + consumer.first_row() + consumer.thread;
    at.column = tile_n * C::tile_n;
    if (consumer.thread < 64) Epilogue::prefetch(p, at, C::tile_n);
  }

  // Whether a step is to be done beside k-tile k. What a thread asks for comes behind all that TMA has
  // asked for before, two or three stages of the ring: 2,000 cycles, where a k-tile takes 1,024. So a
  // step every four k-tiles, or every two where products of `k_tiles` leave no time for that, and of
  // one consumer at a time.
  static __device__ bool is_due(int k, int group, int k_tiles) {
    const int half = k_tiles < 6 * steps ? 1 : 2;
    return k > 4 && (k + half * group & 2 * half - 1) == half;
  }

  // To be called some k-tiles before the first beside which a step is done.
  template <class P>
  __device__ Fetched fetch(const Consumer<C>& consumer, const P& p) const {
    Fetched found{};
    if (next == steps) return found;
    found.rows = Epilogue::load_rows(p, place(consumer, p));
    fetch_step(consumer, p, found);
    return found;
  }

  // Beside a k-tile.
  template <class P>
  __device__ void step(const Consumer<C>& consumer, const P& p, Fetched& found) {
    if (next == steps) return;
    const int first = next * Store<C>::span;
    float x[pieces][4];
    if (opaque(exact)) {
#pragma unroll
      for (int j = 0; j < pieces; ++j) {
        u32 word[4];
        global_load_if(true, vectors_in(kept, consumer) + (next * pieces + j) * vector_pitch<C>, word);
#pragma unroll
        for (int i = 0; i < 4; ++i) x[j][i] = __uint_as_float(word[i]) * p.alpha;
      }
    } else {
#pragma unroll
      for (int j = 0; j < pieces; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          x[j][2 * half] = f16::low(found.pair[2 * j + half]) * factor;
          x[j][2 * half + 1] = f16::high(found.pair[2 * j + half]) * factor;
        }
    }
    u32 more[Epilogue::further + 1][pieces][2];
    const Place at = place(consumer, p);
    Epilogue::settle(found.operands);
    epilogue.apply(x, more, found.rows, found.operands, p, at, first);
    if constexpr (Epilogue::staged)
      send(consumer, p, 0, first, [&](u32 target) { Store<C>::stage(target, x, consumer.thread); });
#pragma unroll
    for (int i = 0; i < Epilogue::further; ++i)
      send(consumer, p, 1 + i, first,
           [&](u32 target) { Store<C>::stage_pairs(target, more[i], consumer.thread); });
    // Behind the stores, whose fences would wait for it.
    if (++next < steps) {
      fetch_step(consumer, p, found);
    } else {
      epilogue.finish(p, at, tile_n);
      if constexpr (Epilogue::closes) last = Epilogue::template arrive<16>(p, of_warp(at), tile_n, 1);
    }
  }

  // What is left, while nothing is multiplied. Who came last of all tiles completes its rows.
  template <class P>
  __device__ void finish(const Consumer<C>& consumer, const P& p) {
    if (next < steps) {
      Fetched found = fetch(consumer, p);
#pragma unroll 1
      do step(consumer, p, found);
      while (next < steps);
    }
    if constexpr (Epilogue::closes) {
      if (__any_sync(0xffffffffu, last)) Epilogue::template complete<16, 8>(p, of_warp(place(consumer, p)), tile_n, last);
      last = false;
    }
    // Together again: ptxas serialises the tensor core instructions otherwise (13.0, its note C7520).
    named_sync(1 + consumer.group, 128);
  }

 private:
  static __device__ Place of_warp(Place of_thread) {
    of_thread.row -= static_cast<int>(threadIdx.x) % 32 / 4;
    return of_thread;
  }

  template <class P>
  __device__ Place place(const Consumer<C>& consumer, const P& p) const {
    return {0, block / C::grid_columns * p.block_rows, block % C::grid_columns * p.block_columns,
            tile_row + consumer.first_row() + row_of(consumer.thread),
            tile_n * C::tile_n + consumer.thread % 4 * 2};
  }

  template <class P>
  __device__ void fetch_step(const Consumer<C>& consumer, const P& p, Fetched& found) const {
    char* from = vectors_in(kept, consumer) + next * (pieces / 2) * vector_pitch<C>;
#pragma unroll
    for (int v = 0; v < pieces / 2; ++v)
      global_load_if(!opaque(exact), from + v * vector_pitch<C>, &found.pair[4 * v]);
    found.operands = Epilogue::template load<pieces>(p, place(consumer, p), next * Store<C>::span);
  }

  template <class P, class Fill>
  __device__ void send(const Consumer<C>& consumer, const P& p, int output, int first, Fill fill) {
    const u32 target = consumer.pipe.staging(consumer.group) + buffer * bytes;
    if (consumer.thread == 0) tma_store_wait_read<ring - 1>();
    __syncwarp();
    named_sync(1 + consumer.group, 128);
    fill(target);
    proxy_fence_shared();
    named_sync(1 + consumer.group, 128);
    if (consumer.thread == 0) {
      tma_store(p.d[block * outputs + output], target,
                (tile_n * C::tile_n + first) >> Epilogue::shrink, tile_row + consumer.first_row(), 0);
      tma_store_commit();
    }
    __syncwarp();
    buffer = (buffer + 1) % ring;
  }
};

// Without an epilogue blocks go straight to the output, see outbox.cuh.
template <class C>
struct Pending<C, false> {
  struct Fetched {};
  static __device__ bool is_due(int, int, int) { return false; }
  template <class P>
  __device__ Fetched fetch(const Consumer<C>&, const P&) const { return {}; }
  template <class P>
  __device__ void step(const Consumer<C>&, const P&, Fetched&) {}
  template <class P>
  __device__ void finish(const Consumer<C>&, const P&) {}
};
