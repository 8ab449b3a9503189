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
