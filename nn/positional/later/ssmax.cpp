// Scalable-Softmax: logits grow with the logarithm of the number of keys, so that the largest weight of a long row does
// not fade.                                                                       Nakanishi 2025, arXiv:2501.19399
//   A_ij <- s_h log(n_i) A_ij,  n_i the keys that row i sees: P_ij = n_i^{s_h A_ij} / sum_l n_i^{s_h A_il}
//   form=llama4  A_ij <- (1 + 0.1 log(1 + floor(n_i / floor))) A_ij, nothing learned              (Meta's Llama 4)
// In a window n_i counts the keys in it, at most n; Llama 4's code counts all tokens up to i (nn/errata.md, D13).
// It scales the scores after all other schemes, biases included, and so is the last of those that map scores. Backward,
// with G the gradient at the scaled logits: dA_ij = s_h log(n_i) G_ij,  ds_h = sum_ij G_ij log(n_i) A_ij. Where
// gradients die: in a row that sees one key, because log 1 = 0; everywhere but in s, if s is 0; and as in any softmax
// where P is 0 or 1, which a larger n makes more frequent.
#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/attention/tile_terms.h"
#include "nn/scheme.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

class Ssmax final : public PositionalScheme, public MapsScores, public RunsInTiles {
 public:
  explicit Ssmax(const SchemeArguments& arguments) : floor_(arguments.number("floor")) {
    if (arguments.word("form") == "llama4") {
      arguments.refuse_if_given("start", "with form=llama4");
    } else {
      arguments.refuse_if_given("floor", "without form=llama4");
      strength_ = param("strength", {arguments.sizes().heads}, Init::constant(arguments.number("start")), false);
    }
  }

  Claims claims() const override { return {.shift_invariant = true, .uses_positions = false}; }
  void check_company(const Stages& stages) const override {
    if (stages.maps.back().scheme == this) return;
    throw InputError(
        "ssmax: another that maps scores given behind it, whose part it would not scale; write ssmax as the last");
  }

  // a:[b h i j]   ->   s log(n) a:[b h i j]
  Tensor map_scores(const Tensor& a, const AttendContext& context) const override {
    return a * cast(factor(context), a.dtype());
  }

 private:
  // [b h i 1]
  Tensor factor(const AttendContext& context) const {
    const Tensor n = keys_seen(context);
    const Tensor numbers = strength_.defined() ? log(n) * reshape(cast(strength_, n.dtype()), {1, -1, 1, 1})
                                               : log1p(floor_of(n / floor_)) * 0.1 + 1.0;
    return probe("factor", expand(numbers, {numbers.size(0), context.query.size(1), context.query.size(2), 1}));
  }
  // Returns n, or 1 where it would be 0: [1|b 1|h 1|i 1].
  static Tensor keys_seen(const AttendContext& context) {
    const DType dtype = compute_dtype(context.dtype());
    const Tensor mask = context.mask();
    if (!mask.defined())
      return Tensor::full({1, 1, 1, 1}, static_cast<double>(context.key.size(2)), dtype, context.device);
    return clamp(sum(raw::cast(mask, dtype), {-1}, true), 1, static_cast<double>(context.key.size(2)));
  }
  static Tensor floor_of(const Tensor& x) { return raw::cast(raw::cast(x, DType::i64), x.dtype()); }

  // ---- The same in tiles: readers may stop here. ----
  std::string only_on_cpu() const override { return "a factor of each query"; }
  // The queries are scaled instead of the scores, because there are fewer of them.
  void add_to_tiles(TileTerms& terms, const AttendContext& context) const override {
    terms.scale_queries(cast(factor(context), context.dtype()));
  }

  double floor_;
  Tensor strength_;  // s: [h]
};

const RegisterScheme registered{{.name = "ssmax",
    .aliases = {"scalable_softmax"},
    .title = "Scalable-Softmax",
    .paper = "Nakanishi 2025, arXiv:2501.19399",
    .equation = "A_ij <- s_h log(n_i) A_ij,  n_i the number of keys that row i sees",
    .options = {option::words("form", {"log", "llama4"}, "s_h log(n), or 1 + 0.1 log(1 + floor(n / floor))"),
        option::number("start", 0.168, {-10, 10}, "initial s of every head"),
        option::number("floor", 8192, {1, 1e9}, "keys up to which form=llama4 changes nothing")},
    .knob = "factor",
    .probes = {{"factor", "b h i o", "factor of all logits of a row",
        "s_h log(n_i), or 1 + 0.1 log(1 + floor(n_i / floor))  (Scalable-Softmax)"}},
    .variants = {"ssmax(form=llama4, floor=2)", "rope + ssmax", "alibi + ssmax", "cope(p_max=3) + ssmax",
        "dape(kerple, width=3) + ssmax", "ssmax + sink", "ssmax + stick_breaking"},
    .make = make_scheme<Ssmax>}};

}  // namespace
}  // namespace whence
