#include "nn/decoding.h"

#include <algorithm>
#include <array>

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "tensor/backend.h"
#include "tensor/device/recorded_step.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// Makes a buffer for `capacity` tokens along `axis` if there is none.
void require_buffer(Tensor& buffer, const Tensor& added, int axis, index_t capacity) {
  if (buffer.defined()) return;
  Shape extents = added.shape();
  extents[axis] = capacity;
  buffer = Tensor::zeros(extents, added.dtype(), added.device());
}

// Writes `added` after the `filled` tokens of a buffer along `axis`, and returns all tokens.
Tensor append(Tensor& buffer, const Tensor& added, int axis, index_t filled, index_t capacity) {
  require_buffer(buffer, added, axis, capacity);
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
    if (inputs.sequence.row.defined()) return place(mine, inputs, stages);
    inputs.x = append(mine.x, inputs.x, 1, filled_, capacity_);
    inputs.key = append(mine.key, inputs.key, 2, filled_, capacity_);
    inputs.value = append(mine.value, inputs.value, 2, filled_, capacity_);
    if (std::ranges::all_of(stages.schemes, [](const PositionalScheme* scheme) { return scheme->claims().row_local; }))
      return false;
    inputs.sequence = inputs.sequence.of_all_rows();  // new rows read earlier rows, which are computed again
    inputs.sequence.keep_apart();                     // the masks of the last rows belong to other layers
    return true;
  }

  std::vector<Kept> layers;

 private:
  // In a graph: writes the new rows at the device's row index, and passes the whole buffers on.
  bool place(Kept& mine, AttendInputs& inputs, const Stages& stages) const {
    for (const PositionalScheme* scheme : stages.schemes)
      if (!scheme->claims().row_local)
        throw Error("a scheme that computes earlier rows again given; one row at a time required");
    const std::array from{inputs.x.detach(), inputs.key.detach(), inputs.value.detach()};
    require_buffer(mine.x, from[0], 1, capacity_);
    require_buffer(mine.key, from[1], 2, capacity_), require_buffer(mine.value, from[2], 2, capacity_);
    const std::array to{mine.x, mine.key, mine.value};
    kernels(mine.x).copy_rows(from, to, -2, inputs.sequence.row);
    inputs.x = mine.x, inputs.key = mine.key, inputs.value = mine.value;
    return false;
  }

  index_t filled_, capacity_;
};

// A token's step as a graph, and the data it reads. The graph contains the address of this object.
struct Decoding::Step {
  const Transformer& model;
  Pass pass;
  index_t capacity;
  std::vector<Kept> kept;
  Tensor inputs;  // i64 [b+1]: the tokens, and their position
  // The sequence of the last possible token, except for the number of tokens: a graph covers the lengths from now to
  // the next length at which rows change.
  Sequence sequence;
  RecordedStep logits;

  Step(const Decoding& of, index_t batch)
      : model(of.model_),
        pass(of.pass_),
        capacity(of.capacity_),
        kept(of.kept_),
        inputs(Tensor::zeros({batch + 1}, DType::i64, model.device())),
        sequence(Sequence::continued(capacity - 1, 1, capacity, of.present_)),
        logits(model.device(), [this] { return std::vector<Tensor>{compute()}; }) {
    sequence.row = raw::slice(inputs, 0, batch, batch + 1);
    sequence.positions.tokens = of.padding_;
    for (index_t& count : sequence.positions.tokens) count = of.filled_ + 1 - count;
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  Tensor compute() {
    Cache cache(kept, capacity - 1, capacity);
    const Tensor made =
        model(raw::reshape(raw::slice(inputs, 0, 0, inputs.size(0) - 1), {-1, 1}), sequence, pass, &cache);
    kept = std::move(cache.layers);
    return made;
  }
};

Decoding::Decoding(const Transformer& model, index_t capacity, const std::vector<index_t>& padding, Pass pass)
    : model_(model),
      capacity_(capacity),
      padding_(padding.empty() ? std::vector<index_t>{0} : padding),
      anew_(made_anew_at(model)),
      pass_(pass),
      kept_(static_cast<std::size_t>(model.options().layers)) {
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

Lengths Decoding::made_anew_at(const Transformer& model) {
  Lengths all;
  for (index_t layer = 0; layer < model.options().layers; ++layer)
    for (const PositionalScheme* scheme : model.attention(layer).stages().schemes)
      all = all.joined(scheme->claims().changes_rows);
  return all;
}

Tensor Decoding::next_token(const Tensor& tokens) {
  const index_t batch = tokens.size(0);
  if (!step_) step_ = std::make_shared<Step>(*this, batch);
  const Tensor host = Tensor::empty({batch + 1}, DType::i64);
  raw::copy_into(raw::cast(raw::reshape(tokens, {batch}), DType::i64), raw::slice(host, 0, 0, batch));
  host.data<index_t>()[batch] = filled_;
  backend_of(model_.device())
      .memory->copy_from_cpu(
          host.bytes(), step_->inputs.bytes(), static_cast<std::size_t>(batch + 1) * sizeof(index_t));
  const Tensor logits = raw::copy(step_->logits.run()[0]);  // a copy, because the next step uses the same memory
  kept_ = step_->kept;
  return logits;
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
  if (model_.device().is_cpu()) no_graph_ = "the cpu given; a GPU required";
  const index_t end = filled_ + rows;
  const bool anew =
      std::ranges::any_of(padding_, [&](index_t padding) { return anew_.reached(filled_ - padding, end - padding); });
  if (anew && anew_.last >= capacity_ && no_graph_.empty())
    no_graph_ = "a scheme that changes all rows at each length given; unchanged rows required";
  Tensor text;
  if (anew_.reached(0, capacity_)) {
    const Tensor given = raw::to_device(tokens, Device::cpu());
    text = filled_ > 0 ? concat_along(1, {tokens_, given}) : raw::copy(given);
  }
  const bool watched = detail::observer;  // observers see nothing of a replay
  if (rows == 1 && !anew && filled_ >= std::ranges::max(padding_) && is_index(tokens.dtype()) && no_graph_.empty() &&
      !watched) {
    const Tensor given = raw::to_device(tokens, Device::cpu());  // throws what was wrong with earlier tokens
    if (step_ && step_->inputs.device() != model_.device()) step_.reset();
    try {
      const Tensor logits = next_token(given);
      batch_ = batch, filled_ = end, tokens_ = text;
      return logits;
    } catch (const Error& error) {
      if (step_ && step_->logits.recorded()) throw;
      no_graph_ = error.what();  // so far only things that may be done again
      step_.reset();
    }
  }
  const index_t begin = anew ? 0 : filled_;
  const Tensor present = present_.defined() ? raw::slice(present_, 1, 0, end) : present_;
  const Sequence sequence = Sequence::continued(begin, end - begin, capacity_, present);
  // Handles to the cache; discarded if something throws.
  Cache cache(anew ? std::vector<Kept>(kept_.size()) : kept_, begin, capacity_);
  const Tensor logits = model_(anew ? text : tokens, sequence, pass_, &cache);
  if (anew) step_.reset();  // it holds the old cache
  kept_ = std::move(cache.layers);
  batch_ = batch, filled_ = end, tokens_ = text;
  return raw::slice(logits, 1, logits.size(1) - rows, logits.size(1));
}

}  // namespace whence
