// What DAPE (Zheng et al. 2024, arXiv:2405.14722, Eq. 3) and CDAPE (arXiv:2410.04798, Eq. 5) share: a base scheme that
// only rotates or biases. f reads its bias beside the scores.
//   X = [S_0 ... S_{H-1}, B_0 ... B_{H-1}]        2H channels; H where the base has no bias: B = 0, and X = S
// B is the base's own. f does not see what other schemes of a sum add to the logits, nor transforms such as CoPE's.
#pragma once

#include <memory>

#include "nn/attention/by_distance.h"
#include "nn/scheme.h"

namespace whence {

class Adaptive : public PositionalScheme, public MapsScores, public RunsInTiles {
 public:
  // Rotations enter as they are. The bias enters no stage of its own: f asks for it here.
  void join(Stages& stages) const override;
  void check_company(const Stages& stages) const override { base_->check_company(stages); }

 protected:
  // Throws InputError when the base does something else than rotating and biasing.
  Adaptive(const char* name, std::unique_ptr<PositionalScheme> base);

  const PositionalScheme& base() const { return *base_; }
  bool has_bias() const { return !inner_.biases.empty(); }
  // B: [1|b h i j]. REQUIRES: has_bias()
  [[nodiscard]] Tensor base_bias(const AttendContext& context, Site site = Site::current()) const;

  // B in tiles: a table by distance, pieces, both, or neither where the base has no bias; `terms` reads its distances.
  // Nothing where `terms` refuses: B is something else, or tokens stand elsewhere than they lie.
  [[nodiscard]] std::unique_ptr<TileTerms> base_terms(TileTerms& terms, const AttendContext& context) const;

  // f in tiles: hidden [d x k] reads S and, where the base has pieces, those; table [left+1 d n] is what it makes of
  // the base's table and its bias; output [h d k]. f's last bias [h] is a table by distance, the same at each.
  struct Network {
    Tensor hidden, table, output, output_bias;
    HeadMix mix = {};  // adds_pieces: the base's table is added to the logits too
  };
  // Sums and tables of it are as exact as tables are.
  static Tensor exact(const Tensor& x);
  static void add_network(TileTerms& terms, const TileTerms& base, const Network& network);

  // S [b h i j] and B [1|b h i j] as channels: [b 2h i j]
  [[nodiscard]] static Tensor channels(const Tensor& scores, const Tensor& bias, Site site = Site::current());

 private:
  std::unique_ptr<PositionalScheme> base_;
  Stages inner_;
};

}  // namespace whence
