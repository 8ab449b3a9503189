#include "examples/whence/look/quantity.h"

#include <algorithm>
#include <numeric>

#include "autograd/inspect/capture.h"
#include "nn/attention/attention.h"

namespace whence::look {
namespace {

// "position.gates" of "blocks.3.attention.position.gates"; elsewhere the whole path.
std::string name_in_attention(const std::string& path) {
  const std::string middle = ".attention.";
  const std::size_t at = path.find(middle);
  return at == std::string::npos ? path : path.substr(at + middle.size());
}

const ProbeInfo* probe_named(const std::vector<ProbeInfo>& probes, const std::string& name) {
  const auto found = std::ranges::find(probes, name, &ProbeInfo::name);
  return found == probes.end() ? nullptr : &*found;
}

// What a scheme, or its base, registers for `path` within "position.": "cope.gates", "base.bias".
struct FoundProbe {
  const SchemeSpec* scheme = nullptr;
  const ProbeInfo* probe = nullptr;
};
FoundProbe probe_in(const SchemeSpec& spec, std::string path) {
  const SchemeSpec* inner = &spec.part();
  if (const std::string name = inner->info().name + "."; path.starts_with(name)) path = path.substr(name.size());
  for (; inner->base() && path.starts_with("base."); path = path.substr(5)) inner = inner->base();
  return {inner, probe_named(inner->info().probes, path)};
}

// The same of a path in attention: "position.cope.gates", "shared.position.bias". Nothing where no scheme names it.
FoundProbe probe_of(const std::vector<SchemeSpec>& specs, std::string path) {
  const bool shared = path.starts_with("shared.");
  if (shared) path = path.substr(7);
  if (!path.starts_with("position.")) return {};
  for (const bool as_said : {true, false})
    for (const SchemeSpec& spec : specs)
      if ((spec.shared() == shared) == as_said)
        if (const FoundProbe found = probe_in(spec, path.substr(9)); found.probe) return found;
  return {};
}

}  // namespace

Quantity Quantity::without_numbers() const {
  return {.path = path, .name = name, .layer = layer, .probe = probe, .scheme = scheme, .line = line};
}

std::vector<Quantity> quantities_of(const Capture& capture, const std::vector<SchemeSpec>& specs) {
  std::vector<Quantity> all;
  for (const std::string& path : capture.names()) {
    const std::string name = name_in_attention(path);
    const Probed& probed = capture[path];
    Quantity quantity{.path = path, .name = name, .layer = layer_of(path), .line = to_string(probed.site())};
    quantity.value = probed.value(), quantity.gradient = probed.gradient();
    if (name != path) quantity.probe = probe_named(attention_probes(), name);
    if (const FoundProbe found = probe_of(specs, name); found.probe && !quantity.probe)
      quantity.probe = found.probe, quantity.scheme = found.scheme->text();
    all.push_back(std::move(quantity));
  }
  return all;
}

const Quantity* find(const std::vector<Quantity>& all, index_t layer, const std::string& name) {
  const auto found = std::ranges::find_if(
      all, [&](const Quantity& quantity) { return quantity.layer == layer && quantity.name == name; });
  return found == all.end() ? nullptr : &*found;
}

index_t layer_of(const std::string& path) {
  const std::string front = "blocks.";
  return path.starts_with(front) ? std::stoll(path.substr(front.size())) : -1;
}

double dot(const Tensor& a, const Tensor& b) {
  const std::vector<double> left = a.to_vector(), right = b.to_vector();
  return std::inner_product(left.begin(), left.end(), right.begin(), 0.0);
}

Axes::Axes(const Quantity& quantity)
    : letters(quantity.probe ? quantity.probe->axes : ""), shape(quantity.value.shape()) {
  std::erase(letters, ' ');
}

std::size_t Axes::element(const Shape& at) const {
  index_t element = 0;
  for (int axis = 0; axis < at.rank(); ++axis) element = element * shape[axis] + at[axis];
  return static_cast<std::size_t>(element);
}

}  // namespace whence::look
