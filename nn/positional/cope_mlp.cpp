// CoPE_MLP: a small network instead of a table reads the contextual positions.
//                                                          Golovneva et al. 2024, arXiv:2405.18719, appendix C
//   p_ij = sum_{l=j..i} g_il                                         gates g: nn/positional/contextual.h        (Eq. 4)
//   output=vector  A_ij = S_ij + q_i.e(p_ij),  e(p) = W2 relu(w1 p + b1) + b2 in R^d        our reading of a name
//                       = S_ij + u_i.relu(w1 p_ij + b1) + q_i.b2,  u_i = W2' q_i           the form that is computed
//   output=head    A_ij = S_ij + W2[h].relu(w1 p_ij + b1) + b2[h]                           a bias per head: reading R2
// The paper gives only the variant's name and its N hidden units. There is no clamp: p may be as large as the run is
// long. One network serves all heads.
// Gradients die: in relu, for all positions on the wrong side of -b1/w1;
// in saturated gates. b2 moves whole rows: softmax ignores it.
#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/positional/contextual.h"
#include "tensor/error.h"

namespace whence {
namespace {

class CopeMLP final : public Contextual {
 public:
  explicit CopeMLP(const SchemeArguments& arguments)
      : Contextual(arguments),
        position_query_(arguments),
        per_head_(arguments.word("output") == "head"),
        hidden_(Linear::as_pytorch(1, arguments.integer("width"))),
        output_(Linear::as_pytorch(
            arguments.integer("width"), per_head_ ? arguments.sizes().heads : arguments.sizes().head_dim())) {
    if (per_head_) arguments.refuse_if_given("z_from", "where output=head, which reads no query");
    child("hidden", hidden_);
    child("output", output_);
  }

  Claims claims() const override {
    return {.causal_only = true,
        .shift_invariant = !position_query_.rotated,
        .uses_positions = false,
        .reads_x = makes_keys(),
        .by_key_head = makes_keys()};
  }
  void check_company(const Stages& stages) const override { position_query_.check_company("cope_mlp", stages); }

  // s:[b h i j]   ->   s + q.e(p):[b h i j]. In the dtype of p, so that 16-bit models tell far positions apart.
  Tensor transform_scores(const Tensor& s, const AttendContext& context) const override {
    const Tensor p = probe("positions", sums_of_gates(context));  // Eq. 4, [b h i j]
    const auto like_p = [&](const Tensor& x) { return cast(x, p.dtype()); };
    const double scale = position_query_.scale(context);
    const Tensor hidden = probe(
        "mlp_hidden", relu(linear(unsqueeze(p, -1), like_p(hidden_.weight()), like_p(hidden_.bias()))));  // [b h i j n]
    const Tensor weight = like_p(output_.weight()), bias = like_p(output_.bias());
    Tensor c;  // [b h i j 1]
    if (per_head_) {
      const index_t heads = weight.size(0);
      c = matmul(hidden, reshape(weight, {1, heads, 1, -1, 1}), scale) + reshape(bias, {1, heads, 1, 1, 1}) * scale;
    } else {
      const Tensor q = like_p(position_query_.of(context)),
                   u = matmul(q, weight);                               // [b h i d], u_i = W2' q_i: [b h i n]
      const Tensor of_bias = matmul(q, reshape(bias, {-1, 1}), scale);  // q.b2, [b h i 1]
      c = matmul(hidden, unsqueeze(u, -1), scale) + unsqueeze(of_bias, -1);
    }
    return s + probe("position_logit", cast(reshape(c, s.shape()), s.dtype()));
  }

 private:
  PositionQuery position_query_;
  bool per_head_;
  Linear hidden_, output_;  // w1 [n 1], b1 [n]; W2 [d n], b2 [d], or [h n], [h]
};

const RegisterScheme registered{{.name = "cope_mlp",
    .title = "Contextual Position Encoding by a network",
    .paper = "Golovneva et al. 2024, arXiv:2405.18719",
    .equation = "A_ij = S_ij + q_i.(W2 relu(w1 p_ij + b1) + b2),  p_ij = sum_{l=j..i} sigmoid(q_i.k_l / sqrt(d))",
    .options = {option::integer("width", 64, {1, 65536}, "hidden units of the network"),
        option::words("output", {"vector", "head"}, "a vector multiplied by q, or a bias per head"),
        Contextual::gates_option(), PositionQuery::scale_option(), PositionQuery::from_option()},
    .knob = "gates",
    .picture = SchemeInfo::positions,
    .probes = Contextual::probes("p_ij = sum_{l=j..i} g_il  (CoPE, Eq. 4)", "",
        {{"mlp_hidden", "b h i j n", "hidden units of the network that reads the position",
             "relu(w1 p_ij + b1)  (CoPE, appendix C)", ProbeInfo::sequential},
            {"position_logit", "b h i j", "the position's term of the logit",
                "q_i.(W2 relu(w1 p_ij + b1) + b2), or without q_i: output=head  (CoPE, appendix C)"}}),
    .variants = {"cope_mlp(width=3)", "cope_mlp(width=3, output=head)", "cope_mlp(width=3, output=head, z_scale=head)",
        "cope_mlp(width=3, z_from=rotated) + rope"},
    .make = make_scheme<CopeMLP>}};

}  // namespace
}  // namespace whence
