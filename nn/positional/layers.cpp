// A scheme in some of the layers. The other layers have neither its positions nor its parameters.
//   layer l = 0, 1, ... is selected if l = from + r every with an integer r >= 0, and r < count if count is given
//   which=these    S runs in the selected layers         layers(cope, count=1)                      only the first
//   which=others   S runs in all others                  layers(rope, every=4, from=3, which=others)  not in each
//   fourth
// Hybrids of layers with and without rotations work at longer distances than either alone: Yang et al. 2025,
// arXiv:2501.18795 (SmolLM3, Llama 4). Two in one sum share the layers: layers(rope, every=2) + layers(alibi, every=2,
// from=1).
// A scheme that the model has once for all layers belongs to none of them, and is refused.
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence {
namespace {

bool takes_part(const SchemeArguments& arguments) {
  const index_t steps = arguments.sizes().layer - arguments.integer("from"), every = arguments.integer("every"),
                count = arguments.integer("count");
  const bool one_of_these = steps >= 0 && steps % every == 0 && (count == 0 || steps / every < count);
  return one_of_these == (arguments.word("which") == "these");
}

// Replaces the scheme in a layer without it: like none, but causal if the scheme requires that.
class Absent final : public PositionalScheme {
 public:
  explicit Absent(const Claims& elsewhere) : causal_only_(elsewhere.causal_only) {}
  Claims claims() const override {
    return {.causal_only = causal_only_, .shift_invariant = true, .uses_positions = false};
  }

 private:
  bool causal_only_;
};

std::unique_ptr<PositionalScheme> make_layers(const SchemeArguments& arguments) {
  if (arguments.spec().base()->shared())
    refuse_scheme(arguments.spec().text(),
        "a scheme inside that all layers share; one that each layer has for itself required "
        "(table=per_layer where there is that choice)");
  std::unique_ptr<PositionalScheme> base = arguments.base();
  if (takes_part(arguments)) return base;
  return std::make_unique<Absent>(base->claims());
}

const RegisterScheme registered{{.name = "layers",
    .title = "a scheme in some of the layers",
    .paper = "Yang et al. 2025, arXiv:2501.18795",
    .equation = "S in the layers from + r every, r = 0, 1, ..., or in all others; elsewhere A = S",
    .options = {option::integer("every", 1, {1, 1e6}, "distance from one of these layers to the next"),
        option::integer("from", 0, {0, 1e6}, "the first of them, counted from 0"),
        option::integer("count", 0, {0, 1e6}, "number of these layers; 0: up to the last layer"),
        option::words("which", {"these", "others"}, "the layers in which the scheme runs")},
    .takes_base = true,
    .takes_part = takes_part,
    .variants = {"layers(cope(p_max=3), count=1)", "layers(rope, every=2, which=others)",
        "layers(rope, every=2) + layers(alibi, every=2, from=1)"},
    .make = make_layers}};

}  // namespace
}  // namespace whence
