#include "nn/decoding.h"

#include <algorithm>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "nn/attention/plan.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {

void reserve_tokens(Tensor& buffer, const Tensor& added, index_t capacity) {
  if (buffer.defined()) return;
  Shape extents = added.shape();
  extents[added.rank() - 2] = capacity;
  buffer = Tensor::zeros(extents, added.dtype(), added.device());
}

namespace {

struct Cache final : AttentionCache {
  Cache(std::vector<CachedLayer> all, index_t tokens, index_t most)
      : layers(std::move(all)), filled(tokens), capacity(most) {}
  std::vector<CachedLayer> layers;
  index_t filled, capacity;

  // Writes `added` after the filled tokens of a buffer, and returns all tokens.
  Tensor append(Tensor& buffer, const Tensor& added) const {
    reserve_tokens(buffer, added, capacity);
    const index_t end = filled + added.size(-2);
    raw::copy_into(added.detach(), raw::slice(buffer, -2, filled, end));
    return raw::slice(buffer, -2, 0, end);
  }

  Tensor attend(index_t layer, AttendInputs inputs, const Stages& stages, const AttendPlan& wanted) override {
    CachedLayer& mine = layers[static_cast<std::size_t>(layer)];
    const index_t rows = inputs.query.size(2);
    inputs.x = stages.reads_x() ? append(mine.x, inputs.x) : Tensor();
    inputs.key = append(mine.key, inputs.key), inputs.value = append(mine.value, inputs.value);
    const auto is_local = [](const PositionalScheme* scheme) { return scheme->claims().row_local; };
    if (std::ranges::all_of(stages.schemes, is_local)) return whence::attend(inputs, stages, wanted);
    inputs.query = append(mine.query, inputs.query);  // new rows read earlier rows, which are computed again
    Sequence& all = inputs.sequence;
    all.rows = all.keys, all.first_row = 0, all.positions.query = all.positions.key;
    all.own_cache();  // the masks of the last rows belong to other layers
    return slice(whence::attend(inputs, stages, wanted), 2, filled, filled + rows);
  }
};

}  // namespace

Decoding::Decoding(const Transformer& model, index_t capacity, const std::vector<index_t>& padding, Pass pass)
    : model_(model),
      capacity_(capacity),
      padding_(padding.empty() ? std::vector<index_t>{0} : padding),
      anew_(made_anew_at(model)),
      pass_(pass),
      layers_(static_cast<std::size_t>(model.options().layers)) {
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
  for (const CachedLayer& layer : layers_)
    for (const Tensor* each : {&layer.key, &layer.value})
      if (each->defined()) bytes += each->numel() * static_cast<index_t>(size_of(each->dtype()));
  return bytes;
}

Lengths Decoding::made_anew_at(const Transformer& model) {
  Lengths all;
  for (index_t layer = 0; layer < model.options().layers; ++layer)
    for (const PositionalScheme* scheme : model.attention(layer).stages().schemes)
      all = all.joined(scheme->claims().changes_rows);
  return all;
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
  const index_t end = filled_ + rows;
  const bool anew =
      std::ranges::any_of(padding_, [&](index_t padding) { return anew_.reached(filled_ - padding, end - padding); });
  if (anew && anew_.last >= capacity_ && no_graph_.empty())
    no_graph_ = "a scheme that changes all rows at each length given; unchanged rows required";
  Tensor text, logits;
  if (anew_.reached(0, capacity_)) {
    const Tensor given = raw::to_device(tokens, Device::cpu());
    text = filled_ > 0 ? concat_along(1, {tokens_, given}) : raw::copy(given);
  }
  if (rows == 1 && !anew && filled_ >= std::ranges::max(padding_) && is_index(tokens.dtype()))
    logits = by_graph(tokens);
  if (!logits.defined()) {
    const index_t begin = anew ? 0 : filled_;
    const Tensor present = present_.defined() ? raw::slice(present_, 1, 0, end) : present_;
    const Sequence sequence = Sequence::continued(begin, end - begin, capacity_, present);
    // Handles to the cache; discarded if something throws.
    Cache cache(anew ? std::vector<CachedLayer>(layers_.size()) : layers_, begin, capacity_);
    logits = model_(anew ? text : tokens, sequence, pass_, &cache);
    logits = raw::slice(logits, 1, logits.size(1) - rows, logits.size(1));
    if (anew) graph_.reset();  // it holds the old cache
    layers_ = std::move(cache.layers);
  }
  batch_ = batch, filled_ = end, tokens_ = text;
  return logits;
}

}  // namespace whence
