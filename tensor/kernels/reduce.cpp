// Sums and maxima over any axes. Neighbouring axes that are both reduced, or both kept, are merged. Then one group of
// reduced axes after another is reduced, the last first: along rows if the group is innermost, else along columns.
// Numbers between the passes are double, or dual.
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "tensor/kernels.h"
#include "tensor/kernels/rows.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"
#include "tensor/shape.h"
#include "tensor/strided_index.h"

namespace whence {
namespace {

template <class T> using wide_t = std::conditional_t<std::is_same_v<T, Dual>, Dual, double>;

// A reduction: its start value, how partial results join, and a contiguous row.
struct Sum {
  template <class W> static W start() { return W(0); }
  template <class W> static W join(W a, W b) { return a + b; }
  template <class W, class T> static W row(const T* x, index_t count) {
    return sum_of<W>(count, [x](index_t i) { return static_cast<W>(x[i]); });
  }
};
struct Maximum {
  template <class W> static W start() { return W(-std::numeric_limits<double>::infinity()); }
  template <class W> static W join(W a, W b) { return larger(a, b); }
  template <class W, class T> static W row(const T* x, index_t count) {
    return static_cast<W>(maximum_of<T>(x, count));
  }
};

// Reduces one run of elements `stride` apart, of any length.
template <class F, class T> wide_t<T> reduce_run(const T* x, index_t stride, index_t count) {
  using C = compute_t<T>;
  using W = wide_t<T>;
  if constexpr (std::is_same_v<T, C>) {
    if (stride == 1) return F::template row<W>(x, count);
  }
  W total = F::template start<W>();
  for (index_t begin = 0; begin < count; begin += block_length) {
    C block[block_length];
    const index_t n = std::min(block_length, count - begin);
    load_block(x + begin * stride, stride, n, block);
    total = F::join(total, F::template row<W>(block, n));
  }
  return total;
}

constexpr index_t chunk_length = 16384;  // of a row, or rows x columns of a column sum

// x seen as [outer..., length] -> out [outer]. A long row is cut into fixed chunks, joined in order.
template <class F, class T, class Out> void reduce_rows(const Tensor& x, Out* out) {
  using W = wide_t<T>;
  const index_t length = x.size(-1), stride = x.strides()[-1], chunks = (length + chunk_length - 1) / chunk_length;
  const T* in = x.data<T>();
  const StridedIndex<1> rows(x.shape().leading(-1), {x.strides().leading(-1)});
  if (chunks == 1) {
    parallel_for(rows.count(), rows_per_chunk(length), [&](index_t begin, index_t end) {
      for (index_t row = begin; row < end; ++row)
        out[row] = convert<Out>(reduce_run<F>(in + rows(row)[0], stride, length));
    });
    return;
  }
  // Few long rows: threads share the chunks.
  std::vector<W> partial(static_cast<std::size_t>(rows.count() * chunks));
  parallel_for(rows.count() * chunks, 1, [&](index_t begin, index_t end) {
    for (index_t task = begin; task < end; ++task) {
      const index_t first = task % chunks * chunk_length, count = std::min(chunk_length, length - first);
      const T* run = in + rows(task / chunks)[0] + first * stride;
      partial[static_cast<std::size_t>(task)] = reduce_run<F>(run, stride, count);
    }
  });
  for (index_t row = 0; row < rows.count(); ++row) {
    const W* of_row = partial.data() + row * chunks;
    out[row] = convert<Out>(std::accumulate(of_row + 1, of_row + chunks, of_row[0], F::template join<W>));
  }
}

// Joins the columns [begin, begin + count) of `rows` rows into total[count].
template <class F, class T>
void reduce_panel(const T* x, index_t row_stride, index_t rows, index_t count, wide_t<T>* __restrict total) {
  using C = compute_t<T>;
  std::fill_n(total, count, F::template start<wide_t<T>>());
  for (index_t row = 0; row < rows; ++row) {
    C buffer[block_length];
    const C* __restrict values = row_as(x + row * row_stride, count, buffer);
    for (index_t k = 0; k < count; ++k) total[k] = F::join(total[k], static_cast<wide_t<T>>(values[k]));
  }
}

// x is [outer, rows, width] with width contiguous -> out [outer, width]. Many rows are cut into fixed chunks, joined in
// order.
template <class F, class T, class Out>
void reduce_columns(
    const T* x, index_t outer, index_t outer_stride, index_t rows, index_t row_stride, index_t width, Out* out) {
  using W = wide_t<T>;
  const index_t columns = std::min(width, block_length), blocks = (width + columns - 1) / columns;
  const index_t chunk_rows = std::max<index_t>(chunk_length / columns, 1),
                chunks = (rows + chunk_rows - 1) / chunk_rows;
  std::vector<W> partial(static_cast<std::size_t>(chunks > 1 ? outer * chunks * width : 0));
  parallel_for(outer * chunks * blocks, 1, [&](index_t begin, index_t end) {
    for (index_t task = begin; task < end; ++task) {
      const index_t column = task % blocks * columns, chunk = task / blocks % chunks, slab = task / blocks / chunks;
      const index_t count = std::min(columns, width - column), first = chunk * chunk_rows,
                    n = std::min(chunk_rows, rows - first);
      W total[block_length];
      reduce_panel<F>(x + slab * outer_stride + first * row_stride + column, row_stride, n, count, total);
      if (chunks == 1)
        store_block(total, count, out + slab * width + column, 1);
      else
        std::copy_n(total, count, partial.data() + (slab * chunks + chunk) * width + column);
    }
  });
  if (chunks == 1) return;
  parallel_for(outer * width, chunk_length, [&](index_t begin, index_t end) {
    for (index_t i = begin; i < end; ++i) {
      const W* first = partial.data() + i / width * chunks * width + i % width;
      W total = *first;
      for (index_t chunk = 1; chunk < chunks; ++chunk) total = F::join(total, first[chunk * width]);
      out[i] = convert<Out>(total);
    }
  });
}

// Reduces the last group of reduced axes into `out` (contiguous, of the shape that is left).
template <class F, class T, class Out> void reduce_group(const Tensor& x, int axis, Out* out) {
  if (axis + 1 == x.rank()) return reduce_rows<F, T>(x, out);
  // Kept axes follow: [outer..., rows, width...]. Copied to be contiguous unless it merges into one slab anyway.
  const bool simple = axis <= 1 && axis + 2 == x.rank() && x.strides()[-1] == 1;
  const Tensor y = simple ? x : raw::copy(x);
  const index_t rows = y.size(axis), outer = numel(y.shape().leading(axis)), width = y.numel() / outer / rows;
  const index_t outer_stride = axis > 0 ? (simple ? y.strides()[0] : rows * width) : 0;
  reduce_columns<F>(y.data<T>(), outer, outer_stride, rows, y.strides()[axis], width, out);
}

// Reduces one group per call, the last first. The rest is a smaller tensor in the wide type, reduced again until no
// group remains. `kept` are the strides in `out` (contiguous), 0 along reduced axes.
template <class F, class T> void reduce_groups(const Tensor& x, const Strides& kept, const Tensor& out) {
  using W = wide_t<T>;
  const MergedAxes<2> groups = merged<2>(x.shape(), {x.strides(), kept});
  const Tensor from = x.view(groups.shape, groups.strides[0]);
  int axis = -1, left = 0;
  for (int i = 0; i < from.rank(); ++i)
    if (groups.strides[1][i] == 0) axis = i, ++left;
  if (left == 0) return kernels(Device::cpu()).copy(from, raw::reshape(out, from.shape()));
  if (left == 1 && out.dtype() == x.dtype()) return reduce_group<F, T>(from, axis, out.data<T>());
  const Tensor partial = Tensor::empty(from.shape().without(axis), dtype_of<W>);
  reduce_group<F, T>(from, axis, partial.data<W>());
  reduce_groups<F, W>(partial, groups.strides[1].without(axis), out);
}

}  // namespace

void Kernels::reduce(Reduction f, const Tensor& x, const Tensor& out) {
  if (x.numel() == 0) return fill(out, 0);  // an empty sum; the caller has refused an empty maximum
  const Strides kept = raw::expand(out, x.shape()).strides();
  visit_floating("reduce", x.dtype(), [&]<class T>(Type<T>) {
    if (f == Reduction::sum) return reduce_groups<Sum, T>(x, kept, out);
    reduce_groups<Maximum, T>(x, kept, out);
  });
}

}  // namespace whence
