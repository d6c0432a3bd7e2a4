// What leaves while the next product is multiplied: a block of the output, or a sum to be saved. It is
// packed at once, which frees the accumulator, and goes part by part, one beside each k-tile.
#pragma once
#include "pending.cuh"
#include "tma.cuh"

template <class C>
struct Outbox {
  using Output = typename C::Output;
  static constexpr int columns = 64;                    // of a part; of a block one subtile
  static constexpr int parts = C::tile_n / columns;
  static constexpr int pieces = columns / 8;            // of a thread's fragment
  static constexpr bool packs = sizeof(Output) == 2 && !C::postpones;  // else stored at once

  const TensorMap* map = nullptr;  // of the block on its way
  char* slot = nullptr;            // of the sum
  int row, column;                 // of this consumer's part of the tile
  Scale scale;                     // of this tile's saved sums

  // D[block] = alpha · factor · acc, or its epilogue, which is `pending` then.
  template <class P>
  __device__ void store(Box<C>& box, Consumer<C>& consumer, Accumulator<C>& acc, const P& p,
                        int block, float factor, Pending<C>& pending, bool exact) {
    if constexpr (C::postpones) {
      if (opaque(exact)) {
        pending.keep(consumer, acc);
      } else {
        save(box, consumer, acc, C::slots - 1, factor);
        pending.keep(slot, box.unscale * p.alpha);
      }
      pending.begin(consumer, p, block);
    } else if constexpr (packs) {
      factor *= p.alpha;
      if (factor == 1) {
#pragma unroll
        for (int i = 0; i < C::tile_n / 4; ++i)
          box.pair[i] = Output::pack(acc[0][2 * i], acc[0][2 * i + 1]);
      } else {
#pragma unroll
        for (int i = 0; i < C::tile_n / 4; ++i)
          box.pair[i] = Output::pack(acc[0][2 * i] * factor, acc[0][2 * i + 1] * factor);
      }
      map = &p.d[block];
      if (consumer.thread == 0) tma_prefetch(*map);
      row = consumer.tile.row + consumer.first_row();
      column = consumer.tile.n * C::tile_n;
    } else {
      Store<C>::run(consumer, acc, p, p.d[block], 0, 0, factor);
    }
  }

  __device__ void save(Box<C>& box, const Consumer<C>& consumer, const Accumulator<C>& acc,
                       int number, float unit) {
    pack<C>(box, acc, scale, unit);
    slot = slot_of(consumer, number);
  }

  // By all threads of the consumer.
  template <int part>
  __device__ void send(const Box<C>& box, const Consumer<C>& consumer) {
    if (slot != nullptr) {
      write<part, parts>(box, slot, consumer, scale);
      if constexpr (part == parts - 1) slot = nullptr;
    }
    if constexpr (packs)
      if (map != nullptr) {
        send_block<part>(box, consumer);
        if constexpr (part == parts - 1) map = nullptr;
      }
  }

  template <int part = 0>
  __device__ void send_all(const Box<C>& box, const Consumer<C>& consumer) {
    send<part>(box, consumer);
    if constexpr (part + 1 < parts) send_all<part + 1>(box, consumer);
  }

 private:
  // The parts take turns in the places of staging memory.
  template <int part>
  __device__ void send_block(const Box<C>& box, const Consumer<C>& consumer) {
    constexpr int places = Layout<C>::subtiles_staged;
    const u32 target = consumer.pipe.base + Layout<C>::staging +
                       (consumer.group * places + part % places) * Layout<C>::subtile;
    if (consumer.thread == 0) tma_store_wait_read<places - 1>();
    __syncwarp();
    consumer.sync();
    u32 pairs[pieces][2];
#pragma unroll
    for (int j = 0; j < pieces; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        pairs[j][half] = box.pair[(part * pieces + j) * 2 + half];
    Store<C>::stage_pairs(target, pairs, consumer.thread);
    proxy_fence_shared();
    consumer.sync();
    if (consumer.thread == 0) {
      tma_store(*map, target, column + part * columns, row, consumer.tile.batch);
      tma_store_commit();
    }
    __syncwarp();
  }
};
