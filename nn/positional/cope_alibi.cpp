// CoPE_ALiBi: contextual positions times a slope per head, instead of a table.
//                                                          Golovneva et al. 2024, arXiv:2405.18719, appendix C
//   p_ij = sum_{l=j..i} g_il                                   gates g: nn/positional/contextual.h            (Eq. 4)
//   A_ij = S_ij - m_h p_ij                                                                                    (Eq. 10)
// The paper prints +m p with positive m, which favours the oldest keys; ALiBi, which it follows, subtracts
// (nn/errata.md, A10). No table, no clamp.
//   slopes=heads    ALiBi's rule for any number of heads
//   slopes=halving  m_h = first / 2^h, as in the paper's flip-flop runs: first = 1, 1/4, 1/16 (nn/errata.md, A11)
//   slopes=learned  m_h a parameter, initially 0: until it changes the gates have no gradient
#include <cmath>

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/positional/alibi_slopes.h"
#include "nn/positional/contextual.h"

namespace whence {
namespace {

class CopeAlibi final : public Contextual, public RunsInTiles {
 public:
  explicit CopeAlibi(const SchemeArguments& arguments)
      : Contextual(arguments), sign_(arguments.word("sign") == "plus" ? 1 : -1) {
    const index_t heads = arguments.sizes().heads;
    if (arguments.word("slopes") != "halving") arguments.refuse_if_given("first", "without slopes=halving");
    if (arguments.word("slopes") == "learned") {
      slopes_ = param("slopes", {heads}, Init::zeros(), false);
    } else {
      slopes_ = Tensor::of(
          arguments.word("slopes") == "heads" ? alibi_slopes(heads) : halving(arguments.number("first"), heads),
          {heads}, DType::f64);
    }
  }

  Claims claims() const override {
    return {.causal_only = true,
        .shift_invariant = true,
        .uses_positions = false,
        .reads_x = makes_keys(),
        .by_key_head = makes_keys()};
  }

  // s:[b h i j]   ->   s - m p:[b h i j]
  Tensor transform_scores(const Tensor& s, const AttendContext& context) const override {
    const Tensor p = probe("positions", sums_of_gates(context));                                // Eq. 4, [b h i j]
    const Tensor slopes = cast(reshape(context.on_device(slopes_), {1, -1, 1, 1}), p.dtype());  // [1 h 1 1]
    return s + probe("position_logit", cast(p * (slopes * sign_), s.dtype()));
  }

 private:
  static std::vector<double> halving(double first, index_t heads) {
    std::vector<double> slopes;
    for (index_t h = 0; h < heads; ++h) slopes.push_back(std::ldexp(first, -static_cast<int>(h)));
    return slopes;
  }

  // ---- The same in tiles: readers may stop here. ----
  void add_to_tiles(TileTerms& terms, const AttendContext& context) const override {
    add_gates(terms, context);
    terms.add(TiledOperands::position_slopes, cast(context.on_device(slopes_), context.dtype()) * sign_);  // [h]
  }

  double sign_;
  Tensor slopes_;  // m: [h], a parameter or f64
};

const RegisterScheme registered{{.name = "cope_alibi",
    .title = "Contextual Position Encoding with linear biases",
    .paper = "Golovneva et al. 2024, arXiv:2405.18719",
    .equation = "A_ij = S_ij - m_h p_ij,  p_ij = sum_{l=j..i} sigmoid(q_i.k_l / sqrt(d))",
    .options = {option::words("slopes", {"heads", "halving", "learned"}, "ALiBi's, first / 2^h, or parameters"),
        option::number("first", 1, {1e-6, 1e6}, "slope of the first head, with slopes=halving"),
        option::words("sign", {"minus", "plus"}, "sign of m p; Eq. 10 prints plus"), Contextual::gates_option()},
    .knob = "gates",
    .picture = SchemeInfo::positions,
    .probes = Contextual::probes("p_ij = sum_{l=j..i} g_il  (CoPE, Eq. 4)", "",
        {{"position_logit", "b h i j", "the position's term of the logit",
            "-m_h p_ij  (CoPE, Eq. 10, which prints +, as sign=plus has it)"}}),
    .variants = {"cope_alibi(slopes=halving, first=0.25)", "cope_alibi(slopes=learned)",
        "cope_alibi(slopes=learned, sign=plus)", "cope_alibi(slopes=halving, sign=plus, gates=values)"},
    .make = make_scheme<CopeAlibi>}};

}  // namespace
}  // namespace whence
