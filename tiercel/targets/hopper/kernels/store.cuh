// The epilogue: accumulator → output tile, through staging in shared memory and TMA stores.
#pragma once
#include "closing.cuh"
#include "epilogue.cuh"
#include "grouped.cuh"
#include "mainloop.cuh"
#include "memory.cuh"
#include "tma.cuh"

// A 64-row × 128-byte subtile is written to swizzled shared memory, then stored by one thread,
// while the next subtile is computed. TMA clips what lies outside the output.
//
// C::Epilogue changes the values of a subtile in place before that; see epilogue.cuh. `shrink` is 1
// where it makes one output column of two columns of the product. A subtile is `narrow`, 64 bytes wide,
// where the columns of a tile do not fill spans of 128 then (64 and 192 columns of 16 bits), where the
// accumulator leaves few registers, and where it is a step of what C `postpones` (pending.cuh).
// `further` outputs of the same type and size follow the first one, with their own tensor maps behind
// its.
//
// Where C `brings` an operand of the epilogue (16 bits, as many columns as the product), its whole tile
// lies in the staging buffers when the products are done: TMA loads it there meanwhile, once the stores
// of the tile before have been read. An output goes where operands have been read already.
template <class C>
struct Store {
  using Output = typename C::Output;
  using Epilogue = typename C::Epilogue;
  static constexpr int whole = 128 / sizeof(Output);  // columns
  static constexpr bool narrow = C::tile_n % (whole << Epilogue::shrink) != 0 || C::postpones ||
                                 (Epilogue::loads && C::blocks * C::tile_n / 2 > 128);
  static constexpr int columns = narrow ? whole / 2 : whole;
  static constexpr int pitch = columns * sizeof(Output);        // bytes of a subtile's row
  static constexpr int span = columns << Epilogue::shrink;      // of the product behind it
  static constexpr int pieces = span / 8;                       // of a thread's fragment
  static_assert(C::tile_n % span == 0 && (pitch == 128 || !C::grouped));

  static constexpr int per_block = C::tile_n / span, subtiles = C::blocks * per_block;
  static constexpr int subtile_bytes = C::brings ? 64 * pitch : Layout<C>::subtile;
  static constexpr int outputs = Epilogue::staged + Epilogue::further;
  // Staging buffers that outputs go round. Where an operand is brought, `lead` of them come before its
  // own, so that there is room for the outputs of the first subtile when the operand of that has been
  // read, and of the second one if it is read `ahead`, which takes registers.
  static constexpr int ring = C::brings ? outputs + 1 : Layout<C>::subtiles_staged;
  static constexpr bool ahead = outputs > 1 && !narrow;
  static constexpr int lead = outputs < 2 ? 0 : outputs - 1 - ahead;
  static constexpr int places = lead + subtiles > ring ? lead + subtiles : ring;
  static_assert(!C::brings || (sizeof(Output) == 2 && Epilogue::shrink == 0 &&
                               places * subtile_bytes <= Layout<C>::area));
  using Operands = typename Epilogue::template Operands<pieces>;

  // By one thread: the operand's tile, into the staging buffers of consumer `group`.
  template <class P>
  static __device__ void bring(const Pipeline<C>& pipe, const P& params, const Tile& tile, int group) {
    const u32 barrier = pipe.brought(group);
    const int first_row = tile.row + (C::pingpong ? 0 : group * C::blocks * 64);
    mbarrier_expect(barrier, subtiles * subtile_bytes);
#pragma unroll
    for (int i = 0; i < subtiles; ++i)
      tma_load(pipe.staging(group) + (lead + i) * subtile_bytes, params.d[C::d_blocks - 1], barrier,
               tile.n * C::tile_n + i % per_block * span, first_row + i / per_block * 64, tile.batch);
  }

  // By all threads of a cooperative consumer, while its tile is multiplied: the stores of the tile
  // before have long been read, which at its end they had to be waited for.
  template <class P>
  static __device__ void bring_own(const Consumer<C>& consumer, const P& params) {
    if (consumer.thread == 0) {
      tma_store_wait_read<0>();
      bring(consumer.pipe, params, consumer.tile, consumer.group);
    }
    __syncwarp();
  }

