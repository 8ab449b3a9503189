#include "nn/decoding.h"

#include <algorithm>

#include "autograd/recording.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// Puts `added` behind the `filled` tokens of a buffer along `axis`, and returns all that is there. The first call makes
// the buffer.
Tensor append(Tensor& buffer, const Tensor& added, int axis, index_t filled, index_t capacity) {
  if (!buffer.defined()) {
    Shape extents = added.shape();
    extents[axis] = capacity;
    buffer = Tensor::zeros(extents, added.dtype(), added.device());
  }
  const index_t end = filled + added.size(axis);
  raw::copy_into(added.detach(), raw::slice(buffer, axis, filled, end));
  return raw::slice(buffer, axis, 0, end);
}

}  // namespace

class Decoding::Cache final : public AttentionCache {
 public:
  Cache(std::vector<Kept> kept, index_t filled, index_t capacity)
      : layers(std::move(kept)), filled_(filled), capacity_(capacity) {}

  bool extend(index_t layer, AttendInputs& inputs, const Stages& stages) override {
    Kept& mine = layers[static_cast<std::size_t>(layer)];
    inputs.x = append(mine.x, inputs.x, 1, filled_, capacity_);
    inputs.key = append(mine.key, inputs.key, 2, filled_, capacity_);
    inputs.value = append(mine.value, inputs.value, 2, filled_, capacity_);
    if (std::ranges::all_of(stages.schemes, [](const PositionalScheme* scheme) { return scheme->claims().row_local; }))
      return false;
    Sequence& all = inputs.sequence;  // earlier rows are computed again, for the new ones to read
    all.rows = all.keys, all.first_row = 0;
    all.positions.query = all.positions.key;
    all.keep_apart();  // the masks of the last rows are those of other layers
    return true;
  }

  std::vector<Kept> layers;

 private:
  index_t filled_, capacity_;
};

Decoding::Decoding(const Transformer& model, index_t capacity, const std::vector<index_t>& padding, Pass pass)
    : model_(model), capacity_(capacity), pass_(pass), kept_(static_cast<std::size_t>(model.options().layers)) {
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

index_t Decoding::cache_bytes() const {
  index_t bytes = 0;
  for (const Kept& of_layer : kept_)
    for (const Tensor* each : {&of_layer.key, &of_layer.value})
      if (each->defined()) bytes += each->numel() * static_cast<index_t>(size_of(each->dtype()));
  return bytes;
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
  Cache cache(kept_, filled_, capacity_);  // handles: taken back when something throws
  const Tensor logits = model_(tokens, sequence, pass_, &cache);
  kept_ = std::move(cache.layers);
  batch_ = batch;
  filled_ += rows;
  return logits;
}

}  // namespace whence
