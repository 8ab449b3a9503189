#include "tensor/pairs.h"

#include <algorithm>
#include <limits>

#include "tensor/kernels.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// True if each row of i64 [1|b t] counts up by ones.
bool counts_on(const Tensor& x) {
  const index_t length = x.size(1), *at = x.data<index_t>();
  for (index_t n = 1; n < x.numel(); ++n)
    if (n % length != 0 && at[n] != at[n - 1] + 1) return false;
  return true;
}

bool alike(const Tensor& a, const Tensor& b) {
  if (a.identity() == b.identity()) return true;
  const bool readable = a.device().is_cpu() && b.device().is_cpu() && a.shape() == b.shape();
  return readable && std::equal(a.data<index_t>(), a.data<index_t>() + a.numel(), b.data<index_t>());
}

}  // namespace

bool operator==(const Steps& a, const Steps& b) {
  return a.lowest == b.lowest && a.count == b.count && alike(a.query, b.query) && alike(a.key, b.key);
}

Steps Steps::of(const Tensor& query, const Tensor& key, bool causal) {
  Steps steps{raw::contiguous(query), raw::contiguous(key)};
  if (steps.query.numel() == 0 || steps.key.numel() == 0) return steps;
  index_t lowest = std::numeric_limits<index_t>::max(), highest = std::numeric_limits<index_t>::min();
  for (index_t b = 0; b < steps.batch(); ++b) {
    const index_t *queries = row_of(steps.query, b), *keys = row_of(steps.key, b);
    const auto [first_query, last_query] = std::minmax_element(queries, queries + query.size(1));
    const auto [first_key, last_key] = std::minmax_element(keys, keys + key.size(1));
    lowest = std::min(lowest, *first_query - *last_key), highest = std::max(highest, *last_query - *first_key);
  }
  if (causal) lowest = 0, highest = std::max<index_t>(highest, 0);
  steps.lowest = lowest, steps.count = highest - lowest + 1;
  steps.even = counts_on(steps.query) && counts_on(steps.key);
  return steps;
}

Steps Steps::on(Device device) const {
  return {raw::to_device(query, device), raw::to_device(key, device), lowest, count, even};
}

namespace raw {

Tensor read_by_distance(const Steps& steps, const Tensor& table) {
  const Tensor y = Tensor::like(table, {steps.batch(), table.size(0), steps.query.size(1), steps.key.size(1)});
  kernels(table).read_by_distance(steps, contiguous(table), y);
  return y;
}

Tensor band_mask(index_t rows, index_t keys, const Band& band, const Tensor& present, Device device) {
  const Tensor real = present.defined() ? contiguous(to_device(present, device)) : present;
  const Tensor mask = Tensor::empty({real.defined() ? real.size(0) : 1, 1, rows, keys}, DType::boolean, device);
  kernels(device).band_mask(band, real, mask);
  return mask;
}

}  // namespace raw
}  // namespace whence
