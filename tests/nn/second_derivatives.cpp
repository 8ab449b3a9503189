// Second derivatives of whole models, for power iterations, gradient penalties and curvature of the loss.
#include "autograd/check/gradcheck.h"
#include "examples/whence/verify/scheme_texts.h"
#include "nn/transformer.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

// Checks by duals through forward and backward the loss' derivative with respect to every parameter, twice.
GradcheckReport check_twice(TransformerOptions options) {
  options.vocabulary = 5, options.length = 6, options.dim = 8, options.layers = 1, options.heads = 2;
  options.executor = "reference";
  Transformer model(options);
  randomise(model);
  std::vector<Named> parameters;
  for (const Module::Parameter& each : model.parameters())
    if (!each.frozen) parameters.push_back({each.path, each.tensor});
  const Tensor tokens = Tensor::of({1, 4, 2, 0, 3, 3, 0, 1, 4, 2, 2, 1}, {2, 6}, DType::i64);
  const Tensor targets = Tensor::of({4, 2, 0, 3, -1, 1, 1, 4, 2, 2, 1, 0}, {2, 6}, DType::i64);
  return gradgradcheck([&] { return cross_entropy(model(tokens), targets); }, parameters,
      {.differences = false, .dual_tolerance = 1e-11, .one_by_one = 8});
}

}  // namespace

TEST_CASE("every scheme's whole model has second derivatives") {
  for (const std::string& scheme : promised_texts()) {
    CAPTURE(scheme);
    const GradcheckReport report = check_twice({.scheme = scheme});
    CHECK_MESSAGE(report.ok(), report.text());
  }
}

TEST_CASE("so have whole models with other norms and networks") {
  const TransformerOptions options[] = {
      {.activation = Activation::swiglu, .norm = NormKind::rms, .scheme = "rope", .bias = false, .tied = false},
      {.norm_place = NormPlace::parallel, .scheme = "cope(p_max=4) + rope"},
      {.norm_place = NormPlace::after, .scheme = "absolute", .causal = false}};
  for (const TransformerOptions& each : options) {
    const GradcheckReport report = check_twice(each);
    CHECK_MESSAGE(report.ok(), report.text());
  }
}
