#include "examples/whence/look/quantity.h"

#include <algorithm>
#include <numeric>

#include "autograd/backward.h"
#include "examples/whence/verify/probe_names.h"
#include "tensor/error.h"

namespace whence::look {
namespace {

// Returns 3 for "blocks.3.attention.q"; -1 outside layers.
index_t layer_of(const std::string& path) { return path.starts_with("blocks.") ? std::stoll(path.substr(7)) : -1; }

}  // namespace

std::vector<Quantity> quantities_of(const Capture& capture, const std::vector<SchemeSpec>& specs) {
  std::vector<Quantity> all;
  for (const std::string& path : capture.names()) {
    const std::string name = name_in_attention(path);
    const Probed& probed = capture[path];
    Quantity quantity{.path = path, .name = name, .layer = layer_of(path), .line = to_string(probed.site())};
    quantity.value = probed.value(), quantity.gradient = probed.gradient();
    const FoundProbe found = find_probe(specs, name);
    if (name != path || found.scheme) quantity.probe = found.probe;
    if (found.scheme) quantity.scheme = found.scheme->text();
    for (const ProbeInfo& of_block : block_probes())
      if (path == to_text("blocks.", quantity.layer, '.', of_block.name))
        quantity.name = of_block.name, quantity.probe = &of_block;
    all.push_back(std::move(quantity));
  }
  return all;
}

std::vector<Quantity> parameters_of(const Transformer& model) {
  std::vector<Quantity> all;
  for (const Module::Parameter& parameter : model.parameters()) {
    Quantity quantity{.path = parameter.path, .name = parameter.path, .layer = layer_of(parameter.path)};
    quantity.is_parameter = true, quantity.frozen = parameter.frozen;
    quantity.value = parameter.tensor.detach();
    if (!parameter.frozen) {
      quantity.gradient = gradient(parameter.tensor);
      clear_gradient(parameter.tensor);
    }
    all.push_back(std::move(quantity));
  }
  return all;
}

const Quantity* find(const std::vector<Quantity>& all, index_t layer, const std::string& name) {
  const auto found = std::ranges::find_if(
      all, [&](const Quantity& quantity) { return quantity.layer == layer && quantity.name == name; });
  return found == all.end() ? nullptr : &*found;
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
