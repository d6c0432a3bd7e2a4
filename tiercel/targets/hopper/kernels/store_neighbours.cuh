// The store of a cooperative tile whose epilogue reads operands of tiles: 16 bytes at a time.
//
// The fragments of WGMMA give a thread pairs of columns 8 apart. So a tensor map of five dimensions puts
// the rows of B, which are columns of the output, in another order: of each 32, row 8b + 2c + d to place
// 8c + 2b + d. Then four pieces of a thread are the 8 adjacent columns 8b, …, 8b + 7, and 16 bytes of an
// operand or of an output are one access. For RoPE, whose tables four lanes had loaded for each other,
// that takes 1,500 instructions instead of 2,100; the operand of `residual_rms`, which TMA had brought,
// needs no shared memory, so that the ring has its fourth stage.
//
// Operands are loaded beside the last products, and each warp stages and stores its own 16 rows. Over
// cuBLAS's product, interleaved, with all of that and without: RoPE 0.992 and 0.944 at 2048×6144×4096,
// 1.007 and 0.981 at 2048×10240×8192; `residual_rms` 0.900 and 0.875 at 2048×4096×4096, 0.962 and 0.941
// at 2048×8192×8192.
#pragma once
#include "closing.cuh"
#include "epilogue.cuh"
#include "mainloop.cuh"
#include "memory.cuh"
#include "tma.cuh"

template <class C>
struct StoreNeighbours {
  using Output = typename C::Output;
  using Epilogue = typename C::Epilogue;
  static constexpr int columns = 64, pieces = columns / 8;  // of a subtile, in a thread's fragment
  static constexpr int pitch = 128, rows = 16, box = rows * pitch;  // bytes; a warp's rows
  static constexpr int subtiles = C::tile_n / columns;
  static constexpr int area = Layout<C>::area / 4, buffers = area / box;
  // Subtiles whose operands are loaded ahead: 3 or 4 spilled, and gained nothing.
  static constexpr int ahead = 2;
  using Operands = typename Epilogue::template Operands<pieces>;

  struct Loaded {
    typename Epilogue::Rows rows;
    Operands operands[ahead];
  };

  // What is needed first, beside the last products.
  template <class P>
  static __device__ Loaded load(const Consumer<C>& consumer, const P& params) {
    static_assert(C::neighbours && !C::pingpong && C::blocks == 1 && sizeof(Output) == 2);
    static_assert(C::tile_n % columns == 0 && subtiles >= ahead && buffers >= 2);
    const Place at = place_of(consumer);
    Loaded found{};
    found.rows = Epilogue::load_rows(params, at);
#pragma unroll
    for (int i = 0; i < ahead; ++i)
      Epilogue::load_tiles(found.operands[i], params, at, i * columns);
    Epilogue::load_along(found.operands[0], params, at, 0);
    return found;
  }

  // D = epilogue(alpha · acc)
  template <class P>
  static __device__ void run(Consumer<C>& consumer, const Accumulator<C>& acc, const P& params,
                             Loaded& loaded) {
    const Place at = place_of(consumer);
    Epilogue epilogue;
    int buffer = 0;
#pragma unroll
    for (int i = 0; i < subtiles; ++i) {
      const int first = i * columns;
      float x[pieces][4];
#pragma unroll
      for (int j = 0; j < 4 * pieces; ++j)
        x[j / 4][j % 4] = (Epilogue::unit ? 1.0f : params.alpha) * acc[0][first / 2 + j];
      Operands& operands = loaded.operands[i % ahead];
      u32 more[Epilogue::further + 1][pieces][2];
      epilogue.apply(x, more, loaded.rows, operands, params, at, first);

      u32 pairs[pieces][2];
#pragma unroll
      for (int j = 0; j < 2 * pieces; ++j)
        pairs[j / 2][j % 2] = Output::pack(x[j / 2][j % 2 * 2], x[j / 2][j % 2 * 2 + 1]);
      send(consumer, params, params.d[0], first, buffer, pairs);
#pragma unroll
      for (int j = 0; j < Epilogue::further; ++j)
        send(consumer, params, params.d[1 + j], first, buffer, more[j]);
      // Behind the stores, whose fences would wait for it.
      if (i + ahead < subtiles && !repeats)
        Epilogue::load_tiles(operands, params, at, first + ahead * columns);
      if (i + 1 < subtiles)
        Epilogue::load_along(loaded.operands[(i + 1) % ahead], params, at, first + columns);
    }
    epilogue.finish(params, at, consumer.tile.n);
    if constexpr (Epilogue::closes) Closing<C>::leave(consumer, params, at);
    consumer.sync();  // together again, as ptxas must know: see store.cuh
  }

 private:
  // What a thread loads for its first subtiles serves for the others, too.
  static constexpr bool repeats = Epilogue::period > 0 && ahead * columns % Epilogue::period == 0;

  static __device__ Place place_of(const Consumer<C>& consumer) {
    const int lane = consumer.thread % 32;
    return {0, 0, 0, consumer.tile.row + consumer.first_row() + consumer.thread / 32 * 16 + lane / 4,
            consumer.tile.n * C::tile_n + lane % 4 * 8};
  }

  template <class P>
  static __device__ void send(Consumer<C>& consumer, const P& params, const TensorMap& map, int first,
                              int& buffer, const u32 (&pairs)[pieces][2]) {
    const int warp = consumer.thread / 32, lane = consumer.thread % 32;
    const u32 target = consumer.pipe.staging(consumer.group) + warp * area + buffer * box;
    consumer.trace.mark(Mark::free, first);
    if (lane == 0) tma_store_wait_read<buffers - 1>();
    __syncwarp();
    consumer.trace.mark(Mark::fill, first);
    // The swizzle of the output's tensor map permutes the 16-byte chunks of a row.
    const int row = lane / 4, chunk = lane % 4;
#pragma unroll
    for (int j = 0; j < pieces; j += 4)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        shared_store(target + (row + 8 * half) * pitch + ((j + chunk) ^ row) * 16, pairs[j][half],
                     pairs[j + 1][half], pairs[j + 2][half], pairs[j + 3][half]);
    proxy_fence_shared();
    __syncwarp();
    if (lane == 0) {
      tma_store(map, target, consumer.tile.n * C::tile_n + first,
                consumer.tile.row + consumer.first_row() + rows * warp, 0);
      tma_store_commit();
    }
    __syncwarp();
    consumer.trace.mark(Mark::sent, first);
    buffer = (buffer + 1) % buffers;
  }
};
