#include "nn/decoding.h"

#include <algorithm>

#include "autograd/recording.h"
#include "tensor/error.h"

namespace whence {

Decoding::Decoding(const Transformer& model, index_t capacity, std::vector<index_t> padding, Pass pass)
    : model_(model),
      capacity_(capacity),
      padding_(std::move(padding)),
      pass_(pass),
      caches_(static_cast<std::size_t>(model.options().layers)) {
  if (!model.options().causal)
    fail("decoding", "a model that is not causal given; a row of it depends on later tokens; a causal one required");
  if (capacity < 1) fail("decoding", "capacity ", capacity, " given; 1 or more required");
  for (const index_t count : padding_)
    if (count < 0 || count >= capacity) fail("decoding", "padding ", count, " given; 0 to ", capacity - 1, " required");
  pass_.training = false;
}

// bool [b t], or undefined where no sequence is padded
Tensor Decoding::present(index_t batch, index_t length) const {
  if (std::all_of(padding_.begin(), padding_.end(), [](index_t count) { return count == 0; })) return {};
  const Tensor real = Tensor::empty({batch, length}, DType::boolean);
  for (index_t b = 0; b < batch; ++b)
    for (index_t t = 0; t < length; ++t) real.data<bool>()[b * length + t] = t >= padding_[static_cast<std::size_t>(b)];
  return real;
}

Tensor Decoding::operator()(const Tensor& tokens) {
  if (tokens.rank() != 2 || tokens.size(0) < 1 || tokens.size(1) < 1)
    fail("decoding", "tokens are ", tokens.shape(), "; [batch, time] with at least one token required");
  const index_t batch = tokens.size(0), rows = tokens.size(1);
  const index_t expected = batch_ ? batch_ : padding_.empty() ? batch : static_cast<index_t>(padding_.size());
  if (batch != expected) fail("decoding", "a batch of ", batch, " given; ", expected, " sequences required, as before");
  if (filled_ + rows > capacity_) {
    fail("decoding", rows, " tokens given after ", filled_, "; at most ", capacity_ - filled_,
        " more fit; ask for a larger capacity");
  }
  const NoGrad values_only;
  const Sequence sequence = Sequence::continued(filled_, rows, capacity_, present(batch, filled_ + rows));
  std::vector<AttentionCache> caches = caches_;  // handles: taken back when something throws
  const Tensor logits = model_(tokens, sequence, pass_, &caches);
  caches_ = std::move(caches);
  batch_ = batch;
  filled_ += rows;
  return logits;
}

}  // namespace whence
