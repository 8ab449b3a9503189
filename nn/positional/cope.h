// CoPE as a class: equations and definitions are in cope.cpp. A scheme of one's own may change a part of it, as a temperature
// of the gates does in ten lines (tests/nn/positional/contextual.cpp).
#pragma once

#include "nn/positional/contextual.h"

namespace whence {

class CoPE : public Contextual, public RunsInTiles {
 public:
  explicit CoPE(const SchemeArguments& arguments);
  static SchemeInfo info();  // as it is registered: options, probes, equation
  static bool one_table(const SchemeArguments& arguments);

  Claims claims() const override;
  void check_company(const Stages& stages) const override;
  Tensor transform_scores(const Tensor& s, const AttendContext& context) const override;
  void add_to_tiles(TileTerms& terms, const AttendContext& context) const override;

 private:
  Tensor position_logits(const AttendContext& context) const;

  double p_max_;
  PositionQuery position_query_;
  bool as_printed_;
  Tensor table_;  // e: [p_max + 1, d], shared by the heads, zero at first: the model starts without positions
};

}  // namespace whence
