// A block of the output whose epilogue is still to be computed, in a kernel with a scheme: it is saved
// like a sum, and a part of its columns goes through the epilogue beside each of the k-tiles that
// follow. So no tensor core waits for an epilogue, and no register holds a block meanwhile: each thread
// fetches what it wrote itself, one step before it needs it.
#pragma once
#include "memory.cuh"
#include "slots.cuh"
#include "store.cuh"
#include "tma.cuh"

template <class C, bool postpones = C::Epilogue::loads>
struct Pending {
  using Epilogue = typename C::Epilogue;
  static constexpr int pieces = Store<C>::pieces;  // of a step, in a thread's fragment
  static constexpr int steps = Store<C>::subtiles;
  static constexpr int outputs = Store<C>::outputs;
  static constexpr int bytes = 64 * Store<C>::pitch;  // of an output's step
  // Steps whose outputs have places in staging memory at a time; 0: not all outputs of a step.
  static constexpr int turns =
      outputs == 0 ? 1 : C::subtiles_staged * Layout<C>::subtile / bytes / outputs;
  static_assert(C::blocks == 1 && pieces % 2 == 0);

  int next = steps;  // step
  int block;         // of the output grid
  int tile_row, tile_n;
  char* kept;        // where the block is
  bool exact;        // as float32, not as float16
  float factor;      // of float16
  int buffer = 0;    // of staging memory, for all outputs of a step
  u32 left = 0;      // blocks whose rows were left to idle warps, see closing.cuh
  Epilogue epilogue;  // what is gathered of the tile's rows

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
  __device__ bool is_due(int k, int group, int k_tiles) const {
    const int half = k_tiles < 6 * steps ? 1 : 2;
    return next < steps && k > 4 && (k + half * group & 2 * half - 1) == half;
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
    Epilogue::settle(found.operands);
    epilogue.apply(x, more, found.rows, found.operands, p, place(consumer, p), first);
    if constexpr (turns > 0 && outputs > 0) {
      if constexpr (turns == 1) make_room<0>(consumer);
      fill<0, outputs>(consumer, x, more);
      send<0, outputs>(consumer, p);
    } else if constexpr (outputs > 0) {
      one_by_one<0>(consumer, p, x, more);
    }
    // Behind the stores, whose fences would wait for it.
    if (++next < steps) {
      fetch_step(consumer, p, found);
    } else {
      epilogue.finish(p, place(consumer, p), tile_n);
      if constexpr (Epilogue::closes) Closing<C>::hand_over(consumer, left);
    }
  }

  // What is left, while nothing is multiplied.
  template <class P>
  __device__ void finish(const Consumer<C>& consumer, const P& p) {
    if (next < steps) {
      Fetched found = fetch(consumer, p);
#pragma unroll 1
      do step(consumer, p, found);
      while (next < steps);
    }
    // Together again: ptxas serialises the tensor core instructions otherwise (13.0, its note C7520).
    consumer.sync();
  }

 private:
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

  // All threads of the consumer have come this far, and of all steps but the last `pending` what
  // left has been read.
  template <int pending>
  static __device__ void make_room(const Consumer<C>& consumer) {
    if (consumer.thread == 0) tma_store_wait_read<pending>();
    __syncwarp();
    consumer.sync();
  }

  __device__ u32 target(const Consumer<C>& consumer, int number) const {
    return consumer.pipe.staging(consumer.group) + (buffer * outputs + number) * bytes;
  }

  // Of a step's outputs, those from `begin` to `end`.
  template <int begin, int end, int m>
  __device__ void fill(const Consumer<C>& consumer, const float (&x)[pieces][4],
                       const u32 (&more)[m][pieces][2]) const {
    constexpr int staged = Epilogue::staged;
    if constexpr (staged && begin == 0) Store<C>::stage(target(consumer, 0), x, consumer.thread);
#pragma unroll
    for (int i = begin == 0 ? staged : begin; i < end; ++i)
      Store<C>::stage_pairs(target(consumer, i - begin), more[i - staged], consumer.thread);
  }

  template <int begin, int end, class P>
  __device__ void send(const Consumer<C>& consumer, const P& p) {
    proxy_fence_shared();
    if constexpr (turns > 1) make_room<turns - 2>(consumer);  // for the next step, too
    else consumer.sync();
    if (consumer.thread == 0) {
      const int column = (tile_n * C::tile_n + next * Store<C>::span) >> Epilogue::shrink;
#pragma unroll
      for (int i = begin; i < end; ++i)
        tma_store(p.d[block * outputs + i], target(consumer, i - begin), column,
                  tile_row + consumer.first_row(), 0);
      tma_store_commit();
    }
    __syncwarp();
    if constexpr (turns > 1) buffer = (buffer + 1) % turns;
  }

  // Where there are more outputs than places.
  template <int i, class P, int m>
  __device__ void one_by_one(const Consumer<C>& consumer, const P& p, const float (&x)[pieces][4],
                             const u32 (&more)[m][pieces][2]) {
    make_room<0>(consumer);
    fill<i, i + 1>(consumer, x, more);
    send<i, i + 1>(consumer, p);
    if constexpr (i + 1 < outputs) one_by_one<i + 1>(consumer, p, x, more);
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
