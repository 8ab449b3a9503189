// What DAPE and CDAPE share: a base scheme that only rotates or biases, whose bias f reads beside the scores.
//   X = [S_0 ... S_{H-1}, B_0 ... B_{H-1}]        2H channels; H where the base has no bias: B = 0, and X = S
// B is the base's own. Biases of other schemes in a sum are added to the logits and stay unseen by f; so do transforms
// such as CoPE's.
#pragma once

#include <memory>

#include "nn/scheme.h"

namespace whence {

class Adaptive : public PositionalScheme, public MapsScores {
 public:
  // Rotations enter as they are; the bias is asked for here, so that it enters no stage of its own.
  void join(Stages& stages) const override;
  void check_company(const Stages& stages) const override { base_->check_company(stages); }

 protected:
  // Throws InputError when the base does something else than rotating and biasing.
  Adaptive(const char* name, std::unique_ptr<PositionalScheme> base);

  const PositionalScheme& base() const { return *base_; }
  bool has_bias() const { return !inner_.biases.empty(); }
  // B: [1|b h i j]. REQUIRES: has_bias()
  [[nodiscard]] Tensor base_bias(const AttendContext& at, Site here = Site::current()) const;

  // S and B as channels. REQUIRES: has_bias()
  [[nodiscard]] static Tensor channels(const Tensor& scores, const Tensor& bias, Site here = Site::current());

 private:
  std::unique_ptr<PositionalScheme> base_;
  Stages inner_;
};

}  // namespace whence
