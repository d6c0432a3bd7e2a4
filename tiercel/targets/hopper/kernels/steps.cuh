// An accumulator program as tables: which planes the producer reads, and what the consumers do, in
// order. ../fused/tables.py writes them, supply.cuh and machine.cuh walk them. Tables keep the code small:
// a program of 26 products and 54 saves and loads, written out, took NVRTC minutes and would not fit any
// instruction cache.
#pragma once
#include "mainloop.cuh"

// Where a plane lies: in one of an operand's two arrays, its blocks in place and its written planes.
struct BlockPlace {
  int array, across, down;
};

// All k-tiles of two planes. `wait`: the first that are combined meanwhile.
struct Product {
  int a, b;
  bool wait;
};

__device__ constexpr Product product(int a, int b) { return {a, b, false}; }
__device__ constexpr Product product_awaited(int a, int b) { return {a, b, true}; }

// Combined planes hold `plane_scale` times their value, and so do sums of their products.
enum class Unit { one, scale, unscale };

// Products may be multiplied in several parts along K, so that a sum can be loaded after each.
struct Part {
  int number, of;
};
constexpr Part whole{0, 1};

struct Step {
  enum class Op {
    multiply_in_place,  // (a part of) the next products, `index` of them, of the operand's own type;
    multiply,           // the same of planes. Meanwhile the sum in `slot` is fetched, if any
    save,               // the accumulator, to `slot`, while the next product is multiplied
    save_now,           // the same at once
    load,               // the sum that was fetched
    fetch_and_load,     // the one in `slot`, waiting for it
    rescale,
    store,              // block `index` of the output grid, while the next product is multiplied
    store_now,          // the same at once
  } op;
  From from;
  int index, slot;
  Unit unit;
  float factor;
  Part part;
};

constexpr int no_slot = -1;

__device__ constexpr Step multiply(From from, int products, int fetched = no_slot,
                                   Part part = whole) {
  return {Step::Op::multiply, from, products, fetched, Unit::one, 1, part};
}
__device__ constexpr Step multiply_in_place(From from, int products, int fetched = no_slot,
                                            Part part = whole) {
  return {Step::Op::multiply_in_place, from, products, fetched, Unit::one, 1, part};
}
__device__ constexpr Step save(int slot, Unit unit = Unit::one) {
  return {Step::Op::save, From::zero, 0, slot, unit, 1, whole};
}
__device__ constexpr Step save_now(int slot, Unit unit = Unit::one) {
  return {Step::Op::save_now, From::zero, 0, slot, unit, 1, whole};
}
__device__ constexpr Step load(From from, float factor, Unit unit = Unit::one) {
  return {Step::Op::load, from, 0, no_slot, unit, factor, whole};
}
__device__ constexpr Step fetch_and_load(From from, int slot, float factor, Unit unit = Unit::one) {
  return {Step::Op::fetch_and_load, from, 0, slot, unit, factor, whole};
}
__device__ constexpr Step rescale(Unit unit) {
  return {Step::Op::rescale, From::sum, 0, no_slot, unit, 1, whole};
}
__device__ constexpr Step store(int block, float factor, Unit unit = Unit::one) {
  return {Step::Op::store, From::sum, block, no_slot, unit, factor, whole};
}
__device__ constexpr Step store_now(int block, float factor, Unit unit = Unit::one) {
  return {Step::Op::store_now, From::sum, block, no_slot, unit, factor, whole};
}
