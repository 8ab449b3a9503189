#include "examples/whence/verify/conformance.h"

#include <algorithm>

#include "examples/whence/verify/bare_attention.h"
#include "nn/scheme.h"
#include "tensor/error.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

constexpr index_t dim = 8, heads = 2, trained_length = 16, vocabulary = 64;

}  // namespace

ConformanceSubject::ConformanceSubject(std::string text, std::uint64_t seed)
    : text_(std::move(text)), claims_(BareAttention(text_, {dim, heads, trained_length}).claims()), seed_(seed) {}

std::unique_ptr<Transformer> ConformanceSubject::model(index_t layers, bool causal, DType dtype) const {
  auto model = std::make_unique<Transformer>(TransformerOptions{.vocabulary = vocabulary,
      .outputs = 5,
      .length = trained_length,
      .dim = dim,
      .layers = layers,
      .heads = heads,
      .hidden = 12,
      .scheme = text_,
      .executor = "reference",
      .causal = causal,
      .tied = false});
  model->to(dtype);
  for (const Module::Parameter& parameter : model->parameters()) {
    const Tensor drawn = Tensor::normal(parameter.tensor.shape(), 0, 0.4, Stream(seed_, parameter.path), DType::f64);
    raw::copy_into(raw::cast(drawn, dtype), parameter.tensor);
    parameter.put_inside_bounds();
  }
  return model;
}

int ConformanceRow::count(ConformanceCell::Mark mark) const {
  return static_cast<int>(
      std::count_if(cells.begin(), cells.end(), [&](const ConformanceCell& cell) { return cell.mark == mark; }));
}

ConformanceRow conform(const std::string& text, std::uint64_t seed, const std::vector<std::string>& only,
    const std::vector<ConformanceCheck>& checks) {
  ConformanceRow row{.scheme = text, .refusal = {}, .cells = {}};
  std::unique_ptr<ConformanceSubject> subject;
  try {
    row.scheme = canonical_text(parse_schemes(text));
    subject = std::make_unique<ConformanceSubject>(row.scheme, seed);
  } catch (const InputError& error) {
    row.refusal = error.what();
    return row;
  }
  for (const ConformanceCheck& check : checks) {
    if (!only.empty() && !std::count(only.begin(), only.end(), check.name)) continue;
    try {
      row.cells.push_back(check.run(*subject));
    } catch (const std::exception& error) { row.cells.push_back({ConformanceCell::Mark::failed, 0, error.what()}); }
  }
  return row;
}

}  // namespace whence
