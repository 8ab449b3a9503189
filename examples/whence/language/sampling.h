// Draws the next token from logits, with temperature, top-k and top-p; and text from a model, token by token, with a
// cache of keys and values.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "examples/whence/language/tokeniser.h"
#include "nn/transformer.h"

namespace whence::language {

struct SamplingOptions {
  double temperature = 1;  // 0: always the most probable token
  index_t top_k = 0;       // only this many of the most probable tokens; 0: all
  double top_p = 1;        // then only the fewest most probable tokens whose rescaled probabilities reach this
};

// Returns the distribution for drawing a token: softmax(logits / temperature), cut by top_k, then by top_p, each time
// scaled to a sum of 1. Among equal logits the smaller id counts as more probable. NotFinite when a logit is not
// finite. REQUIRES: temperature >= 0, top_k >= 0, 0 < top_p <= 1.
[[nodiscard]] std::vector<double> next_token_distribution(
    const std::vector<double>& logits, const SamplingOptions& options);

// Returns the token at `uniform` in [0, 1) of the cumulative distribution.
[[nodiscard]] TokenId draw(const std::vector<double>& distribution, double uniform);

struct GenerationOptions {
  SamplingOptions sampling;
  index_t tokens = 256;  // new ones, at most
  // Tokens that the model sees at most. A full context continues from its later half. 0: no limit.
  index_t context = 0;
  std::uint64_t seed = 0;  // token i is drawn with number 0 of the stream (seed, "sampling", i)
  TokenId stop = -1;       // ends the text and is not emitted; -1: no such token
  index_t named = 0;       // tokens from this number on are never drawn; 0: all may be drawn
};

// Draws tokens after the prompt, and passes each to `emit`, which returns false to stop. Throws Error when the prompt
// is empty or the model refuses a token or a length.
TokenIds generate(const Transformer& model, const TokenIds& prompt, const GenerationOptions& options,
    const std::function<bool(TokenId)>& emit = {});

}  // namespace whence::language
