// Where the tokens of a run, a padded batch or a decoded row stand, and which of them a query may see: facts of O(t)
// numbers, of which tensors of pairs are made when somebody asks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

// Where queries and keys stand. Positions are data: shifted, drawn or stretched ones are other numbers, not other code.
// They stay on the CPU, whatever device the model is on: they are few, and schemes read them.
struct Positions {
  Tensor query;           // [i] or [b i], f64
  Tensor key;             // [j] or [b j], f64
  Tensor distances = {};  // [n] f64, ascending from 0: what a distance of m steps counts as; undefined: m
  // Interpolation divides distances, (i - j) / divisor, so that equal ones stay equal. Positions divided one by one
  // would differ by rounding. Distances are taken between these; undefined: query and key.
  Tensor undivided_query = {}, undivided_key = {};
  double divisor = 1;
  // How many tokens each sequence of the batch has, padding not counted; one number: all of them; empty: as many as
  // there are keys.
  std::vector<index_t> tokens = {};
  index_t length = 0;      // of the whole run, tokens yet to be decoded included: what positions are drawn for
  std::uint64_t seed = 0;  // of the pass, for positions that are drawn
  std::uint64_t step = 0;  // of the pass
};

// By which facts a query sees a key.
struct Visibility {
  index_t rows = 0, keys = 0;  // how many queries and keys there are
  bool causal = true;          // query i sees keys up to first_row + i
  index_t first_row = 0;       // query i is token first_row + i of the keys
  // i64 [1] beside the scores: first_row, where the device alone knows it (nn/decoding.h). Then first_row and the
  // queries' positions are the largest that they may be: what is read by distance is made for all of them. Attention in
  // tiles alone can do that; a mask is refused.
  Tensor row = {};
  index_t window = 0;   // a query sees no key that lies this far away from its own, or farther; 0: any distance
  Tensor present = {};  // bool [1|b 1 1 j]: false where key j is padding, which no query sees; undefined: nowhere
  // bool, broadcasts to [b h i j]: false where query i must not see key j, causality and padding apart; undefined:
  // nowhere
  Tensor given_mask = {};
  Device device = {};  // where the scores are

  // Of tensors, whether they are the same ones.
  friend bool operator==(const Visibility& a, const Visibility& b);
};

struct KeptOfSequence;  // what was made of a sequence at first use
struct KeptTables;      // tables by distance that nobody learns

// What attention has to know about a sequence besides its numbers: facts. Tensors of pairs are made of them when
// somebody asks. The tensors here stay on the CPU, as positions do.
struct Sequence : Visibility {
  Sequence();

  index_t keys_behind = 0;  // how many more keys the run has behind the last one here, all masked (decoding, strips)
  Positions positions = {};

  static Sequence run(index_t length, bool causal = true);
  // `present` bool [b t], else Error: false for padding, left or right, not between tokens. Positions count from
  // the first real token.
  static Sequence padded(const Tensor& present, bool causal = true);
  // Decoding a causal sequence: `rows` queries after the first `first_row` of its tokens. `present` is bool [b
  // first_row+rows], or undefined; `capacity` is the length that the run may reach, else Error.
  static Sequence continued(index_t first_row, index_t rows, index_t capacity, const Tensor& present = {});
  // The same where the scores are on `device`.
  Sequence on(Device where) const;
  // The same with the queries of all tokens, and `row` undefined.
  Sequence of_all_rows() const;
  // x, whose tokens along `axis` are all keys, of the queries alone. REQUIRES: `row`
  [[nodiscard]] Tensor own_rows(const Tensor& x, int axis) const;

  // bool on the scores' device, broadcasts to [b h i j]: true where query i may see key j, by all facts together;
  // undefined where none of them hides anything. Made at the first call and kept for all copies of this sequence: code
  // that never asks for the mask never builds it.
  [[nodiscard]] Tensor mask() const;
  // t where the mask is true, `otherwise` elsewhere
  [[nodiscard]] Tensor masked(const Tensor& t, double otherwise = 0, Site site = Site::current()) const;
  // x [b ...] with 0 where a token is padding. The tokens along `axis` are all keys, or the last ones.
  [[nodiscard]] Tensor without_padding(const Tensor& x, int axis, Site site = Site::current()) const;
  // A constant that a scheme worked out, on the device of the scores: sent once, whichever layer asks. Gradients do not
  // pass between devices.
  [[nodiscard]] Tensor on_device(const Tensor& constant) const {
    return device == constant.device() ? constant : kept_once(constant);
  }
  // The same, but one tensor for all who ask with these numbers, on the CPU too.
  [[nodiscard]] Tensor kept_once(const Tensor& constant) const;
  // A table by distance that is not learned, beside the scores: what `make` makes on the CPU, in this dtype, of these
  // distances, [n] f64. `function` says what is made, with all its numbers: "sandwich 128 12". Made at the first call
  // for all layers and steps with these `tables`, which keep the last few. Sent to a GPU once, as on_device() does.
  [[nodiscard]] Tensor table_once(
      const std::string& function, const Tensor& distances, DType dtype, const std::function<Tensor()>& make) const;
  // What is made from now on is kept for this one and its copies alone: a part of a run must not outlive its turn.
  void keep_apart();

  std::shared_ptr<KeptOfSequence> kept;
  // A model has one for all its steps; else copies of this share it. It keeps tables on the CPU alone: what is made on
  // a GPU while a step is recorded belongs to the graph.
  std::shared_ptr<KeptTables> tables;
};

}  // namespace whence
