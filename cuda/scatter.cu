// Adding rows where an index says. Entries are grouped by row on the CPU (an index is small beside the rows it moves), so that each number
// is summed by one thread in the order of the entries: no atomics, the same bits on every run.
#include <algorithm>
#include <numeric>
#include <vector>

#include "cuda/kernels.h"
#include "cuda/sums.h"
#include "tensor/convert.h"
#include "tensor/launch.h"

namespace whence {
namespace {

// Group g adds the entries order[first[g]] ... order[first[g + 1] - 1], ascending, to row row[g].
struct Groups {
  std::vector<index_t> row, first, order;
};

Groups group_by_row(const Tensor& index) {
  Groups groups;
  std::vector<index_t> row_of;
  visit_index("scatter_add_rows", index.dtype(), [&]<class I>(Type<I>) {
    std::vector<I> given(static_cast<std::size_t>(index.numel()));
    memory_of(index.device()).copy_to_cpu(index.data<I>(), given.data(), given.size() * sizeof(I));
    row_of.assign(given.begin(), given.end());
  });
  groups.order.resize(row_of.size());
  std::iota(groups.order.begin(), groups.order.end(), index_t{0});
  const auto row = [&](index_t entry) { return row_of[static_cast<std::size_t>(entry)]; };
  std::stable_sort(groups.order.begin(), groups.order.end(), [&](index_t a, index_t b) { return row(a) < row(b); });
  for (std::size_t i = 0; i < row_of.size(); ++i) {
    if (i > 0 && row(groups.order[i]) == row(groups.order[i - 1])) continue;
    groups.row.push_back(row(groups.order[i]));
    groups.first.push_back(static_cast<index_t>(i));
  }
  groups.first.push_back(static_cast<index_t>(row_of.size()));
  return groups;
}

Tensor upload(const std::vector<index_t>& values, Device device) {
  const Tensor result = Tensor::empty({static_cast<index_t>(values.size())}, DType::i64, device);
  memory_of(device).copy_from_cpu(values.data(), result.data<index_t>(), values.size() * sizeof(index_t));
  return result;
}

template <class T>
struct AddRows {
  const index_t *row, *first, *order;
  const T* from;
  T* into;
  index_t width;
  WHENCE_HD void operator()(index_t i) const {
    const index_t group = i / width, column = i % width;
    T& to = into[row[group] * width + column];
    auto total = convert<sum_t<T>>(static_cast<compute_t<T>>(to));
    for (index_t entry = first[group]; entry < first[group + 1]; ++entry) {
      total += convert<sum_t<T>>(static_cast<compute_t<T>>(from[order[entry] * width + column]));
    }
    to = convert<T>(total);
  }
};

}  // namespace

void CudaKernels::scatter_add_rows(const Tensor& index, const Tensor& from, const Tensor& into) {
  if (from.numel() == 0) return;
  const Groups groups = group_by_row(index);
  const Tensor row = upload(groups.row, into.device()), first = upload(groups.first, into.device()),
               order = upload(groups.order, into.device());
  visit_floating("scatter_add_rows", from.dtype(), [&]<class T>(Type<T>) {
    const index_t width = into.size(1);
    const AddRows<T> body{row.data<index_t>(), first.data<index_t>(), order.data<index_t>(), from.data<T>(), into.data<T>(), width};
    launch("scatter_add_rows", into.device(), row.numel() * width, body, from.numel() / (row.numel() * width) + 1);
  });
}

}  // namespace whence
