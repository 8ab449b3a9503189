// Adaptive: the common part of DAPE (Zheng et al. 2024, arXiv:2405.14722, Eq. 3) and CDAPE (arXiv:2410.04798, Eq. 5).
// The base scheme only rotates or biases, and f reads its bias.
//   X = [S_0 ... S_{H-1}, B_0 ... B_{H-1}]        2H channels; H if the base has no bias: B = 0, and X = S
// B is the base's own bias. f sees neither other schemes' additions to the logits nor transforms such as CoPE's.
#pragma once

#include <memory>

#include "nn/attention/tile_terms.h"
#include "nn/scheme.h"

namespace whence {

class Adaptive : public PositionalScheme, public MapsScores, public RunsInTiles {
 public:
  // Rotations of the base enter unchanged. Its bias enters no stage of its own: f reads it here.
  void join(Stages& stages) const override;
  void check_company(const Stages& stages) const override { base_->check_company(stages); }

 protected:
  // Throws InputError if the base does anything besides rotating and biasing, or has table=.
  Adaptive(const char* name, const SchemeArguments& arguments);

  const PositionalScheme& base() const { return *base_; }
  bool has_bias() const { return !inner_.biases.empty(); }
  // Returns B: [1|b h i j]. REQUIRES: has_bias()
  [[nodiscard]] Tensor base_bias(const AttendContext& context, Site site = Site::current()) const;

  // Returns B as tile operands: a table by distance, pieces, both, or neither if the base has no bias; `terms` reads
  // its distances. Returns nothing if `terms` refuses: B is something else, or tokens have moved.
  [[nodiscard]] std::optional<TileTerms> base_terms(TileTerms& terms, const AttendContext& context) const;

  // The network as tile operands. `hidden` [d x k]: first layer's weights on S, and on the pieces if the base has them.
  // `table` [left+1 d n]: its output for the base's table, and its bias. `output` [h d k]: second layer. Its bias [h]
  // is a table by distance, the same at each distance.
  struct Network {
    Tensor hidden = {}, table = {}, output = {}, output_bias = {};
    Tensor added = {};      // what the table by distance is, if that is known
    bool adds_base = true;  // false: only the network reads the base's bias; it is not added to the logits
    index_t left = 0, right = 0, behind = 0;  // as in TiledCall
    bool remask = false;
  };
  // Returns x in the precision of tables and sums.
  static Tensor exact(const Tensor& x);
  static void add_network(TileTerms& terms, const TileTerms& base, const Network& network);
  // Adds the network of W1 [d c k] and b1 [d] on a device that makes its operands in one launch; else returns false.
  static bool add_made(
      TileTerms& terms, const TileTerms& base, const Tensor& w1, const Tensor& b1, const Network& network);

  // Returns S [b h i j] and B [1|b h i j] as channels: [b 2h i j].
  [[nodiscard]] static Tensor channels(const Tensor& scores, const Tensor& bias, Site site = Site::current());

 private:
  std::unique_ptr<PositionalScheme> base_;
  Stages inner_;
};

}  // namespace whence
