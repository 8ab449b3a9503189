// Decoding: tokens one by one or in chunks, with a cache of earlier tokens. Logits equal those of a full pass over all
// tokens so far, row by row; cdape's at its default border those of a pass over later tokens too (errata.md, C3). If a
// scheme's rows change at a greater length (Claims::changes_rows), the call that reaches such a length rebuilds the cache
// by a pass over all tokens so far.
//
//   Decoding decoding(model, 512);
//   Tensor logits = decoding(prompt);                       // [b n v]
//   logits = decoding(next_token);                          // [b 1 v], and so on
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/transformer.h"

namespace whence {

// The cached tensors of earlier tokens of a layer. Keys are cached unrotated, so that every scheme decodes the same way.
struct CachedLayer {
  Tensor x, key, value;  // [b capacity c] if a scheme reads it; [b g capacity d] twice
  Tensor query;          // [b h capacity d], if new rows read earlier ones, which are computed again
};
// Makes a buffer for `capacity` tokens like `added`, along the axis before the last, if there is none.
void reserve_tokens(Tensor& buffer, const Tensor& added, index_t capacity);

class Decoding {
 public:
  // `capacity`: the largest number of tokens of a sequence, padding included; drawn positions are drawn for this many.
  // `padding`, if given: the number of padding tokens at the beginning of each sequence, so that prompts of different
  // lengths end at the same position. The model outlives this, and its parameters keep their dtype and memory. Throws
  // Error unless the model is causal, capacity >= 1 and padding in [0, capacity).
  Decoding(const Transformer& model, index_t capacity, const std::vector<index_t>& padding = {}, Pass pass = {});
  Decoding(const Decoding&) = delete;  // copies would share one cache
  Decoding& operator=(const Decoding&) = delete;

  // Takes the next tokens [b n] i64, n >= 1, and returns their logits [b n v]; rows of padding are meaningless. Throws
  // Error if tokens are empty or not [b n], if the capacity would be exceeded, or if the batch size differs; nothing
  // has changed then.
  [[nodiscard]] Tensor operator()(const Tensor& tokens);

  // Returns why single tokens are not decoded by a graph, as far as known: "the cpu given; a GPU required"; empty
  // before the first single token on a GPU.
  const std::string& no_graph() const { return no_graph_; }
  index_t length() const { return filled_; }  // tokens so far, padding included
  index_t cache_bytes() const;                // keys and values of all layers at full capacity; 0 before a call

  // Returns the lengths at which a cache of this model is rebuilt.
  [[nodiscard]] static Lengths made_anew_at(const Transformer& model);

 private:
  // On a GPU (nn/decoding_graph.cpp). Returns the logits of one token of each sequence, [b 1]; undefined if no graph
  // computes them, and then nothing has changed.
  Tensor by_graph(const Tensor& tokens);

  const Transformer& model_;
  index_t capacity_, filled_ = 0, batch_ = 0;  // batch: 0 until it is known
  std::vector<index_t> padding_;               // for each sequence; one number: for all
  Tensor present_;                             // bool [b capacity]; undefined if no sequence is padded
  Lengths anew_;                               // lengths at which the cache is rebuilt
  Tensor tokens_;                              // [b filled], kept only if the cache may be rebuilt
  Pass pass_;
  std::vector<CachedLayer> layers_;
  struct Graph;
  std::shared_ptr<Graph> graph_;
  std::string no_graph_;
};

}  // namespace whence
