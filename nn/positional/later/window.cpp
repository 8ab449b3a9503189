// Sliding window attention: each query sees only the last n keys, its own included, with any scheme for the positions.
//                  Beltagy et al. 2020, arXiv:2004.05150 (Longformer); Jiang et al. 2023, arXiv:2310.06825 (Mistral)
//   P_ij = 0 where i - j >= n;  without a causal mask where |i - j| >= n
// The window is a fact of the attention (Visibility::window), like causality: it needs no mask of pairs. Blocks of rows
// skip the keys before it, and tiles outside it are not visited, so the time grows with T n. After L layers a token may
// depend on tokens L (n - 1) back.
// Gradients die: at every pair outside. Sums over keys, such as CoPE's of gates, end at the window too. Of two
// windows in one sum the narrower counts.
#include "nn/scheme.h"

namespace whence {
namespace {

class Window final : public PositionalScheme {
 public:
  explicit Window(const SchemeArguments& arguments) : base_(arguments.base()), keys_(arguments.integer("n")) {
    child("base", *base_);
  }

  Claims claims() const override { return base_->claims(); }
  void check_company(const Stages& stages) const override { base_->check_company(stages); }
  void join(Stages& stages) const override {
    base_->join(stages);
    stages.see_within(keys_);
  }

 private:
  std::unique_ptr<PositionalScheme> base_;
  index_t keys_;
};

const RegisterScheme registered{{.name = "window",
    .title = "sliding window attention",
    .paper = "Beltagy et al. 2020, arXiv:2004.05150",
    .equation = "P_ij = 0 where i - j >= n",
    .options = {option::integer("n", 256, {1, 1e9}, "keys that a query sees, its own included")},
    .takes_base = true,
    .variants = {"window(none, n=3)", "window(rope, n=2)", "window(alibi, n=5)", "window(forgetting, n=4)",
        "window(cope(p_max=3), n=5)", "window(cdape(kerple), n=4)", "window(dape(kerple), n=4)",
        "randomised(window(rope, n=6), length=64)", "window(shaw, n=3)", "window(fire, n=4)",
        "window(hard_attention, n=4)"},
    .make = make_scheme<Window>}};

}  // namespace
}  // namespace whence
