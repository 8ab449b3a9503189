#include "nn/layers/module.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/backward.h"
#include "autograd/graph.h"
#include "autograd/observer.h"
#include "tensor/error.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {

static thread_local Device parameters_on = Device::cpu();

PlannedModules::PlannedModules(Device in_place_of) : Exchange(parameters_on, Device::planned(in_place_of)) {}

// Members are destroyed before their owner's base, so a parent forgets its children one by one. A child that outlives
// its parent forgets the parent.
Module::~Module() {
  for (const Child& entry : children_) entry.module->parent_ = nullptr;
  if (parent_) std::erase_if(parent_->children_, [this](const Child& entry) { return entry.module == this; });
}

void Module::collect(std::vector<Parameter>& found) const {
  found.insert(found.end(), own_.begin(), own_.end());
  for (const Child& entry : children_) entry.module->collect(found);
}

std::vector<Module::Parameter> Module::parameters() const {
  std::vector<Parameter> found;
  collect(found);
  return found;
}

index_t Module::parameter_count() const {
  index_t count = 0;
  for (const Parameter& parameter : parameters()) count += parameter.tensor.numel();
  return count;
}

void Module::initialise(std::uint64_t seed) {
  for (const Parameter& parameter : parameters()) {
    const Tensor drawn =
        parameter.init.draw(parameter.tensor.shape(), Stream(seed, parameter.path), parameter.tensor.dtype());
    raw::copy_into(raw::to_device(drawn, parameter.tensor.device()), parameter.tensor);
    parameter.put_inside_bounds();
  }
}

void Module::Parameter::put_inside_bounds() const {
  if (std::isinf(bounds.low) && std::isinf(bounds.high)) return;
  kernels(tensor).unary(functions::Clamp{}, {bounds.low, bounds.high}, tensor, tensor);
  tensor.storage().written(CallSite::here());
}

// Makes the handle name `value`. Its old gradient has the old dtype or device, so it is cleared.
static void give(const Tensor& parameter, const Tensor& value) {
  parameter.replace(value);
  if (!tracked(parameter)) return;
  clear_gradient(parameter);
  node_of(parameter)->made(parameter);
}

void Module::to(DType dtype) {
  if (!is_floating(dtype))
    fail("module", "dtype ", dtype, " given for the parameters of '", path_, "'; a floating dtype required");
  for (const Parameter& parameter : parameters()) give(parameter.tensor, raw::cast(parameter.tensor.detach(), dtype));
}

void Module::to(Device device) {
  for (const Parameter& parameter : parameters())
    give(parameter.tensor, raw::to_device(parameter.tensor.detach(), device));
}

int Module::freeze_matching(const std::string& path_pattern) {
  int matched = 0;
  for (Parameter& own : own_) {
    if (!matches(path_pattern, own.path)) continue;
    own.frozen = true;
    own.tensor.set_link({});
    ++matched;
  }
  for (const Child& entry : children_) matched += entry.module->freeze_matching(path_pattern);
  return matched;
}

void Module::freeze(const std::string& path_pattern) {
  if (freeze_matching(path_pattern) > 0) return;
  const std::string paths = joined(parameters(), &Parameter::path);
  fail("freeze", "no parameter matches '", path_pattern, "'; the parameters are ", paths.empty() ? "none" : paths);
}

void Module::require_new_name(const char* op, const std::string& name) const {
  if (name.empty()) fail(op, "an empty name given in '", path_, "'; a name required, as it becomes part of a path");
  const bool taken =
      std::any_of(own_.begin(), own_.end(), [&](const Parameter& own) { return own.path == path_of(name); }) ||
      std::any_of(children_.begin(), children_.end(), [&](const Child& entry) { return entry.name == name; });
  if (taken) fail(op, "name '", name, "' given twice in '", path_, "'; names must differ within a module");
}

static void require_no_dot(const char* op, const std::string& name) {
  if (name.find('.') != std::string::npos)
    fail(op, "name '", name, "' given; a name without dots required, as dots separate modules");
}

Tensor Module::param(
    const std::string& name, const Shape& shape, const Init& init, bool decays, Bounds bounds, Site site) {
  require_no_dot("param", name);
  require_new_name("param", name);
  const double first_value = init.random() ? std::numeric_limits<double>::quiet_NaN() : init.first;
  const Tensor tensor = requires_grad(Tensor::full(shape, first_value, DType::f32, parameters_on), site);
  node_of(tensor)->path = path_of(name);
  own_.push_back({path_of(name), tensor, init, decays, false, bounds});
  return tensor;
}

void Module::child(const std::string& name, Module& module) {
  require_no_dot("child", name);
  adopt(name, module);
}

void Module::child(const std::string& list, index_t position, Module& module) {
  require_no_dot("child", list);
  if (position < 0) fail("child", "position ", position, " given in list '", list, "'; 0 or more required");
  adopt(list.empty() ? list : list + "." + std::to_string(position), module);
}

void Module::adopt(const std::string& name, Module& module) {
  require_new_name("child", name);
  if (module.parent_)
    fail("child", "module '", module.path_, "' given as '", name, "'; a module without a parent required");
  for (const Module* above = this; above; above = above->parent_)
    if (above == &module) fail("child", "module '", path_, "' given itself as its child '", name, "'; a tree required");
  module.parent_ = this;
  module.set_path(path_of(name));
  children_.push_back({name, &module});
}

void Module::set_path(const std::string& path) {
  path_ = path;
  for (Parameter& own : own_) {
    own.path = path_of(own.path.substr(own.path.rfind('.') + 1));  // names have no dots
    if (Node* leaf = node_of(own.tensor)) leaf->path = own.path;
  }
  for (const Child& entry : children_) entry.module->set_path(path_of(entry.name));
}

}  // namespace whence
