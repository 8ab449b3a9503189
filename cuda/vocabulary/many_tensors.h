// Many tensors in one launch. A table of them is part of the kernel's arguments. So nothing is copied to the device
// first, and the launch can be captured in a graph. Each tensor is cut into chunks; a block works on one chunk.
#pragma once

#include "cuda/vocabulary/launch_kernel.h"

namespace whence::gpu {

// `Entry` has `count`, the elements of its tensor, and `first_chunk`, the number of chunks before it.
template <class Entry, int most> struct ManyTensors {
  Entry entry[most] = {};
  int used = 0;
  index_t chunks = 0, chunks_before = 0;  // before: those of earlier launches

  bool full() const { return used == most; }
  void add(Entry next, index_t chunk_length) {
    next.first_chunk = chunks;
    chunks += (next.count + chunk_length - 1) / chunk_length;
    entry[used++] = next;
  }
  void clear() { chunks_before += chunks, used = 0, chunks = 0; }

  // Returns the entry that a chunk belongs to: the last one that begins at or before it.
  WHENCE_HD int of_chunk(index_t chunk) const {
    int low = 0;
    for (int high = used; high - low > 1;) {
      const int middle = (low + high) / 2;
      (entry[middle].first_chunk <= chunk ? low : high) = middle;
    }
    return low;
  }
};

// Calls f(n, i) for the elements [i, i + n) that a thread has of its block's chunk, where n is a constant: for packs of
// `pack`, then for the last elements one by one. `entry` has `in_packs`, true if its tensors may be read so.
template <int threads, int pack, class Entry, class F>
WHENCE_HD void each_in_chunk(Thread& t, const Entry& entry, index_t chunk_length, const F& f) {
  const index_t begin = (t.block() - entry.first_chunk) * chunk_length;
  const index_t end = begin + chunk_length < entry.count ? begin + chunk_length : entry.count;
  const index_t packs_end = entry.in_packs ? begin + (end - begin) / pack * pack : begin;
  for (index_t i = begin + t.index() * pack; i < packs_end; i += threads * pack)
    f(std::integral_constant<int, pack>{}, i);
  for (index_t i = packs_end + t.index(); i < end; i += threads) f(std::integral_constant<int, 1>{}, i);
}

// Launches the kernel over all of `given`, in as few launches as its table `all` allows. entry_of(x): has count 0 if x
// is not for this kernel.
template <class Kernel, class Given, class EntryOf>
void launch_all(
    Kernel& kernel, const Given& given, index_t chunk_length, std::size_t shared_bytes, const EntryOf& entry_of) {
  const auto launch = [&] {
    launch_kernel(kernel, {.blocks = kernel.all.chunks, .shared_bytes = shared_bytes});
    kernel.all.clear();
  };
  for (const auto& each : given) {
    const auto entry = entry_of(each);
    if (entry.count == 0) continue;
    if (kernel.all.full()) launch();
    kernel.all.add(entry, chunk_length);
  }
  launch();
}

}  // namespace whence::gpu
