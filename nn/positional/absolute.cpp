// Learned absolute positions: one vector per position, added to the token embedding.   h_t = E[x_t] + P[t]
#include <cmath>

#include "autograd/ops.h"
#include "nn/scheme.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

class Absolute final : public PositionalScheme, public EmbedsTokens {
 public:
  explicit Absolute(const SchemeArguments& arguments)
      : table_(param("table", {arguments.or_length("rows", "rows"), arguments.sizes().dim}, init_of(arguments))) {}

  Claims claims() const override { return {.longest = table_.size(0), .whole_positions = true}; }

  // x:[b t c], P:[n c], integer positions below n   ->   x + P[t]
  Tensor embed(const Tensor& x, const Positions& positions) const override {
    const index_t rows = table_.size(0);
    for (const double position : positions.query.to_vector()) {
      if (position >= static_cast<double>(rows) || position != static_cast<double>(static_cast<index_t>(position))) {
        throw InputError(error_at_call_site("absolute", to_text("position ", position, " given; whole numbers in [0, ",
                                                            rows, ") required; train with a longer length")));
      }
    }
    // Padding on the left has negative positions. No other token sees it, so any row is right.
    const Tensor row = raw::cast(clamp(positions.query, 0, static_cast<double>(rows)), DType::i64);  // [t] or [b t]
    return x + take_rows(table_, raw::to_device(row, x.device()));  // [b t c];  dP[t] = sum_b dh[b,t]
  }

 private:
  static Init init_of(const SchemeArguments& arguments) {
    if (arguments.word("init") == "haiku") return Init::truncated_normal(0, 1);
    const double dim = static_cast<double>(arguments.sizes().dim);
    return Init::normal(0, arguments.word("init") == "dim" ? 1 / std::sqrt(dim) : 0.02);
  }

  Tensor table_;  // [n c]
};

const RegisterScheme registered{{.name = "absolute",
    .aliases = {"ape", "learned"},
    .title = "learned absolute positions",
    .paper = "Gehring et al. 2017, arXiv:1705.03122",
    .equation = "h_t = E[x_t] + P[t]",
    .options = {option::integer("rows", 0, {0, 1e9}, "positions in the table; 0: as many as the training length"),
        option::words("init", {"0.02", "dim", "haiku"},
            "deviation of the rows: 0.02, 1/sqrt(dim) (CoPE's counting), or Haiku's 1 (randomised positions)")},
    .shared = [](const SchemeArguments&) { return true; },
    .make = make_scheme<Absolute>}};

}  // namespace
}  // namespace whence
