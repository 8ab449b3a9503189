// Sums of columns over very many rows: each block sums a chunk of rows, and JoinChunks adds the chunks in order.
#pragma once

#include <algorithm>

#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"

namespace whence::gpu {

// Returns the rows of a chunk, which one block sums. The shape alone decides it, so that the bits of the sums are the
// same on every device. Chunks are few enough to be joined quickly, and have enough rows to be worth a block.
inline index_t chunk_of(index_t rows) { return std::max<index_t>(16, blocks_for(rows, 512)); }

// Joins the chunks of up to two arrays of sums: [chunks, width] to [width] each, by blocks of 32 columns. Every warp
// reads 32 neighbours of a chunk, so that memory comes in whole lines; then the warps' sums are added in order.
// Per sum of a chunk: 1 number read, 1 operation, by few blocks: the latency of a launch.
template <class T> struct JoinChunks {
  static constexpr const char* name = "sums of chunks";
  static constexpr int threads = 1024, warps = threads / Thread::warp_size;
  using C = compute_t<T>;
  static constexpr std::size_t shared_bytes = shared_bytes_for<C>(threads);
  Global<const C> sums[2];
  Global<T> out[2];
  index_t chunks, width;

  static constexpr index_t tiles(index_t width) { return blocks_for(width, Thread::warp_size); }
  WHENCE_HD void operator()(Thread& t) const {
    const index_t tile = t.block() % tiles(width);
    const bool second = t.block() >= tiles(width);
    const index_t column = tile * Thread::warp_size + t.lane();
    const Global<const C> from = second ? sums[1] : sums[0];
    Number<C> sum = Number<C>(C(0));
    if (column < width)
      for (index_t chunk = t.warp(); chunk < chunks; chunk += warps) sum += load<C>(from, chunk * width + column);
    const Shared<C> of_warps = t.template shared<C>(threads);
    store(of_warps, t.index(), sum);
    t.sync();
    if (t.warp() != 0 || column >= width) return;
    for (int other = 1; other < warps; ++other) sum += load<C>(of_warps, other * Thread::warp_size + t.lane());
    store(second ? out[1] : out[0], column, sum);
  }
};

// Adds the sums of chunks [chunks, width] in T's compute type, of one array or two, into [width].
template <class T>
void join_chunks(const Tensor& sums, const Tensor& out, const Tensor& more_sums = {}, const Tensor& more_out = {}) {
  using Join = JoinChunks<T>;
  using C = compute_t<T>;
  const Join join{{global<const C>(sums), global<const C>(more_sums)}, {global<T>(out), global<T>(more_out)},
      sums.size(0), sums.size(1)};
  launch_kernel(join, {(more_sums.defined() ? 2 : 1) * Join::tiles(sums.size(1)), Join::shared_bytes});
}

}  // namespace whence::gpu
