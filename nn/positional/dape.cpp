// DAPE (first called CAPE): a small network adapts a base scheme's bias to the scores of all heads.
//                                                                              Zheng et al. 2024, arXiv:2405.14722
//   f(X) = W2 leaky_relu(W1 X + b1) + b2 over the heads of one pair (i, j), slope 0.01
//   concat_residual  A = S + B + f(S, B)  (Eq. 3, the listing)        concat     A = S + f(S, B)  (Eq. 2)
//   add_residual     A = S + B + f(S + B)                             f_of_bias  A = S + B + f(B)
//   with a base without a bias (none, rope): A = S + f(S)
// S is scaled by 1/sqrt(d), B is not. Nothing is masked here, because pairs do not mix.
// Gradients die: b2 moves whole rows, which softmax ignores; leaky_relu passes a hundredth below 0.
#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/layers/layers.h"
#include "nn/positional/adaptive.h"

namespace whence {
namespace {

enum class Form : unsigned char { concat_residual, concat, add_residual, f_of_bias };

Form form_of(const std::string& word) {
  if (word == "concat") return Form::concat;
  if (word == "add_residual") return Form::add_residual;
  return word == "f_of_bias" ? Form::f_of_bias : Form::concat_residual;
}

class Dape final : public Adaptive {
 public:
  explicit Dape(const SchemeArguments& arguments)
      : Adaptive("dape", arguments),
        form_(form_of(arguments.word("form"))),
        hidden_(Linear::as_pytorch(channels_in(arguments.sizes().heads), arguments.integer("width"))),
        output_(Linear::as_pytorch(arguments.integer("width"), arguments.sizes().heads)) {
    if (!has_bias()) arguments.refuse_if_given("form", "over a base without a bias, where all forms are S + f(S)");
    child("hidden", hidden_);
    child("output", output_);
  }

  Claims claims() const override { return base().claims(); }

  // a:[b h i j]   ->   a + B + f:[b h i j]
  Tensor map_scores(const Tensor& a, const AttendContext& context) const override {
    const Tensor& s = context.content_scores;
    if (!has_bias()) return a + f(s);
    const Tensor bias = base_bias(context);  // [1|b h i j]
    switch (form_) {
      case Form::concat: return a + f(channels(s, bias));
      case Form::add_residual: return a + bias + f(s + bias);
      case Form::f_of_bias: return a + bias + f(bias);
      default: return a + bias + f(channels(s, bias));
    }
  }

 private:
  index_t channels_in(index_t heads) const {
    return has_bias() && (form_ == Form::concat_residual || form_ == Form::concat) ? 2 * heads : heads;
  }

  // x:[b c i j]   ->   [b h i j]
  Tensor f(const Tensor& x) const {
    const Tensor hidden = probe("mlp_hidden", leaky_relu(over_heads(x, hidden_)));  // [b d i j]
    return probe("mlp_bias", over_heads(hidden, output_));                          // [b h i j]
  }
  // x:[b c i j]   ->   [b o i j], a convolution of width 1
  static Tensor over_heads(const Tensor& x, const Linear& layer) {
    return convolve_keys(x, reshape(layer.weight(), {layer.weight().size(0), -1, 1, 1}), layer.bias(), 0, 0);
  }

  // ---- The same in tiles: readers may stop here. ----
  // W1 [S, B] + b1 = W1' S + W1'' P + u, where u depends on the distance alone and P is the piecewise part of B.
  void add_to_tiles(TileTerms& terms, const AttendContext& context) const override {
    const auto base = base_terms(terms, context);
    if (!base) return;
    const Tensor &table = base->operands[TiledOperands::distance_table], &w1 = hidden_.weight();  // [h n], [d c]
    const index_t heads = context.query.size(1), count = base->distances->values.size(0);
    const bool pieces = base->has(TiledOperands::piece_begins);
    if (form_ == Form::f_of_bias && has_bias() && !pieces)  // f reads nothing of S, so all of it is a table
      return terms.add(TiledOperands::distance_table,
          table +
              cast(reshape(f(cast(reshape(table, {1, heads, 1, count}), w1.dtype())), table.shape()), table.dtype()));
    Network network{
        .output = unsqueeze(output_.weight(), 2), .output_bias = output_.bias(), .adds_base = form_ != Form::concat};
    if (form_ != Form::f_of_bias && add_made(terms, *base, unsqueeze(w1, 2), hidden_.bias(), network)) return;
    const Tensor of_scores = form_ == Form::f_of_bias && has_bias() ? Tensor::zeros(w1.shape(), w1.dtype(), w1.device())
                                                                    : slice(w1, 1, 0, heads),
                 of_bias = slice(w1, 1, w1.size(1) - heads, w1.size(1));  // [d h]
    network.hidden = unsqueeze(pieces ? concat_along(1, {of_scores, of_bias}) : of_scores, 2);
    const Tensor b1 = unsqueeze(exact(hidden_.bias()), 1);  // [d 1]
    const Tensor u =
        table.defined() ? matmul(exact(of_bias), exact(table)) + b1 : expand(b1, {b1.size(0), count});  // [d n]
    network.table = unsqueeze(u, 0);
    add_network(terms, *base, network);
  }

  Form form_;
  Linear hidden_, output_;  // W1 [d c], b1 [d]; W2 [h d], b2 [h]
};

const RegisterScheme registered{{.name = "dape",
    .aliases = {"cape"},
    .title = "Data-Adaptive Positional Encoding",
    .paper = "Zheng et al. 2024, arXiv:2405.14722",
    .equation = "A = S + B + W2 leaky_relu(W1 [S, B] + b1) + b2 over the heads of each pair",
    .options = {option::integer("width", 32, {1, 65536}, "hidden units of the network"),
        option::words("form", {"concat_residual", "concat", "add_residual", "f_of_bias"},
            "the network's input, and what is added to its output")},
    .knob = "mlp_bias",
    .picture = SchemeInfo::heads,
    .probes = {{"mlp_hidden", "b c i j", "hidden units of the network that reads all heads of a pair",
                   "leaky_relu(W1 X + b1),  X = [S, B], or what the form reads  (DAPE, Eq. 3)"},
        {"mlp_bias", "b h i j", "the network's term of the logit",
            "f(X) = W2 leaky_relu(W1 X + b1) + b2  (DAPE, Eq. 3)"}},
    .takes_base = true,
    .shared = [](const SchemeArguments&) { return false; },  // a network per layer, even if the base is shared
    .variants = {"dape(none, width=3)", "dape(rope, width=3)", "dape(alibi, width=3)",
        "dape(alibi, width=3, form=concat)", "dape(alibi, width=3, form=add_residual)",
        "dape(alibi, width=3, form=f_of_bias)", "dape(kerple, width=3)", "dape(fire(init_length=3), width=3)",
        "dape(randomised(alibi, length=64), width=3)"},
    .make = make_scheme<Dape>}};

}  // namespace
}  // namespace whence
