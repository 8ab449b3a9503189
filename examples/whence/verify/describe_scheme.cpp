// probe --describe: a scheme as JSON, one entry per line.
#include <cmath>

#include "examples/whence/cli/json.h"
#include "examples/whence/verify/probe_run.h"
#include "tensor/error.h"

namespace whence {
namespace {

Json json_of(const Shape& shape) { return std::vector<index_t>(shape.begin(), shape.end()); }

Json json_of(const ExpectedTensor& tensor) {
  static constexpr const char* dtypes[] = {"any floating dtype, one for all", "bool", "any number"};
  return {{"name", tensor.name}, {"axes", tensor.axes}, {"shape", json_of(tensor.shapes[0])},
      {"dtype", dtypes[static_cast<int>(tensor.kind)]}, {"required", tensor.required}, {"meaning", tensor.meaning}};
}

Json json_of(const Module::Parameter& parameter) {
  Json entry{{"name", parameter.path}, {"shape", json_of(parameter.tensor.shape())}, {"initial", parameter.init.text()},
      {"decays", parameter.decays}, {"trained", !parameter.frozen}};
  if (std::isfinite(parameter.bounds.low) || std::isfinite(parameter.bounds.high))
    entry.add("bounds", std::vector{parameter.bounds.low, parameter.bounds.high});
  return entry;
}

Json json_of(const Claims& claims, index_t length) {
  const auto [first, last] = claims.changes_rows;
  Json::List changes;
  if (first <= last) changes = {first, last == Claims::any_length ? Json() : Json(last)};
  return {{"causal_only", claims.causal_only}, {"shift_invariant", claims.shift_invariant},
      {"extrapolates", claims.longest > length}, {"row_local", claims.row_local},
      {"prefix_consistent", claims.prefix_consistent}, {"changes_rows", changes},
      {"sees_no_future", claims.sees_no_future}, {"mask_per_head", claims.mask_per_head},
      {"by_key_head", claims.by_key_head}, {"uses_positions", claims.uses_positions},
      {"drawn_each_step", claims.drawn_each_step}, {"exact_gradient", claims.exact_gradient}};
}

// "name": [one line per entry]
template <class Entries> std::string block(const char* name, const Entries& entries) {
  const auto line = [](const auto& entry) { return json_of(entry).line(); };
  const std::string lines = joined(entries, line, ",\n    ");
  return to_text("  \"", name, "\": [", lines.empty() ? "]" : "\n    " + lines + "\n  ]");
}

}  // namespace

std::string describe_scheme(const BareAttention& scheme, index_t batch) {
  const SchemeSizes& sizes = scheme.sizes();
  const Json numbers{{"b", batch}, {"h", sizes.heads}, {"g", sizes.key_heads()}, {"t", sizes.length},
      {"d", sizes.head_dim()}, {"c", sizes.dim}};
  std::string text = "{\n  \"scheme\": " + Json(scheme.text()).line() + ",\n  \"sizes\": " + numbers.line() + ",\n";
  text += block("tensors", expected_tensors(scheme, batch, sizes.length)) + ",\n";
  text += block("parameters", scheme.root().parameters()) + ",\n";
  text += "  \"claims\": " + json_of(scheme.claims(), sizes.length).line() + ",\n";
  return text + "  \"probes\": " + Json(scheme.probe_names()).line() + "\n}\n";
}

}  // namespace whence
