// The walk of a scheme's kernel over its tiles: heads of programs may run before their tails.
#pragma once
#include "scheduler.cuh"

struct Portion {
  bool head, tail;
  int number;          // of a tile whose head runs ahead; 0: of the others
  bool again = false;  // a whole tile, classically, in place of all this
};

// Of one of a program's tables: the scheme's `all`, the first `head` of them, or what follows.
struct Lines {
  int begin, end;

  __device__ Lines(const Portion& portion, int head, int all, int again)
      : begin(portion.again ? all : portion.head ? 0 : head),
        end(portion.again ? all + again : portion.tail ? all : head) {}
};

// First the heads of the first `split` tiles, then their tails, then whole tiles. Inline, or ptxas
// serialises the tensor core instructions, whose accumulators a call would cross (its note C7510).
template <class C, class Run>
__device__ __forceinline__ void for_each_portion(const Scheduler<C>& first, int split, Run run) {
  for (int turn = 0;; ++turn) {
    const bool ahead = turn < split;
    const int number = ahead ? turn : turn - split;
    Scheduler<C> at = first;
    at.skip(number);
    if (at.valid()) run(at.tile(), Portion{ahead || number >= split, !ahead, number < split ? number : 0});
    else if (!ahead) break;
  }
}
