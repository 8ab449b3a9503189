// A gate on the output of attention: each head's result times a sigmoid of the query's token.
//                                                                              Qiu et al. 2025, arXiv:2505.06708
//   o_i <- o_i * sigmoid(W x_i)       per=element: W [h d c], a gate for each number; per=head: W [h c], one per head
// It has no position. Add it to other schemes as a sum (path + forgetting + gated_output). A head can output nothing,
// for which plain attention needs a token to look away to. Without it, value and output projection are one linear map;
// the gate puts a nonlinearity between them.
// Gradients die: in shut gates, for all that the head read, and in open ones for x. Initially all are about 1/2.
#include "autograd/observer.h"
#include "nn/attention/heads.h"
#include "nn/layers/layers.h"
#include "nn/scheme.h"

namespace whence {
namespace {

class GatedOutput final : public PositionalScheme, public MapsOutput {
 public:
  explicit GatedOutput(const SchemeArguments& arguments)
      : heads_(arguments.sizes().heads),
        gate_(arguments.sizes().dim, arguments.word("per") == "head" ? heads_ : arguments.sizes().dim, false) {
    child("gate", gate_);
  }

  Claims claims() const override { return {.shift_invariant = true, .uses_positions = false, .reads_x = true}; }

  // o:[b h i d]   ->   o * gate:[b h i d]
  Tensor map_output(const Tensor& output, const AttendContext& context) const override {
    const Tensor logits =
        gate_(of_queries(layer_input("gated_output", context), 1, context));  // [b i h] or [b i (h d)]
    const Tensor gate = sigmoid(by_head(logits, heads_));
    return output * probe("output_gate", gate);  // [b h i 1|d]
  }

 private:
  index_t heads_;
  Linear gate_;  // [h c] or [h d c]
};

const RegisterScheme registered{{.name = "gated_output",
    .title = "a sigmoid gate on the output of attention",
    .paper = "Qiu et al. 2025, arXiv:2505.06708",
    .equation = "o_i <- o_i * sigmoid(W x_i)",
    .options = {option::words("per", {"element", "head"}, "a gate for each number of a head, or one for the head")},
    .probes = {{"output_gate", "b h i d", "share of each head's output that query i passes on",
        "sigmoid(W x_i), the last axis 1 with per=head  (gated attention)", ProbeInfo::unit}},
    .variants = {"gated_output + alibi", "gated_output(per=head) + cope(p_max=3)"},
    .make = make_scheme<GatedOutput>}};

}  // namespace
}  // namespace whence
