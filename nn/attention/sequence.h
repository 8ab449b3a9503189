// Sequence: the positions of the tokens of a run, a padded batch or a decoded row, and which of them a query may see.
// These are facts of O(t) numbers; tensors of pairs are made from them on request.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

// The positions of queries and keys. Positions are data: shifted, drawn or stretched ones are other numbers, not other
// code. They stay on the CPU even for a model on a GPU, because they are few and schemes read them.
struct Positions {
  Tensor query;           // [i] or [b i], f64
  Tensor key;             // [j] or [b j], f64
  Tensor distances = {};  // [n] f64, ascending from 0: the distance that m steps count as; undefined: m
  // Interpolation divides distances, (i - j) / divisor, so that equal distances stay equal. Dividing each position
  // would round them differently. Distances are taken between these; undefined: query and key.
  Tensor undivided_query = {}, undivided_key = {};
  double divisor = 1;
  // The number of tokens of each sequence of the batch, without padding; one number: all of them; empty: the number of
  // keys.
  std::vector<index_t> tokens = {};
  index_t length = 0;  // length of the whole run, with tokens still to be decoded; positions are drawn for this length
  std::uint64_t seed = 0;  // seed of the pass, for positions that are drawn
  std::uint64_t step = 0;  // step of the pass
};

// The facts that decide whether a query sees a key.
struct Visibility {
  index_t rows = 0, keys = 0;  // numbers of queries and keys
  bool causal = true;          // query i sees keys up to first_row + i
  index_t first_row = 0;       // query i is token first_row + i of the keys
  index_t window = 0;          // a query sees no key at this distance or farther; 0: any distance
  Tensor present = {};  // bool [1|b 1 1 j]: false if key j is padding, which no query sees; undefined: no padding
  // bool, broadcasts to [b h i j]: false if query i must not see key j, apart from causality and padding; undefined:
  // all true
  Tensor given_mask = {};
  Device device = {};  // the device of the scores

  // Compares tensors by identity, not by content.
  friend bool operator==(const Visibility& a, const Visibility& b);
};

struct SequenceCache;  // cache of a sequence
struct TableCache;     // tables by distance without parameters

// The facts about a sequence that attention needs besides its numbers. Tensors of pairs are made from them on request.
// The tensors here stay on the CPU, as positions do.
struct Sequence : Visibility {
  Sequence();

  index_t keys_behind = 0;  // number of masked keys after the last key here (decoding, strips)
  Positions positions = {};

  static Sequence run(index_t length, bool causal = true);
  // `present` bool [b t], else Error: false for padding, left or right, not between tokens. Positions count from the
  // first real token.
  static Sequence padded(const Tensor& present, bool causal = true);
  // Decodes a causal sequence: `rows` queries after the first `first_row` tokens. `present` is bool [b first_row+rows],
  // or undefined; `capacity` is the longest length the run may reach, else Error.
  static Sequence continued(index_t first_row, index_t rows, index_t capacity, const Tensor& present = {});
  // Returns the same with the scores on `device`.
  Sequence on(Device where) const;

  // Returns bool on the scores' device, broadcasts to [b h i j]: true if query i may see key j, by all facts together;
  // undefined if they hide nothing. Made at the first call, and again after a write to `present` or `given_mask`; cached
  // for all copies of this sequence, so code that never calls it never builds a mask.
  [[nodiscard]] Tensor mask() const;
  // Returns t where the mask is true, `otherwise` elsewhere.
  [[nodiscard]] Tensor masked(const Tensor& t, double otherwise = 0, Site site = Site::current()) const;
  // Returns x [b ...] with 0 where a token is padding. The tokens along `axis` are all keys, or the last ones.
  [[nodiscard]] Tensor without_padding(const Tensor& x, int axis, Site site = Site::current()) const;
  // Returns a constant on the device of the scores. It is sent once for all layers. Gradients do not pass between
  // devices.
  [[nodiscard]] Tensor on_device(const Tensor& constant) const {
    return device == constant.device() ? constant : kept_once(constant);
  }
  // The same, but one tensor for all callers with these numbers, on the CPU too.
  [[nodiscard]] Tensor kept_once(const Tensor& constant) const;
  // Returns a table by distance without parameters, on the scores' device: the result of `make` (on the CPU, in this
  // dtype) for these distances, [n] f64. `function` names it with all its numbers: "sandwich 128 12". It is made at the
  // first call for all layers and steps with the same `tables`, which keep the last few, and sent to a GPU once.
  [[nodiscard]] Tensor table_once(
      const std::string& function, const Tensor& distances, DType dtype, const std::function<Tensor()>& make) const;
  // Gives this sequence a cache of its own. Strips do so, so that a block's mask is freed with the block.
  void own_cache();

  std::shared_ptr<SequenceCache> kept;
  // A model has one for all its steps; otherwise copies of this sequence share it. It keeps tables on the CPU only,
  // because a tensor made on a GPU while a step is recorded belongs to the graph.
  std::shared_ptr<TableCache> tables;
};

}  // namespace whence
