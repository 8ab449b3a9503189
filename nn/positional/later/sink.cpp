// A sink: each head has one more logit, without key or value, so that its rows need not add up to 1.
//                                           gpt-oss (OpenAI 2025); Miller 2023, "Attention is off by one"
//   P_ij   = e^{A_ij} / (e^{s_h} + sum_l e^{A_il})           the sink gets 1 - sum_j P_ij
//   s = 0 with fixed=yes is softmax plus one; s -> -infinity is the softmax
// Backward, with G the gradient at P and p_i = e^{s_h} / (e^{s_h} + sum_l e^{A_il}) the sink's share of row i:
//   dA_ij = P_ij (G_ij - sum_l P_il G_il),   ds_h = -sum_i p_i sum_l P_il G_il
// Gradients die: in s, if no row gives the sink anything, or all rows give it everything; in the second case also
// in that row's A, because every P is 0. Otherwise a sink lets a head do nothing: a row that finds nothing need not
// look at the first token instead.
#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/attention/tile_terms.h"
#include "nn/scheme.h"

namespace whence {
namespace {

class Sink final : public PositionalScheme, public MakesPattern, public RunsInTiles {
 public:
  explicit Sink(const SchemeArguments& arguments) {
    const index_t heads = arguments.sizes().heads;
    const double start = arguments.number("start");
    logit_ = arguments.yes("fixed") ? Tensor::full({heads}, start, DType::f64)
                                    : param("logit", {heads}, Init::constant(start), false);
  }

  Claims claims() const override { return {.shift_invariant = true, .uses_positions = false}; }

  // a:[b h i j]   ->   P:[b h i j]
  Tensor pattern(const Tensor& a, const AttendContext& context) const override {
    const index_t keys = a.size(3);
    const Tensor sinks = expand(reshape(logit_in(a.dtype(), context), {1, -1, 1, 1}), column_of(a.shape()));
    Tensor seen = context.mask();  // every row sees the sink
    if (seen.defined())
      seen = concat_along(3, {seen, Tensor::ones(column_of(seen.shape()), DType::boolean, seen.device())});
    const Tensor all = softmax(concat_along(3, {a, sinks}), seen);  // [b h i j+1]
    (void)probe("sink_weight", slice(all, 3, keys, keys + 1));      // [b h i 1]
    return slice(all, 3, 0, keys);
  }

 private:
  static Shape column_of(const Shape& pairs) { return {pairs[0], pairs[1], pairs[2], 1}; }
  Tensor logit_in(DType dtype, const AttendContext& context) const { return cast(context.on_device(logit_), dtype); }

  // ---- The same in tiles: readers may stop here. ----
  void add_to_tiles(TileTerms& terms, const AttendContext& context) const override {
    terms.add(TiledOperands::sink, logit_in(context.dtype(), context));
  }

  Tensor logit_;  // s: [h], a parameter or f64
};

const RegisterScheme registered{{.name = "sink",
    .aliases = {"softmax1"},
    .title = "a learned sink in the softmax",
    .paper = "gpt-oss, OpenAI 2025; Miller 2023, evanmiller.org/attention-is-off-by-one.html",
    .equation = "P_ij = e^{A_ij} / (e^{s_h} + sum_l e^{A_il})",
    .options = {option::number("start", 0, {-30, 30}, "initial logit of the sink; larger takes more"),
        option::yes_no("fixed", "yes: the logit stays at start; at 0 that is softmax plus one")},
    .probes = {{"sink_weight", "b h i o", "share of a row that goes to the sink; read-only",
        "e^{s_h} / (e^{s_h} + sum_l e^{A_il})", ProbeInfo::unit}},
    .variants = {"sink(start=1, fixed=yes)", "sink + rope", "alibi + sink(start=-2)", "cope(p_max=3) + sink",
        "dape(kerple, width=3) + sink"},
    .make = make_scheme<Sink>}};

}  // namespace
}  // namespace whence
