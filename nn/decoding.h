// Decoding: tokens one by one or in chunks. A cache holds earlier tokens. Logits equal those of the full pass of all
// tokens so far, row by row. Where a scheme says that a run of a greater length has other rows (Claims::changes_rows),
// the call that reaches such a length makes the cache anew: it costs a pass over all tokens so far.
//
//   Decoding decoding(model, 512);
//   Tensor logits = decoding(prompt);                       // [b n v]
//   logits = decoding(next_token);                          // [b 1 v], and so on
// On a GPU a step of one token is recorded at its second time, as one graph, and replayed from then on: the tokens and
// their place are data on the device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/transformer.h"

namespace whence {

class Decoding {
 public:
  // `capacity`: how many tokens a sequence may reach, padding included; drawn positions are drawn for as many.
  // `padding`, where given: how many tokens of padding each sequence begins with, so that prompts of different lengths
  // end at the same place. The model outlives this, and its parameters keep their dtype and memory. Throws Error unless
  // the model is causal, capacity >= 1 and padding in [0, capacity).
  Decoding(const Transformer& model, index_t capacity, const std::vector<index_t>& padding = {}, Pass pass = {});

  // tokens [b n] i64, n >= 1, the next ones -> their logits [b n v]; rows of padding mean nothing. Throws Error when
  // tokens are none or no [b n], the capacity would be exceeded, or the batch is another; nothing has changed then.
  [[nodiscard]] Tensor operator()(const Tensor& tokens);

  // Why single tokens are not decoded by a graph, as far as it is known: "the cpu given; a GPU required"; empty before the
  // first of them on a GPU.
  const std::string& no_graph() const { return no_graph_; }
  index_t length() const { return filled_; }  // tokens so far, padding included
  index_t cache_bytes() const;                // of all layers' keys and values, for the whole capacity; 0 before a call

  // Lengths at which a cache of this model is made anew.
  [[nodiscard]] static Lengths made_anew_at(const Transformer& model);

 private:
  // Kept has of earlier tokens all that later tokens read. Keys are stored unrotated, so that every scheme decodes the same way.
  struct Kept {
    Tensor x, key, value;  // [b capacity c], [b g capacity d] twice; x whether a scheme reads it or not
  };
  class Cache;
  struct Step;
  Tensor next_token(const Tensor& tokens);  // by the graph, [b 1] on the CPU

  const Transformer& model_;
  index_t capacity_, filled_ = 0, batch_ = 0;  // batch: 0 until it is known
  std::vector<index_t> padding_;               // of each sequence; one number: of all
  Tensor present_;                             // bool [b capacity]; undefined where no sequence is padded
  Lengths anew_;                               // at which the cache is made anew
  Tensor tokens_;                              // [b filled], kept where that may happen
  Pass pass_;
  std::vector<Kept> kept_;  // by layer
  std::shared_ptr<Step> step_;
  std::string no_graph_;
};

}  // namespace whence
