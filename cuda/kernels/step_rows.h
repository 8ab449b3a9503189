// StepRows: the steps between queries and keys (tensor/pairs.h), from one row of each.
#pragma once

#include "cuda/vocabulary/thread.h"
#include "tensor/pairs.h"

namespace whence::gpu {

// The queries and keys of a sequence; one row of either may serve all of a batch.
struct StepRows {
  Global<const index_t> query, key;
  index_t query_batch, key_batch;  // strides of sequences; 0 if one row serves all
  index_t lowest, count;
  // A query's position minus the table's smallest distance. Minus key_at(b, j) it is the pair's index into the table.
  WHENCE_HD index_t first(index_t b, index_t i) const { return query[b * query_batch + i] - lowest; }
  WHENCE_HD index_t key_at(index_t b, index_t j) const { return key[b * key_batch + j]; }
};

inline StepRows step_rows(const Steps& steps) {
  const auto apart = [](const Tensor& x) { return x.size(0) == 1 ? 0 : x.size(1); };
  return {global<const index_t>(steps.query), global<const index_t>(steps.key), apart(steps.query), apart(steps.key),
      steps.lowest, steps.count};
}

}  // namespace whence::gpu
