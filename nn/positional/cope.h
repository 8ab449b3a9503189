// CoPE as a class; cope.cpp has its equations. A derived scheme may change a part of it:
// tests/nn/positional/contextual.cpp adds a temperature of the gates in ten lines.
#pragma once

#include "nn/positional/contextual.h"

namespace whence {

class CoPE : public Contextual, public RunsInTiles {
 public:
  explicit CoPE(const SchemeArguments& arguments);
  static SchemeInfo info();  // its registration: options, probes, equation
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
  Tensor table_;  // e: [p_max + 1, d], shared by the heads, initially 0: the model starts without positions
};

}  // namespace whence
