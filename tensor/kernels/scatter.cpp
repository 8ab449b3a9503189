// Adds rows at an index. Entries are first grouped by row (a stable counting sort), so that each row is summed by one
// thread and in the order of its entries.
#include <algorithm>
#include <vector>

#include "tensor/kernels.h"
#include "tensor/kernels/rows.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

// order[first[r]] ... order[first[r + 1] - 1] are the entries for row r, ascending.
struct Grouped {
  std::vector<index_t> first, order;
};

Grouped group_by_row(const Tensor& index, index_t rows) {
  Grouped result;
  result.first.assign(static_cast<std::size_t>(rows) + 1, 0);
  result.order.resize(static_cast<std::size_t>(index.numel()));
  visit_index("scatter_add_rows", index.dtype(), [&]<class I>(Type<I>) {
    const I* row_of = index.data<I>();
    for (index_t i = 0; i < index.numel(); ++i) ++result.first[static_cast<std::size_t>(row_of[i]) + 1];
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) result.first[row + 1] += result.first[row];
    std::vector<index_t> next(result.first.begin(), result.first.end() - 1);
    for (index_t i = 0; i < index.numel(); ++i)
      result.order[static_cast<std::size_t>(next[static_cast<std::size_t>(row_of[i])]++)] = i;
  });
  return result;
}

constexpr index_t panel_width = 128;  // columns that one thread sums at a time

// One panel of one row: into += the sum of its entries, rounded once.
template <class T>
void add_panel(const T* from, const index_t* entry, index_t entries, index_t width, T* into, index_t count) {
  using C = compute_t<T>;
  C total[panel_width] = {}, buffer[panel_width];
  load_block(into, 1, count, total);
  for (index_t e = 0; e < entries; ++e) {
    const C* __restrict row = row_as(from + entry[e] * width, count, buffer);
    for (index_t k = 0; k < count; ++k) total[k] += row[k];
  }
  store_block(total, count, into, 1);
}

template <class T> void scatter_rows(const Tensor& index, const Tensor& from, const Tensor& into) {
  const index_t rows = into.size(0), width = into.size(1), panels = (width + panel_width - 1) / panel_width;
  const Grouped grouped = group_by_row(index, rows);
  const T* in = from.data<T>();
  T* out = into.data<T>();
  const index_t work =
      (from.numel() + into.numel()) / std::max<index_t>(rows * panels, 1) + 1;  // elements per task, on average
  parallel_for(rows * panels, std::max<index_t>(cpu_grain / work, 1), [&](index_t begin, index_t end) {
    for (index_t task = begin; task < end; ++task) {
      const index_t row = task / panels, column = task % panels * panel_width;
      const index_t first = grouped.first[static_cast<std::size_t>(row)],
                    last = grouped.first[static_cast<std::size_t>(row) + 1];
      if (first == last) continue;
      add_panel(in + column, grouped.order.data() + first, last - first, width, out + row * width + column,
          std::min(panel_width, width - column));
    }
  });
}

}  // namespace

void Kernels::scatter_add_rows(const Tensor& index, const Tensor& from, const Tensor& into) {
  if (from.numel() == 0) return;
  visit_floating("scatter_add_rows", from.dtype(), [&]<class T>(Type<T>) { scatter_rows<T>(index, from, into); });
}

}  // namespace whence
