// Transformer-XL's relative positions: sinusoids of the distance, projected, and biases for queries.
//                                                                                Dai et al. 2019, arXiv:1901.02860
//   A_ij = [(q_i + u).k_j + (q_i + w).R_{i-j}] / sqrt(d)
//   R_n  = PE(n) W',  PE(n) = [sin(n w_0) ... sin(n w_m) ... cos(n w_0) ... cos(n w_m) ...],  w_m = 10000^(-2m / (H d))
// Without a causal mask the distance is j - i, as in the code of the randomised positions' authors; W learns either
// sign.
// u.k_j shifts a whole column. If all keys are equal, softmax ignores it: no effect, no gradient.
#include <cmath>

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/attention/distances.h"
#include "nn/attention/heads.h"
#include "nn/attention/tile_terms.h"
#include "nn/positional/waves.h"
#include "nn/scheme.h"

namespace whence {
namespace {

class TransformerXL final : public PositionalScheme, public BiasesScores, public RunsInTiles {
 public:
  explicit TransformerXL(const SchemeArguments& arguments)
      : sizes_(arguments.sizes()),
        content_bias_(bias_of("content_bias", arguments)),
        position_bias_(bias_of("position_bias", arguments)),
        projection_(param("relative_projection", {sizes_.dim, sizes_.dim}, init_of(arguments))) {
    if (sizes_.dim % 2) throw InputError("transformer_xl: model dim ", sizes_.dim, " given; an even one required");
  }

  Claims claims() const override { return {.shift_invariant = true, .drawn = Claims::Drawn::distances}; }

  void check_company(const Stages& stages) const override {
    if (stages.rotates.empty()) return;
    throw InputError(
        "transformer_xl: given with a scheme that rotates; its content bias would multiply keys that depend on their "
        "positions, and would not be a function of distances; leave one of them out");
  }

  // Returns the sum added to S, [b h i j].
  Tensor bias(const AttendContext& context) const override {
    const Distances distances = distances_of(context);
    const Tensor by_distance = matmul(
        moved_query(context), transpose(unsqueeze(keys_of(distances.values, context), 0)), context.scale);  // [b h i n]
    const Tensor content = probe("content_bias_logit", content_logit(context));                             // [b h 1 j]
    // (q + u).k / sqrt(d), only for observers; attention adds S by itself.
    if (is_watched_under(path())) (void)probe("content_logit", context.content_scores + content);          // [b h i j]
    return content + probe("position_logit", gather(by_distance, -1, distances.index_of_pairs(context)));  // [b h i j]
  }

 private:
  Tensor bias_of(const char* name, const SchemeArguments& arguments) {
    return param(name, {sizes_.heads, sizes_.head_dim()}, Init::normal(0, 0.02), arguments.yes("decay"));
  }
  static Init init_of(const SchemeArguments& arguments) {
    const index_t dim = arguments.sizes().dim;
    if (arguments.word("init") == "pytorch") return Init::fan_in(dim);
    return arguments.word("init") == "0.02" ? Init::normal(0, 0.02)
                                            : Init::truncated_normal(0, 1 / std::sqrt(static_cast<double>(dim)));
  }
  Tensor by_head(const Tensor& x) const { return reshape(x, {1, sizes_.heads, 1, sizes_.head_dim()}); }
  // q + w, [b h i d]
  Tensor moved_query(const AttendContext& context) const { return context.query + by_head(position_bias_); }
  // u.k, [b h 1 j]
  Tensor content_logit(const AttendContext& context) const {
    return matmul_by_group(by_head(content_bias_), transpose(context.key), context.scale);
  }
  // Returns R for distances [n], [h n d].
  Tensor keys_of(const Tensor& distances, const AttendContext& context) const {
    const Tensor waves = probe("sinusoids", waves_of(distances, context));    // PE, [n c]
    const Tensor r = probe("relative_keys", linear(waves, projection_, {}));  // R, [n c]
    return permute(reshape(r, {r.size(0), sizes_.heads, sizes_.head_dim()}), {1, 0, 2});
  }

  // Returns PE, [n c], in double for any dtype of the model.
  Tensor waves_of(const Tensor& distances, const AttendContext& context) const {
    return context.table_once(to_text("transformer_xl ", sizes_.dim), distances, context.query.dtype(), [&] {
      std::vector<double> places = distances.to_vector();
      for (double& n : places) n = context.causal ? n : -n;
      const std::vector<double> table = sinusoids(places, sizes_.dim, 10000, false);
      return Tensor::of(table, {distances.size(0), sizes_.dim}, context.query.dtype());
    });
  }

  // ---- The same in tiles: readers may stop here. ----
  void add_to_tiles(TileTerms& terms, const AttendContext& context) const override {
    const Distances* const distances = terms.read(whole_distances(context));
    if (!distances) return;
    terms.add(TiledOperands::column_term, select(content_logit(context), 2, 0));
    terms.add(TiledOperands::relative_query, moved_query(context), context.scale);
    terms.add(TiledOperands::relative_keys, keys_of(distances->values, context));
  }

  SchemeSizes sizes_;
  Tensor content_bias_, position_bias_;  // u, w: [h d]
  Tensor projection_;                    // W: [c c], rows by head
};

const RegisterScheme registered{{.name = "transformer_xl",
    .aliases = {"xl"},
    .title = "Transformer-XL's relative positions",
    .paper = "Dai et al. 2019, arXiv:1901.02860",
    .equation = "A_ij = [(q_i + u).k_j + (q_i + w).R_{i-j}] / sqrt(d),  R = PE W'",
    .options = {option::words("init", {"pytorch", "haiku", "0.02"},
                    "W': as PyTorch's Linear (DAPE), as Haiku's (randomised positions), or N(0, 0.02) (Dai et al.)"),
        option::yes_no("decay", "yes: weight decay shrinks u and w, as in the DAPE papers' runs")},
    .knob = "position_logit",
    .picture = SchemeInfo::distance,
    .probes = {{"sinusoids", "n c", "waves of the distance", "PE(n)  (Dai et al., section 3.3)"},
        {"relative_keys", "n c", "keys of distances", "R_n = PE(n) W'  (Dai et al., section 3.3)"},
        {"content_bias_logit", "b h o j", "the score of key j for every query",
            "u.k_j / sqrt(d)  (Dai et al., term c)"},
        {"content_logit", "b h i j", "the logit without distances",
            "(q_i + u).k_j / sqrt(d)  (Dai et al., terms a and c)"},
        {"position_logit", "b h i j", "the distance's term of the logit",
            "(q_i + w).R_{i-j} / sqrt(d)  (Dai et al., terms b and d)"}},
    .make = make_scheme<TransformerXL>}};

}  // namespace
}  // namespace whence
