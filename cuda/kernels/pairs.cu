// Values of query-key pairs, read from one row each (tensor/pairs.h). O(T) numbers come from memory, the others are
// only written.
#include "tensor/pairs.h"

#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/block.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/raw.h"

namespace whence::gpu {
namespace {

// The steps between queries and keys (tensor/pairs.h), from one row of each of a sequence. One row of either may serve all
// of a batch.
struct StepRows {
  Global<const index_t> query, key;
  index_t query_batch, key_batch;  // strides of sequences; 0 if one row serves all
  index_t lowest, count;
  // A query's position minus the table's smallest distance. Minus key_at(b, j) it is the pair's index into the table.
  WHENCE_HD index_t first(index_t b, index_t i) const { return query[b * query_batch + i] - lowest; }
  WHENCE_HD index_t key_at(index_t b, index_t j) const { return key[b * key_batch + j]; }
};

StepRows step_rows(const Steps& steps) {
  const auto apart = [](const Tensor& x) { return x.size(0) == 1 ? 0 : x.size(1); };
  return {global<const index_t>(steps.query), global<const index_t>(steps.key), apart(steps.query), apart(steps.key),
      steps.lowest, steps.count};
}

constexpr int pair_threads = 256;

// y[b h i j] = table[h, step]; a block for each row of keys. One number at a time, so that neighbouring threads read
// neighbouring keys and entries too.
// Per pair: 1 number written (table and steps are in a cache), 3 operations: memory.
template <class T> struct ReadByDistance {
  static constexpr const char* name = "read_by_distance";
  static constexpr int threads = pair_threads;
  StepRows steps;
  Global<const T> table;
  Global<T> y;
  index_t heads, rows, keys;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block(), group = row / rows, b = group / heads;
    const index_t first = steps.first(b, row - group * rows), entry = (group - b * heads) * steps.count;
    for (index_t j = t.index(); j < keys; j += threads) {
      const index_t step = first - steps.key_at(b, j);
      y[row * keys + j] = static_cast<T>(table[entry + (step > 0 ? step : 0)]);
    }
  }
};

// sums[b group h n]: over `rows_each` rows of queries, the sum of the pairs at n steps. Pairs of one distance form a
// diagonal, so neighbouring threads read neighbouring numbers. The lowest step includes all keys after its diagonal.
// Per pair: 1 number read (steps are in a cache), 1 operation: memory.
template <class T> struct SumByDistance {
  static constexpr const char* name = "sum_by_distance";
  static constexpr int threads = pair_threads, rows_each = 64;
  using C = compute_t<T>;
  static constexpr std::size_t shared_bytes = block_reduce_bytes<threads, Number<C>>;
  StepRows steps;
  Global<const T> dy;
  Global<C> sums;
  index_t heads, rows, keys, groups, tiles;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t rest = t.block() / tiles, tile = t.block() - rest * tiles, h = rest % heads;
    const index_t part = rest / heads, b = part / groups, begin = (part - b * groups) * rows_each;
    const index_t end = begin + rows_each < rows ? begin + rows_each : rows, key0 = steps.key_at(b, 0);
    const index_t n = tile * threads + t.index();
    Number<C> total = Number<C>(C(0));
    for (index_t i = begin; i < end; ++i) {
      const index_t row = ((b * heads + h) * rows + i) * keys, lowest = steps.first(b, i) - key0, j = lowest - n;
      if (n < steps.count && j >= 0 && j < keys) total += load<C>(dy, row + j);
    }
    if (tile == 0) {
      Number<C> behind = Number<C>(C(0));
      for (index_t i = begin; i < end; ++i) {
        const index_t row = ((b * heads + h) * rows + i) * keys, lowest = steps.first(b, i) - key0;
        for (index_t j = (lowest < -1 ? 0 : lowest + 1) + t.index(); j < keys; j += threads)
          behind += load<C>(dy, row + j);
      }
      behind = block_reduce<threads>(t, behind, Plus{});
      if (n == 0) total += behind;
    }
    if (n < steps.count) store(sums, (part * heads + h) * steps.count + n, total);
  }
};

