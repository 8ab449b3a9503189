// No positional encoding ("NoPE"): only the causal mask depends on order.   A = S
#include "nn/scheme.h"

namespace whence {
namespace {

class NoPositions final : public PositionalScheme {
 public:
  Claims claims() const override { return {.shift_invariant = true, .uses_positions = false}; }
};

const RegisterScheme registered{{.name = "none",
    .aliases = {"nope"},
    .title = "no positional encoding",
    .paper = "Kazemnejad et al. 2023, arXiv:2305.19466",
    .equation = "A = S",
    .make = make_scheme<NoPositions>}};

}  // namespace
}  // namespace whence
