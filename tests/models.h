// Decoders small enough to check each of their numbers.
#pragma once

#include "nn/transformer.h"
#include "tests/close.h"

namespace whence::test {

// bool [1 1 t t]: true where key j <= query i.
inline Tensor causal_mask(index_t length) { return Sequence::run(length).mask(); }

inline TransformerOptions small(const std::string& scheme) {
  return {.vocabulary = 5, .length = 9, .dim = 8, .layers = 2, .heads = 2, .hidden = 12, .scheme = scheme};
}

// A decoder whose parameters are all random, as a pointer because modules stay where they are.
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

}  // namespace whence::test