// A block for each row.
// Per pair: 1 byte written (`present` is in a cache), 3 comparisons: memory; with `present` its reads, byte by byte.
template <int pack> struct BandMask {
  static constexpr const char* name = "band_mask";
  static constexpr int threads = pair_threads;
  Global<const bool> present;  // null: all
  Global<bool> mask;
  index_t rows, keys;
  Band band;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t row = t.block(), b = row / rows, own = band.first_row + row - b * rows;
    const index_t first = own - band.before, last = own + band.after;
    for (index_t j = static_cast<index_t>(t.index()) * pack; j < keys; j += threads * pack) {
      Pack<bool, pack> allowed;
      for (int k = 0; k < pack; ++k)
        allowed.of[k] = j + k >= first && j + k <= last && (!present || present[b * keys + j + k]);
      store_pack<pack>(mask, row * keys + j, allowed);
    }
  }
};

}  // namespace
}  // namespace whence::gpu

namespace whence {

using namespace gpu;

void CudaKernels::read_by_distance(const Steps& steps, const Tensor& table, const Tensor& y) {
  if (y.numel() == 0) return;
  const index_t keys = y.size(3), rows = y.numel() / keys;
  visit(y.dtype(), [&]<class T>(Type<T>) {
    launch_kernel(ReadByDistance<T>{step_rows(steps), global<const T>(table), global<T>(y), y.size(1), y.size(2), keys},
        {.blocks = rows});
  });
}

// Pairs of one distance are anywhere: they are sorted by distance, a row of all heads each.
static void sum_uneven(CudaKernels& kernels, const Steps& steps, const Tensor& dy, const Tensor& dtable) {
  if (dy.size(0) > steps.batch()) {  // one row of steps serves all sequences
    const Tensor total = Tensor::like(dy, {1, dy.size(1), dy.size(2), dy.size(3)});
    kernels.reduce(Reduction::sum, dy, total);
    return sum_uneven(kernels, steps, total, dtable);
  }
  const index_t heads = dy.size(1), pairs = dy.numel() / heads, count = steps.count;
  const Tensor which = raw::read_by_distance(
      steps, raw::to_device(Tensor::arange(count, DType::i64).view({1, count}, {count, 1}), dy.device()));
  const Tensor by_pair = raw::copy(raw::permute(dy, {0, 2, 3, 1})),
               sums = Tensor::zeros({count, heads}, dy.dtype(), dy.device());
  kernels.scatter_add_rows(which.view({pairs}, {1}), by_pair.view({pairs, heads}, {heads, 1}), sums);
  kernels.copy(raw::transpose(sums), dtable);
}

void CudaKernels::sum_by_distance(const Steps& steps, const Tensor& dy, const Tensor& dtable) {
  const index_t batch = dy.size(0), heads = dy.size(1), rows = dy.size(2), keys = dy.size(3), count = steps.count;
  if (dy.numel() == 0) return fill(dtable, 0);
  if (!steps.even) return sum_uneven(*this, steps, dy, dtable);
  visit_real("sum_by_distance", dy.dtype(), [&]<class T>(Type<T>) {
    using Body = SumByDistance<T>;
    using C = compute_t<T>;
    const index_t groups = blocks_for(rows, Body::rows_each), tiles = blocks_for(count, Body::threads);
    const Tensor sums = Tensor::empty({batch * groups, heads, count}, dtype_of<C>, dy.device());
    launch_kernel(Body{step_rows(steps), global<const T>(dy), global<C>(sums), heads, rows, keys, groups, tiles},
        {batch * groups * heads * tiles, Body::shared_bytes});
    if (dtable.dtype() == sums.dtype())
      return reduce(Reduction::sum, sums, dtable.view({1, heads, count}, {heads * count, count, 1}));
    const Tensor total = Tensor::empty({1, heads, count}, sums.dtype(), dy.device());
    reduce(Reduction::sum, sums, total);
    copy(total.view({heads, count}, {count, 1}), dtable);
  });
}

void CudaKernels::band_mask(const Band& band, const Tensor& present, const Tensor& mask) {
  if (mask.numel() == 0) return;
  const index_t rows = mask.size(2), keys = mask.size(3);
  const auto run = [&]<int pack>(std::integral_constant<int, pack>) {
    launch_kernel(BandMask<pack>{global<const bool>(present), global<bool>(mask), rows, keys, band},
        {.blocks = mask.numel() / keys});
  };
  if (keys % 16 == 0 && begins_with_pack(mask, 16))
    run(std::integral_constant<int, 16>{});
  else
    run(std::integral_constant<int, 1>{});
}

}  // namespace whence
