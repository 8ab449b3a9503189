// Decoders small enough to check each of their numbers; schemes on bare queries, keys and values.
#pragma once

#include "autograd/observer.h"
#include "examples/whence/verify/bare_attention.h"
#include "nn/decoding.h"
#include "nn/transformer.h"
#include "tests/support/tensors.h"

namespace whence::test {

inline TransformerOptions small(const std::string& scheme) {
  return {.vocabulary = 5, .length = 9, .dim = 8, .layers = 2, .heads = 2, .hidden = 12, .scheme = scheme};
}

// Returns a decoder with random parameters, as a pointer because modules cannot be moved.
inline std::unique_ptr<Transformer> random_decoder(const TransformerOptions& options, DType dtype = DType::f64) {
  auto model = std::make_unique<Transformer>(options);
  randomise(*model, dtype);
  return model;
}

inline Tensor random_tokens(index_t batch, index_t length, index_t vocabulary, std::uint64_t seed = 1) {
  const Stream stream(seed, "tokens");
  std::vector<double> tokens;
  for (index_t i = 0; i < batch * length; ++i)
    tokens.push_back(stream.below(static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(vocabulary)));
  return Tensor::of(tokens, {batch, length}, DType::i64);
}

class Bare : public BareAttention {
 public:
  explicit Bare(const std::string& text, index_t heads = 2, index_t head_dim = 4, index_t length = 12)
      : BareAttention(text, {heads * head_dim, heads, length}) {
    randomise(root());
  }

  // Returns the parameter whose path ends in `ending`.
  Tensor operator[](const std::string& ending) const {
    for (const Module::Parameter& each : root().parameters())
      if (("." + each.path).ends_with("." + ending)) return each.tensor;
    fail("Bare", to_text("'", ending, "' given; no such parameter"));
  }
  void set(const std::string& ending, const Tensor& numbers) const {
    raw::copy_into(reshape(numbers.detach(), (*this)[ending].shape()), (*this)[ending]);
  }
  void fill(const std::string& ending, double value) const {
    set(ending, Tensor::full((*this)[ending].shape(), value, DType::f64));
  }

  Tensor logits(const AttendInputs& inputs) const { return run(inputs, Executor::reference).logits; }
  Tensor output(const AttendInputs& inputs, const AttendPlan& plan = Executor::reference) const {
    return run(inputs, plan).output;
  }
};

inline AttendInputs random_inputs(
    index_t length, const Sequence& sequence, index_t batch = 1, index_t heads = 2, index_t head_dim = 4) {
  const Shape shape{batch, heads, length, head_dim};
  return {.x = normal_leaf({batch, length, heads * head_dim}, 4),
      .query = normal_leaf(shape, 1),
      .key = normal_leaf(shape, 2),
      .value = normal_leaf(shape, 3),
      .sequence = sequence};
}
inline AttendInputs random_inputs(index_t length) { return random_inputs(length, Sequence::run(length)); }

}  // namespace whence::test
