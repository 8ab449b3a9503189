#include "tensor/pairs.h"

#include <algorithm>

#include "tensor/error.h"
#include "tensor/kernels.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// Whether each row of i64 [1|b t] counts on by ones.
bool counts_on(const Tensor& x) {
  const index_t length = x.size(1), *at = x.data<index_t>();
  for (index_t n = 1; n < x.numel(); ++n)
    if (n % length != 0 && at[n] != at[n - 1] + 1) return false;
  return true;
}

// Row b of [1|b t]
const index_t* row_of(const Tensor& x, index_t b) { return x.data<index_t>() + (x.size(0) == 1 ? 0 : b * x.size(1)); }

}  // namespace

PairSteps PairSteps::of(const Tensor& query, const Tensor& key, index_t lowest, index_t count) {
  const Tensor queries = raw::contiguous(query), keys = raw::contiguous(key);
  for (index_t b = 0; queries.numel() > 0 && keys.numel() > 0 && b < std::max(queries.size(0), keys.size(0)); ++b) {
    const index_t *of_queries = row_of(queries, b), *of_keys = row_of(keys, b);
    const index_t most = *std::max_element(of_queries, of_queries + queries.size(1)) -
                         *std::min_element(of_keys, of_keys + keys.size(1));
    if (most - lowest >= count)
      fail("distance", most, " steps between a query and a key given; at most ", lowest + count - 1, " required");
  }
  return {queries, keys, lowest, count, counts_on(queries) && counts_on(keys)};
}

PairSteps PairSteps::on(Device device) const {
  return {raw::to_device(query, device), raw::to_device(key, device), lowest, count, even};
}

namespace raw {

Tensor read_by_steps(const PairSteps& steps, const Tensor& table) {
  const Tensor y = Tensor::empty(
      {steps.batch(), table.size(0), steps.query.size(1), steps.key.size(1)}, table.dtype(), table.device());
  kernels(table.device()).read_by_steps(steps, contiguous(table), y);
  return y;
}

Tensor causal_mask(index_t rows, index_t keys, index_t first_row, const Tensor& present, Device device) {
  const Tensor real = present.defined() ? contiguous(to_device(present, device)) : present;
  const Tensor mask = Tensor::empty({real.defined() ? real.size(0) : 1, 1, rows, keys}, DType::boolean, device);
  kernels(device).causal_mask(first_row, real, mask);
  return mask;
}

}  // namespace raw
}  // namespace whence
