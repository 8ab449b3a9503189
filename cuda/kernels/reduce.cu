// Sums and maxima over any axes, and argmax. Neighbouring axes that are both reduced, or both kept, are merged. Reduced
// axes are then summed one at a time, from the last to the first. Long runs are cut into chunks at fixed places; the
// chunks' results are reduced again, by a fixed tree.
#include <limits>

#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/rows.h"
#include "tensor/raw.h"
#include "tensor/shape.h"
#include "tensor/strided_index.h"

namespace whence::gpu {
namespace {

struct Join {
  Reduction function;
  template <class V> WHENCE_HD V operator()(V a, V b) const {
    return function == Reduction::sum ? V(a + b) : Larger{}(a, b);
  }
  template <class C> WHENCE_HD Number<C> nothing() const {
    return function == Reduction::sum ? Number<C>(C(0)) : lowest<C>();
  }
};

// One group of reduced axes: the first number of each output, how many there are and their stride.
struct AxisGroup {
  StridedIndex<1> kept;
  index_t outputs, count, stride, chunks;
  Join join;
};

// A team per output and chunk; the team's threads are along the reduced axis. Results as [outputs, chunks].
// Per element: 1 number read, 1 operation: memory.
constexpr index_t row_chunk = 32768;
template <class In, class Out, class P> struct ReduceRows {
  static constexpr const char* name = "reduce_rows";
  static constexpr int threads = P::threads;
  using C = compute_t<In>;
  static constexpr std::size_t shared_bytes = P::template reduce_bytes<Number<C>>;
  AxisGroup group;
  Global<const In> x;
  Global<Out> out;

  WHENCE_HD void operator()(Thread& t) const {
    const Team<P> team(t);
    const index_t i = team.row();
    if (i >= group.outputs * group.chunks) return;
    const index_t skipped = i % group.chunks * row_chunk, rest = group.count - skipped;
    const index_t begin = group.kept(i / group.chunks)[0] + skipped * group.stride;
    Number<C> totals[P::pack];  // one per place in a pack, so that additions overlap
    for (int k = 0; k < P::pack; ++k) totals[k] = group.join.template nothing<C>();
    team.each_pack(rest < row_chunk ? rest : row_chunk, [&](int, index_t j) {
      const auto pack = load_numbers<C, P::pack>(x, begin + j * group.stride);
      for (int k = 0; k < P::pack; ++k) totals[k] = group.join(totals[k], pack.of[k]);
    });
    for (int k = 1; k < P::pack; ++k) totals[0] = group.join(totals[0], totals[k]);
    const Number<C> total = team.reduce(totals[0], group.join);
    if (team.member() == 0) store(out, i, total);
  }
};

// A block takes 256 / row_lanes outputs and one chunk of the reduced axis. Neighbouring threads are along the outputs,
// so that a warp reads neighbours if the last kept axis is contiguous; row_lanes warps share the rows. Results as
// [chunks, outputs].
// Per element: 1 number read, 1 operation: memory.
constexpr index_t column_chunk = 512;
template <class In, class Out, int row_lanes> struct ReduceColumns {
  static constexpr const char* name = "reduce_columns";
  static constexpr int threads = 256, columns = threads / row_lanes;
  using C = compute_t<In>;
  static constexpr std::size_t shared_bytes = row_lanes > 1 ? shared_bytes_for<C>(threads) : 0;
  AxisGroup group;
  Global<const In> x;
  Global<Out> out;

  static index_t tiles(index_t outputs) { return blocks_for(outputs, columns); }
  WHENCE_HD void operator()(Thread& t) const {
    const index_t all_tiles = (group.outputs + columns - 1) / columns, chunk = t.block() / all_tiles;
    const int column = t.index() % columns, lane = t.index() / columns;
    const index_t i = t.block() % all_tiles * columns + column;
    const index_t begin = chunk * column_chunk,
                  end = begin + column_chunk < group.count ? begin + column_chunk : group.count;
    Number<C> total = group.join.template nothing<C>();
    if (i < group.outputs) {
      const index_t start = group.kept(i)[0];
      for (index_t row = begin + lane; row < end; row += row_lanes)
        total = group.join(total, load<C>(x, start + row * group.stride));
    }
    if constexpr (row_lanes > 1) {
      const Shared<C> totals = t.template shared<C>(threads);
      store(totals, t.index(), total);
      t.sync();
      if (lane != 0) return;
      for (int other = 1; other < row_lanes; ++other)
        total = group.join(total, load<C>(totals, other * columns + column));
    }
    if (i < group.outputs) store(out, chunk * group.outputs + i, total);
  }
};

// Few numbers per output: one thread reduces them all, or with a stride of 1 a warp, as soon as it has enough to fill
// its lanes. Contiguous numbers, or few outputs: a team along them. Otherwise neighbouring threads take the outputs.
enum class Way { thread, team, columns };
Way way_of(const AxisGroup& group) {
  if (group.count <= (group.stride == 1 ? 8 : 32)) return Way::thread;
  return group.stride == 1 || group.outputs < Thread::warp_size ? Way::team : Way::columns;
}

bool fits_packs(const AxisGroup& group, const Tensor& x, const Strides& kept, index_t pack) {
  bool fits = group.stride == 1 && group.count % pack == 0 && begins_with_pack(x, pack);
  for (const index_t stride : kept) fits = fits && stride % pack == 0;
  return fits;
}

// One level: out is [outputs, chunks] for teams, else [chunks, outputs].
template <class In, class Out>
void run_level(const AxisGroup& group, Way way, bool packs, const Tensor& x, const Tensor& out) {
  if (way == Way::team) {
    const index_t rows = group.outputs * group.chunks;
    return launch_rows<In, passing(256)>(rows, group.count, packs, [&]<class P>(P) {
      return ReduceRows<In, Out, P>{group, global<const In>(x), global<Out>(out)};
    });
  }
  const auto columns = [&]<class Body>(const Body& body) {
    launch_kernel(body, {Body::tiles(group.outputs) * group.chunks, Body::shared_bytes});
  };
  if (way == Way::thread) return columns(ReduceColumns<In, Out, 1>{group, global<const In>(x), global<Out>(out)});
  columns(ReduceColumns<In, Out, 8>{group, global<const In>(x), global<Out>(out)});
}

// Reduces x along one axis, wherever it is, into out (contiguous, x's other axes).
template <class In, class Out> void reduce_axis(Join join, const Tensor& x, int axis, const Tensor& out) {
  using C = compute_t<In>;
  const Shape kept = x.shape().without(axis);
  const Strides strides = x.strides().without(axis);
  AxisGroup group{{kept, {strides}}, numel(kept), x.size(axis), x.strides()[axis], 1, join};
  const Way way = way_of(group);
  if (way != Way::thread) {
    const index_t chunk = way == Way::team ? row_chunk : column_chunk;
    group.chunks = blocks_for(group.count, chunk);
  }
  const bool packs = fits_packs(group, x, strides, pack_size<In>);
  if (group.chunks == 1) return run_level<In, Out>(group, way, packs, x, out);
  const Shape shape = way == Way::team ? Shape{group.outputs, group.chunks} : Shape{group.chunks, group.outputs};
  const Tensor partial = Tensor::empty(shape, dtype_of<C>, x.device());
  run_level<In, C>(group, way, packs, x, partial);
  reduce_axis<C, Out>(join, partial, way == Way::team ? 1 : 0, out);
}

// Reduces the last group into a smaller tensor of the compute type, and so on; the last remaining group goes into `out`
// (contiguous). `kept` are the strides in `out`, 0 along reduced axes.
template <class In, class T>
void reduce_groups(CudaKernels& kernels, Join join, const Tensor& x, const Strides& kept, const Tensor& out) {
  using C = compute_t<T>;
  const MergedAxes<2> groups = merged<2>(x.shape(), {x.strides(), kept});
  const Tensor from = x.view(groups.shape, groups.strides[0]);
  int axis = -1, left = 0;
  for (int i = 0; i < from.rank(); ++i)
    if (groups.strides[1][i] == 0) axis = i, ++left;
  if (left == 0) return kernels.copy(from, raw::reshape(out, from.shape()));
  if (left == 1) return reduce_axis<In, T>(join, from, axis, out);
  const Tensor partial = Tensor::empty(from.shape().without(axis), dtype_of<C>, x.device());
  reduce_axis<In, C>(join, from, axis, partial);
  reduce_groups<C, T>(kernels, join, partial, groups.strides[1].without(axis), out);
}

// The largest number so far and its index. NaN counts as the largest; the first of equals stays.
template <class C> using Best = Pair<Number<C>, index_t>;
struct Better {
  template <class V> WHENCE_HD V operator()(V a, V b) const {
    const bool a_is_nan = !(a.first == a.first), b_is_nan = !(b.first == b.first);
    const bool alike = a_is_nan ? b_is_nan : a.first == b.first;
    const bool above = b_is_nan ? !a_is_nan : b.first > a.first;
    return above || (alike && b.second < a.second) ? b : a;
  }
};

// Per element: 1 number read, 5 comparisons: memory; with 16-bit numbers arithmetic comes close.
template <class T, class P> struct ArgmaxRows {
  static constexpr const char* name = "argmax";
  static constexpr int threads = P::threads;
  using C = compute_t<T>;
  static constexpr std::size_t shared_bytes = P::template reduce_bytes<Best<C>>;
  Global<const T> x;
  Global<index_t> out;
  index_t rows, width;

  WHENCE_HD void operator()(Thread& t) const {
    const Team<P> team(t);
    const index_t row = team.row();
    if (row >= rows) return;
    Best<C> best{lowest<C>(), width};
    team.each_pack(width, [&](int, index_t j) {
      const auto pack = load_numbers<C, P::pack>(x, row * width + j);
      for (int k = 0; k < P::pack; ++k) best = Better{}(best, Best<C>{pack.of[k], j + k});
    });
    best = team.reduce(best, Better{});
    if (team.member() == 0) out[row] = best.second;
  }
};

}  // namespace
}  // namespace whence::gpu

namespace whence {

using namespace gpu;

void CudaKernels::reduce(Reduction f, const Tensor& x, const Tensor& out) {
  if (x.numel() == 0) return fill(out, 0);  // an empty sum; the caller has refused an empty maximum
  const Strides kept = raw::expand(out, x.shape()).strides();
  visit_real("reduce", x.dtype(), [&]<class T>(Type<T>) { reduce_groups<T, T>(*this, Join{f}, x, kept, out); });
}

void CudaKernels::argmax(const Tensor& x, const Tensor& out) {
  if (x.numel() == 0) return;
  const index_t width = x.size(-1), rows = x.numel() / width;
  visit_real("argmax", x.dtype(), [&]<class T>(Type<T>) {
    launch_rows<T, passing(256)>(rows, width, rows_fit_packs<T>(width, {&x}), [&]<class P>(P) {
      return ArgmaxRows<T, P>{global<const T>(x), global<index_t>(out), rows, width};
    });
  });
}

}  // namespace whence
