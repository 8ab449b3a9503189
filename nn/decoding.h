// Decoding: the logits of new tokens from what earlier ones left in a cache, equal row by row to those of the full
// pass.
//
//   Decoding decoding(model, 512);
//   Tensor logits = decoding(prompt);                       // [b n v]
//   logits = decoding(next_token);                          // [b 1 v], and so on
#pragma once

#include <vector>

#include "nn/transformer.h"

namespace whence {

class Decoding {
 public:
  // `capacity`: how many tokens the sequences may reach, padding included; drawn positions are drawn for as many.
  // `padding`, where given:
  // how many tokens of padding each sequence of the batch begins with (prompts of different lengths end at the same
  // place). The model outlives this. Throws Error when the model is no causal one or a number is negative.
  Decoding(const Transformer& model, index_t capacity, std::vector<index_t> padding = {}, Pass pass = {});

  // tokens [b n] (index), n >= 1: those that follow -> their logits [b n v]; rows of padding are meaningless. Throws
  // Error, and nothing is changed, when the capacity would be exceeded or the batch is another.
  [[nodiscard]] Tensor operator()(const Tensor& tokens);

  index_t length() const { return filled_; }  // tokens so far, padding included

 private:
  Tensor present(index_t batch, index_t length) const;

  const Transformer& model_;
  index_t capacity_, filled_ = 0, batch_ = 0;
  std::vector<index_t> padding_;
  Pass pass_;
  std::vector<AttentionCache> caches_;
};

}  // namespace whence
