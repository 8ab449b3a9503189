// Many tensors in one launch. A table of them travels with the kernel's arguments. So nothing is copied to the device
// first, and the launch can be captured in a graph. Each tensor is cut into chunks; a block works on one chunk.
#pragma once

#include "cuda/vocabulary/launch_kernel.h"

namespace whence::gpu {

// `Entry` has `count`, the elements of its tensor, and `first_chunk`, the chunks of those before it.
template <class Entry, int most> struct ManyTensors {
  Entry entry[most] = {};
  int used = 0;
  index_t chunks = 0, chunks_before = 0;  // before: those of launches that are under way

  bool full() const { return used == most; }
  void add(Entry next, index_t chunk_length) {
    next.first_chunk = chunks;
    chunks += (next.count + chunk_length - 1) / chunk_length;
    entry[used++] = next;
  }
  void clear() { chunks_before += chunks, used = 0, chunks = 0; }

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

// The kernel with the entries of all that is given, in as many launches as its table `all` needs. entry_of(x): with count
// 0 where x is not this kernel's.
template <class Kernel, class Given, class EntryOf>
void launch_in_turns(
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
