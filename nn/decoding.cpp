#include "nn/decoding.h"

#include <algorithm>

#include "autograd/recording.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {

Decoding::Decoding(const Transformer& model, index_t capacity, const std::vector<index_t>& padding, Pass pass)
    : model_(model), capacity_(capacity), pass_(pass), caches_(static_cast<std::size_t>(model.options().layers)) {
  if (!model.options().causal)
    fail("decoding", "a model that is not causal given; a row of it depends on later tokens; a causal one required");
  if (capacity < 1) fail("decoding", "capacity ", capacity, " given; 1 or more required");
  pass_.training = false;
  batch_ = static_cast<index_t>(padding.size());
  if (std::ranges::count(padding, 0) == batch_) return;
  present_ = Tensor::empty({batch_, capacity}, DType::boolean);
  bool* real = present_.data<bool>();
  for (const index_t count : padding) {
    if (count < 0 || count >= capacity) fail("decoding", "padding ", count, " given; 0 to ", capacity - 1, " required");
    for (index_t t = 0; t < capacity; ++t) *real++ = t >= count;
  }
}

Tensor Decoding::operator()(const Tensor& tokens) {
  if (tokens.rank() != 2 || tokens.size(0) < 1 || tokens.size(1) < 1)
    fail("decoding", "tokens are ", tokens.shape(), "; [batch, time] with at least one token required");
  const index_t batch = tokens.size(0), rows = tokens.size(1);
  if (batch_ && batch != batch_)
    fail("decoding", "a batch of ", batch, " given; ", batch_, " sequences required, as before");
  if (filled_ + rows > capacity_) {
    fail("decoding", rows, " tokens given after ", filled_, "; at most ", capacity_ - filled_,
        " more fit; ask for a larger capacity");
  }
  const NoGrad values_only;
  const Tensor present = present_.defined() ? raw::slice(present_, 1, 0, filled_ + rows) : present_;
  const Sequence sequence = Sequence::continued(filled_, rows, capacity_, present);
  std::vector<AttentionCache> caches = caches_;  // handles: taken back when something throws
  const Tensor logits = model_(tokens, sequence, pass_, &caches);
  caches_ = std::move(caches);
  batch_ = batch;
  filled_ += rows;
  return logits;
}

}  // namespace whence
