// Many tensors in one launch. A table of them travels with the kernel's arguments. So nothing is copied to the device
// first, and the launch can be captured in a graph. Each tensor is cut into chunks; a block works on one chunk.
#pragma once

#include "cuda/vocabulary/launch_kernel.h"

namespace whence::gpu {

// `Entry` has `count`, the elements of its tensor, and `first_chunk`, the chunks of those before it.
template <class Entry, int most> struct ManyTensors {
  static constexpr int capacity = most;
  Entry entry[most];
  int used = 0;
  index_t chunks = 0;

  bool full() const { return used == most; }
  void add(Entry next, index_t chunk_length) {
    next.first_chunk = chunks;
    chunks += (next.count + chunk_length - 1) / chunk_length;
    entry[used++] = next;
  }
  void clear() { used = 0, chunks = 0; }

  // The entry that a chunk belongs to: the last one that does not begin behind it.
  WHENCE_HD int of_chunk(index_t chunk) const {
    int low = 0;
    for (int high = used; high - low > 1;) {
      const int middle = (low + high) / 2;
      (entry[middle].first_chunk <= chunk ? low : high) = middle;
    }
    return low;
  }
};

}  // namespace whence::gpu
