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

ConformanceCell ConformanceCell::refused(const std::exception& error) {
  return {Mark::refused_as_claimed, 0, to_text("refused: ", error.what())};
}

ConformanceCell ConformanceCell::within(double figure, double tolerance, const std::string& note) {
  const std::string demand = to_text(note, note.empty() ? "" : "; ", "at most ", tolerance, " required");
  return figure <= tolerance ? passed(figure, demand) : failed(figure, demand);
}

std::unique_ptr<Transformer> ConformanceSubject::model(index_t layers, bool causal, DType dtype) const {
  auto model = std::make_unique<Transformer>(TransformerOptions{.vocabulary = vocabulary,
      .outputs = 5,
      .length = trained_length,
      .dim = dim,
      .layers = layers,
      .heads = heads,
      .hidden = 12,
      .scheme = text,
      .executor = "reference",
      .causal = causal,
      .tied = false});
  model->to(dtype);
  for (const Module::Parameter& parameter : model->parameters()) {
    const Tensor drawn = Tensor::normal(parameter.tensor.shape(), 0, 0.4, Stream(seed, parameter.path), DType::f64);
    raw::copy_into(raw::cast(drawn, dtype), parameter.tensor);
    parameter.put_inside_bounds();
  }
  return model;
}

int ConformanceRow::count(ConformanceCell::Mark mark) const {
  return static_cast<int>(std::ranges::count(cells, mark, &ConformanceCell::mark));
}

ConformanceRow conform(const std::string& text, std::uint64_t seed, const std::vector<ConformanceCheck>& checks) {
  ConformanceRow row{.scheme = text, .refusal = {}, .cells = {}};
  ConformanceSubject subject{text, {}, seed};
  try {
    row.scheme = subject.text = canonical_text(parse_schemes(text));
    subject.claims = BareAttention(text, {dim, heads, trained_length}).claims();
  } catch (const InputError& error) {
    row.refusal = error.what();
    return row;
  }
  for (const ConformanceCheck& check : checks) {
    try {
      row.cells.push_back(check.run(subject));
    } catch (const OutOfMemory&) { throw; } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) { row.cells.push_back(ConformanceCell::failed(0, error.what())); }
  }
  return row;
}

}  // namespace whence
