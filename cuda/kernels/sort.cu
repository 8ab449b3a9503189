// Bitonic sort (Batcher 1968): for k = 2, 4, ..., n and j = k/2, ..., 1 the keys i and i + j, where bit j of i is 0,
// are put in order: ascending if bit k of i is 0, else descending. Steps with j below a tile's length run in a block's
// shared memory, many per launch.
#include "cuda/kernels/sort.h"

#include <algorithm>

#include "cuda/vocabulary/launch_kernel.h"

namespace whence::gpu {
namespace {

constexpr index_t longest_tile = 2048;
constexpr int sort_threads = 256;

// The lower index of pair number `pair` of a step: a 0 is inserted at bit j.
WHENCE_HD inline index_t lower_of(index_t pair, index_t j) { return pair / j * (2 * j) + pair % j; }

// One step in memory, one pair per thread.
// Per pair: 16 bytes read, at most 16 written, 1 comparison, 1 division of 64-bit integers: memory.
struct SortStep {
  static constexpr const char* name = "sort, one step";
  static constexpr int threads = sort_threads;
  Global<index_t> keys;
  index_t pairs, j, k;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t pair = t.block() * threads + t.index();
    if (pair >= pairs) return;
    const index_t i = lower_of(pair, j), low = keys[i], high = keys[i + j];
    if ((low > high) == ((i & k) == 0)) keys[i] = high, keys[i + j] = low;
  }
};

// All steps with j below the tile's length, of the given k or of every k up to it.
// Per key: 8 bytes read, 8 written, in each of up to 66 steps half a comparison and half a division of 64-bit integers:
// arithmetic, the divisions.
struct SortTile {
  static constexpr const char* name = "sort, a tile";
  static constexpr int threads = sort_threads;
  Global<index_t> keys;
  index_t tile, first_k, last_k;
  WHENCE_HD void operator()(Thread& t) const {
    const Shared<index_t> held = t.template shared<index_t>(static_cast<int>(tile));
    const index_t begin = t.block() * tile;
    for (index_t i = t.index(); i < tile; i += threads) held[i] = keys[begin + i];
    for (index_t k = first_k; k <= last_k; k *= 2) {
      for (index_t j = (k < tile ? k : tile) / 2; j > 0; j /= 2) {
        t.sync();
        for (index_t pair = t.index(); pair < tile / 2; pair += threads)
          put_in_order(held, begin, lower_of(pair, j), j, k);
      }
    }
    t.sync();
    for (index_t i = t.index(); i < tile; i += threads) keys[begin + i] = held[i];
  }
  WHENCE_HD static void put_in_order(const Shared<index_t>& held, index_t begin, index_t i, index_t j, index_t k) {
    const index_t low = held[i], high = held[i + j];
    if ((low > high) == (((begin + i) & k) == 0)) held[i] = high, held[i + j] = low;
  }
};

}  // namespace

index_t sort_extent(index_t count) {
  index_t extent = 1;
  while (extent < count) extent *= 2;
  return extent;
}

void sort_keys(const Tensor& keys) {
  const index_t count = keys.numel(), tile = std::min(count, longest_tile);
  const Global<index_t> numbers = global<index_t>(keys);
  const Grid tiles{.blocks = count / std::max<index_t>(tile, 1),
      .shared_bytes = shared_bytes_for<index_t>(static_cast<std::size_t>(tile))};
  launch_kernel(SortTile{numbers, tile, 2, tile}, tiles);
  for (index_t k = 2 * tile; k <= count; k *= 2) {
    for (index_t j = k / 2; j >= tile; j /= 2)
      launch_kernel(SortStep{numbers, count / 2, j, k}, {.blocks = (count / 2 + sort_threads - 1) / sort_threads});
    launch_kernel(SortTile{numbers, tile, k, k}, tiles);
  }
}

}  // namespace whence::gpu
