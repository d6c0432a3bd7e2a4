// An accumulator program as tables: what the producer fetches and what the consumers do, in order.
// ../fused.py writes them, scheme.cuh walks them. Tables keep the code small: a program of 26 products
// and 54 saves and loads, written out, took NVRTC minutes and would not fit any instruction cache.
#pragma once
#include "mainloop.cuh"

// All k-tiles of two planes; or a sum that the consumers saved in L2.
struct Fetch {
  enum class What { product, saved } what;
  int a, b;   // planes; or the slot in a
  bool wait;  // product: the first that reads combined planes; sum: the first time since its save
};

__device__ constexpr Fetch fetch(int a, int b) { return {Fetch::What::product, a, b, false}; }
__device__ constexpr Fetch fetch_awaited(int a, int b) { return {Fetch::What::product, a, b, true}; }
__device__ constexpr Fetch fetch_saved(int slot) { return {Fetch::What::saved, slot, 0, true}; }
__device__ constexpr Fetch fetch_again(int slot) { return {Fetch::What::saved, slot, 0, false}; }

// Combined planes hold `plane_scale` times their value, and so do sums of their products.
enum class Unit { one, scale, unscale };

struct Step {
  enum class Op {
    multiply_in_place,  // the next products, `index` of them, of the operand's own type
    multiply,           // the same of planes
    save, load,         // the sum kept in registers
    save_scratch, load_scratch,  // slot `index`
    rescale,
    store,              // block `index` of the output grid
  } op;
  From from;
  int index;
  Unit unit;
  float factor;
};

__device__ constexpr Step multiply(From from, int products) {
  return {Step::Op::multiply, from, products, Unit::one, 1};
}
__device__ constexpr Step multiply_in_place(From from, int products) {
  return {Step::Op::multiply_in_place, from, products, Unit::one, 1};
}
__device__ constexpr Step save() { return {Step::Op::save, From::zero, 0, Unit::one, 1}; }
__device__ constexpr Step save_scratch(int slot) {
  return {Step::Op::save_scratch, From::zero, slot, Unit::one, 1};
}
__device__ constexpr Step load(From from, float factor, Unit unit = Unit::one) {
  return {Step::Op::load, from, 0, unit, factor};
}
__device__ constexpr Step load_scratch(From from, int slot, float factor, Unit unit = Unit::one) {
  return {Step::Op::load_scratch, from, slot, unit, factor};
}
__device__ constexpr Step rescale(Unit unit) { return {Step::Op::rescale, From::sum, 0, unit, 1}; }
__device__ constexpr Step store(int block, float factor, Unit unit = Unit::one) {
  return {Step::Op::store, From::sum, block, unit, factor};
}