  // What the epilogue will read of this tile, on its way to L2 before the tile is multiplied. Between
  // the turn and the first product it cost 2,500 cycles.
  template <class P>
  static __device__ void prefetch(const Consumer<C>& consumer, const P& params) {
    const auto& seen = limited<C>(params, consumer.tile);
    for (int row = consumer.thread; row < C::blocks * 64; row += 128)
      Epilogue::prefetch(seen, Place{consumer.tile.batch, 0, 0,
                                     consumer.tile.row + consumer.first_row() + row,
                                     consumer.tile.n * C::tile_n}, C::tile_n);
  }

  // D[block] = epilogue(alpha · scale · acc), for the block of the output grid at (row, column). The
  // epilogue's operands of a subtile are loaded while the one before it is stored. Loaded before the
  // products, they would be spilled, and waited for.
  template <class P>
  static __device__ void run(Consumer<C>& consumer, Accumulator<C>& acc, const P& params,
                             const TensorMap& map, int row, int column, float scale) {
    const int tile_column = consumer.tile.n * C::tile_n;
    const float alpha = params.alpha * scale;
    const u32 staging = consumer.pipe.staging(consumer.group);
    const auto& seen = limited<C>(params, consumer.tile);
    int buffer = 0;
    typename Epilogue::Rows rows[C::blocks];
    Operands operands;
    if constexpr (Epilogue::loads) {
#pragma unroll
      for (int block = 0; block < C::blocks; ++block)
        rows[block] = Epilogue::load_rows(seen, place_of(consumer, row, column, block));
      if constexpr (C::brings) {
        mbarrier_wait(consumer.pipe.brought(consumer.group), consumer.brought);
        consumer.brought ^= 1;
      }
      operands = load_subtile(consumer, seen, row, column, 0);
    }
#pragma unroll
    for (int block = 0; block < C::blocks; ++block) {
      const int tile_row = consumer.tile.row + consumer.first_row() + block * 64;
      Epilogue epilogue;
      const Place place = place_of(consumer, row, column, block);
#pragma unroll
      for (int first = 0; first < C::tile_n; first += span) {
        float x[pieces][4];
#pragma unroll
        for (int j = 0; j < pieces; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            x[j][i] = (Epilogue::unit ? 1.0f : alpha) * acc[block][(first / 8 + j) * 4 + i];
        u32 more[Epilogue::further + 1][pieces][2];
        if constexpr (Epilogue::loads) {
          const int subtile = block * per_block + first / span;
          if constexpr (C::brings && !ahead) fetch(consumer, operands, subtile);
          Epilogue::settle(operands);
          epilogue.apply(x, more, rows[block], operands, seen, place, first);
          if (subtile + 1 < subtiles)
            operands = load_subtile(consumer, seen, row, column, subtile + 1);
        } else {
          epilogue.apply(x, seen, place, first);
        }

        auto send = [&](const TensorMap& to, auto fill) {
          const u32 target = staging + buffer * subtile_bytes;
          consumer.trace.mark(Mark::free, first);
          if (consumer.thread == 0) tma_store_wait_read<ring - 1>();
          __syncwarp();
          consumer.sync();
          consumer.trace.mark(Mark::fill, first);
          fill(target);
          proxy_fence_shared();
          consumer.sync();
          const int out_column = (tile_column + first) >> Epilogue::shrink;
          if (C::grouped && tile_row + 64 > consumer.tile.end) {
            store_rows(params.groups, target, tile_row, consumer.tile.end - tile_row,
                       out_column * static_cast<int>(sizeof(Output)), row_bytes(params),
                       consumer.thread);
            if (consumer.thread == 0) tma_store_commit();  // of nothing: one group per subtile
          } else if (consumer.thread == 0) {
            tma_store(to, target, out_column, tile_row, C::grouped ? 0 : consumer.tile.batch);
            tma_store_commit();
          }
          __syncwarp();
          consumer.trace.mark(Mark::sent, first);
          buffer = (buffer + 1) % ring;
        };
        if constexpr (Epilogue::staged)
          send(map, [&](u32 target) { stage(target, x, consumer.thread); });
#pragma unroll
        for (int i = 0; i < Epilogue::further; ++i)
          send((&map)[1 + i], [&](u32 target) { stage_pairs(target, more[i], consumer.thread); });
      }
      epilogue.finish(seen, place, consumer.tile.n);
    }
    if constexpr (Epilogue::closes) {
      Closing<C>::leave(consumer, seen, place_of(consumer, row, column, 0));
      // Together again. ptxas would not know it, keep the position in the ring in a register of each
      // thread, and the products would wait for their descriptors: 675 cycles for a k-tile, not 512.
      consumer.sync();
    }
  }

  template <class P>
  static __device__ int row_bytes(const P& params) {
    return (params.block_columns >> Epilogue::shrink) * static_cast<int>(sizeof(Output));
  }

  // Two neighbours of 16 bits each: matrices of 8 × 8 values.
  static __device__ void stage_pairs(u32 target, const u32 (&pairs)[pieces][2], int thread) {
    const int lane = thread % 32;
    const int row = thread / 32 * 16 + lane % 16;  // matrices 0, 2: upper 8 rows; 1, 3: lower 8
#pragma unroll
    for (int j = 0; j < pieces; j += 2)
      stmatrix_x4(target + place(row, (j + lane / 16) * 16), pairs[j][0], pairs[j][1],
                  pairs[j + 1][0], pairs[j + 1][1]);
  }

  static __device__ void stage(u32 target, const float (&x)[pieces][4], int thread) {
    const int lane = thread % 32, row = row_of(thread);
    if constexpr (Epilogue::shrink == 1) {  // one value of each piece and row
      const int in_piece = lane % 4 * sizeof(Output);
#pragma unroll
      for (int j = 0; j < pieces; ++j) {
        const u32 at = target + place(row, j * 4 * sizeof(Output) + in_piece);
        store_one(at, x[j][0]);
        store_one(at + 8 * pitch, x[j][2]);  // row + 8: the same permutation
      }
    } else if constexpr (sizeof(Output) == 2) {
      u32 pairs[pieces][2];
#pragma unroll
      for (int j = 0; j < pieces; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          pairs[j][half] = Output::pack(x[j][2 * half], x[j][2 * half + 1]);
      stage_pairs(target, pairs, thread);
    } else {
      const int half = lane % 4 / 2, in_chunk = lane % 2 * 8;
#pragma unroll
      for (int j = 0; j < pieces; ++j) {
        const u32 at = target + place(row, (2 * j + half) * 16 + in_chunk);
        shared_store(at, x[j][0], x[j][1]);
        shared_store(at + 8 * pitch, x[j][2], x[j][3]);
      }
    }
  }

 private:
  static __device__ Place place_of(const Consumer<C>& consumer, int row, int column, int block) {
    const int lane = consumer.thread % 32;
    return {consumer.tile.batch, row, column,
            consumer.tile.row + consumer.first_row() + block * 64 + row_of(consumer.thread),
            consumer.tile.n * C::tile_n + lane % 4 * 2};
  }

  // A subtile of the operand that was brought.
  static __device__ void fetch(const Consumer<C>& consumer, Operands& values, int subtile) {
    const u32 source = consumer.pipe.staging(consumer.group) + (lead + subtile) * subtile_bytes;
    const int lane = consumer.thread % 32, row = consumer.thread / 32 * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < pieces; j += 2) {
      u32 pairs[2][2];
      ldmatrix_x4(source + place(row, (j + lane / 16) * 16), pairs[0][0], pairs[0][1], pairs[1][0],
                  pairs[1][1]);
#pragma unroll
      for (int i = 0; i < 4; ++i) Epilogue::bring(values, j + i / 2, i % 2, pairs[i / 2][i % 2]);
    }
  }

  template <class P>
  static __device__ Operands load_subtile(const Consumer<C>& consumer, const P& seen, int row,
                                          int column, int subtile) {
    Operands values = Epilogue::template load<pieces>(
        seen, place_of(consumer, row, column, subtile / per_block), subtile % per_block * span);
    if constexpr (C::brings && ahead) fetch(consumer, values, subtile);
    return values;
  }

  // Into rows whose 16-byte chunks are permuted by the row, as the swizzle of the output's tensor map
  // is; this also spreads the 8 rows of a matrix over all banks.
  static __device__ u32 place(int row, int byte) {
    constexpr int chunks = pitch / 16, rows = 128 / pitch;  // chunks of a row; rows of 128 bytes
    return row * pitch + (byte / 16 ^ row / rows % chunks) * 16 + byte % 16;
  }

  static __device__ void store_one(u32 address, float x) {
    if constexpr (sizeof(Output) == 2) shared_store(address, static_cast<u16>(Output::pack(x, x)));
    else shared_store(address, x);
  }
};
