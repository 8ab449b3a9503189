// Adds rows at an index, without atomics and without the CPU. Entries are sorted by (row, entry), so that the entries
// of one row are adjacent and in their own order; then they are summed in chunks of fixed length. A row with entries in
// several chunks is joined from the chunks' parts, in order: the same bits on every run.
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/sort.h"
#include "cuda/vocabulary/block.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/launch.h"

namespace whence {
namespace gpu {
namespace {

constexpr index_t chunk_length = 32;
constexpr int entry_bits = 32;
constexpr index_t most_entries = index_t{1} << entry_bits, most_rows = index_t{1} << (62 - entry_bits);

WHENCE_HD inline index_t row_of(index_t key) { return key >> entry_bits; }
WHENCE_HD inline index_t entry_of(index_t key) { return key & (most_entries - 1); }

template <class I> struct MakeKeys {
  const I* index;
  index_t* keys;
  index_t count;
  WHENCE_HD void operator()(index_t i) const {
    keys[i] = i < count ? static_cast<index_t>(index[i]) << entry_bits | i : no_key;
  }
};

// One (chunk, column) per thread. A row inside the chunk is complete; the part of one that began before goes to `head`,
// of one that continues after to `tail`. A chunk in the middle of a row is all head.
// Per entry and column: 1 number read, 1 operation, and once per row 1 number read and written (keys are in a cache):
// memory.
template <class T> struct SumChunks {
  using C = compute_t<T>;
  static constexpr const char* name = "scatter_add_rows";
  static constexpr int threads = 256;
  Global<const index_t> keys;
  Global<const T> from;
  Global<T> into;
  Global<C> head, tail;  // [chunks, width]
  index_t count, width;

  WHENCE_HD void operator()(Thread& t) const {
    const index_t unit = t.block() * threads + t.index(), chunk = unit / width, column = unit % width;
    const index_t begin = chunk * chunk_length, end = begin + chunk_length < count ? begin + chunk_length : count;
    if (begin >= count) return;
    index_t key = keys[begin];
    bool from_before = begin > 0 && row_of(keys[begin - 1]) == row_of(key);
    Number<C> total(C(0));
    for (index_t i = begin; i < end; ++i) {
      total += load<C>(from, entry_of(key) * width + column);
      const index_t row = row_of(key);
      const bool last = i + 1 == count;
      if (!last) key = keys[i + 1];
      const bool goes_on = !last && row_of(key) == row;
      if (goes_on && i + 1 < end) continue;
      if (from_before) {
        store(head, unit, total);
      } else if (goes_on) {
        store(tail, unit, total);
      } else {
        const index_t at = row * width + column;
        store(into, at, load<C>(into, at) + total);
      }
      from_before = false;
      total = Number<C>(C(0));
    }
  }
};

// A row that begins in chunk c and continues after it: into += tail[c] + head[c + 1] + head[c + 2] + ... One block per
// (c, 32 columns); its warps take the heads in turn, and their sums are added in the order of the warps.
// Per chunk and column: at most 2 numbers read, 2 operations: the latency of blocks; most find nothing to join.
template <class T> struct JoinChunks {
  using C = compute_t<T>;
  static constexpr const char* name = "scatter_add_rows, rows over several chunks";
  static constexpr int warps = 8, threads = warps * Thread::warp_size;
  Global<const index_t> keys;
  Global<const C> head, tail;
  Global<T> into;
  index_t count, width, panels;

  WHENCE_HD void operator()(Thread& t) const {
    const index_t chunk = t.block() / panels, column = t.block() % panels * Thread::warp_size + t.lane();
    const index_t next = (chunk + 1) * chunk_length;
    if (next >= count) return;
    const index_t row = row_of(keys[next]), before = row_of(keys[next - 1]);
    // If the row ends at this chunk's edge there is nothing to join. If it began in an earlier chunk, that chunk's
    // block joins it.
    const index_t begin = chunk * chunk_length;
    if (row != before || (begin > 0 && row_of(keys[begin - 1]) == row)) return;
    const index_t end = blocks_for(end_of(row, next), chunk_length);
    const Slots<Number<C>> sums(t, threads);
    Number<C> total(C(0));
    for (index_t c = chunk + 1 + t.warp(); c < end; c += warps)
      if (column < width) total += load<C>(head, c * width + column);
    sums.set(t.index(), total);
    t.sync();
    if (t.warp() != 0 || column >= width) return;
    const index_t at = row * width + column;
    total = load<C>(into, at) + load<C>(tail, chunk * width + column);
    for (int warp = 0; warp < warps; ++warp) total += sums.get(warp * Thread::warp_size + t.lane());
    store(into, at, total);
  }

  // Returns the first place after `from` whose key is of another row.
  WHENCE_HD index_t end_of(index_t row, index_t from) const {
    index_t low = from, high = count;
    while (low < high) {
      const index_t middle = (low + high) / 2;
      if (row_of(keys[middle]) == row)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }
};

Tensor sorted_keys(const Tensor& index) {
  const Tensor keys = Tensor::empty({sort_extent(index.numel())}, DType::i64, index.device());
  visit_index("scatter_add_rows", index.dtype(), [&]<class I>(Type<I>) {
    launch("scatter_add_rows", index.device(), keys.numel(),
        MakeKeys<I>{index.data<I>(), keys.data<index_t>(), index.numel()});
  });
  sort_keys(keys);
  return keys;
}

template <class T> void add_rows(const Tensor& keys, index_t count, const Tensor& from, const Tensor& into) {
  using C = compute_t<T>;
  const index_t width = into.size(1), chunks = blocks_for(count, chunk_length),
                panels = blocks_for(width, Thread::warp_size);
  const Tensor head = Tensor::empty({chunks, width}, dtype_of<C>, into.device()),
               tail = Tensor::empty(head.shape(), dtype_of<C>, into.device());
  launch_kernel(SumChunks<T>{global<const index_t>(keys), global<const T>(from), global<T>(into), global<C>(head),
                    global<C>(tail), count, width},
      {.blocks = blocks_for(chunks * width, SumChunks<T>::threads)});
  launch_kernel(JoinChunks<T>{global<const index_t>(keys), global<const C>(head), global<const C>(tail),
                    global<T>(into), count, width, panels},
      {.blocks = chunks * panels, .shared_bytes = Slots<Number<C>>::bytes(JoinChunks<T>::threads)});
}

}  // namespace
}  // namespace gpu

void CudaKernels::scatter_add_rows(const Tensor& index, const Tensor& from, const Tensor& into) {
  if (from.numel() == 0) return;
  if (index.numel() >= gpu::most_entries || into.size(0) >= gpu::most_rows) {
    fail("scatter_add_rows", index.numel(), " entries to ", into.size(0),
        " rows given; fewer than 2^32 entries and 2^30 rows required");
  }
  const Tensor keys = gpu::sorted_keys(index);
  visit_real(
      "scatter_add_rows", from.dtype(), [&]<class T>(Type<T>) { gpu::add_rows<T>(keys, index.numel(), from, into); });
}

}  // namespace whence
