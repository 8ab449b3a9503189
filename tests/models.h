// Every registered scheme and a few sums and options, and decoders small enough to check each of their numbers.
#pragma once

#include "nn/transformer.h"
#include "tests/close.h"

namespace whence::test {

// What the tests of attention and of the decoder walk: a scheme that is registered is among them.
inline std::vector<std::string> scheme_texts() {
  std::vector<std::string> texts;
  for (const SchemeInfo& info : registered_schemes()) texts.push_back(info.name);
  for (const char* text : {"cope(p_max=2)", "cope(p_max=3, gates=separate_keys)", "cope(p_max=3, gates=values, z_scale=head)",
                           "rope(layout=interleaved, width=2)", "cope + rope", "cope(p_max=2, z_from=rotated) + rope", "alibi + rope",
                           "cope + alibi", "absolute + cope(p_max=2)"}) {
    texts.push_back(text);
  }
  return texts;
}

// What a sum claims: the weakest of its parts.
inline Claims claims_of(const std::string& text, const SchemeSizes& sizes) {
  Claims all{.causal_only = false, .shift_invariant = true, .extrapolates = true, .row_local = true};
  for (const SchemeSpec& spec : parse_schemes(text)) {
    const Claims one = spec.make(sizes)->claims();
    all = {all.causal_only || one.causal_only, all.shift_invariant && one.shift_invariant, all.extrapolates && one.extrapolates,
           all.row_local && one.row_local};
  }
  return all;
}

inline DecoderOptions small(const std::string& scheme) {
  return {.vocabulary = 5, .length = 9, .dim = 8, .layers = 2, .heads = 2, .hidden = 12, .scheme = scheme};
}

// A decoder whose parameters are all random, as a pointer because modules stay where they are.
inline std::unique_ptr<Decoder> random_decoder(const DecoderOptions& options, DType dtype = DType::f64) {
  auto model = std::make_unique<Decoder>(options);
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
