// Module: the base of every layer, scheme and model. It owns parameters and knows its children, each by a path.
//
// A path such as "blocks.0.attention.query.weight" is the same string in probes, checkpoints, errors and random
// streams. A module registers its parameters and children in its constructor; their order matters. Its path is complete
// once it has a parent up to the root.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "autograd/recording.h"
#include "nn/layers/init.h"
#include "tensor/tensor.h"

namespace whence {

// The range of a parameter's numbers. They are clamped when they are drawn and by each optimiser step.
struct Bounds {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
};

class Module {
 public:
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& path() const { return path_; }  // "blocks.0.attention"; "" for the root

  struct Parameter {
    std::string path;
    Tensor tensor;  // the handle that the module keeps
    Init init;
    bool decays;  // true if weight decay applies
    bool frozen;  // has no gradient, is not trained
    Bounds bounds;
    void put_inside_bounds() const;
  };
  std::vector<Parameter> parameters() const;  // own first, then the children's, in order of registration
  index_t parameter_count() const;            // numbers, not tensors

  // Draws every parameter from its Init with the stream (seed, path), in f64, rounded once. So one more module does not
  // change the others' numbers, and a model in f32 is the f64 one rounded. Before the first call, parameters with a
  // random Init hold NaN, so that a forgotten call shows.
  void initialise(std::uint64_t seed);
  // Casts all parameters in place: handles stay valid, gradients are dropped. Throws Error if `dtype` is not floating.
  void to(DType dtype);
  // Moves all parameters in place, likewise. Error if this build has no such device.
  void to(Device device);
  // Marks parameters whose path matches as needing no gradient; '*' matches any run of characters. Error if none match.
  void freeze(const std::string& path_pattern);

 protected:
  Module() = default;

  // Registers an f32 parameter that requires a gradient. Names are non-empty, without dots, unique within the module;
  // else Error, as for child().
  [[nodiscard]] Tensor param(const std::string& name, const Shape& shape, const Init& init, bool decays = true,
      Bounds bounds = {}, Site site = Site::current());
  // Registers a sub-module: the paths of its whole subtree get `name` in front. Error if it has a parent already.
  void child(const std::string& name, Module& module);
  void child(const std::string& list, index_t position, Module& module);  // path "blocks.0"

 private:
  struct Child {
    std::string name;
    Module* module;
  };
  void adopt(const std::string& name, Module& module);
  void set_path(const std::string& path);
  std::string path_of(const std::string& name) const { return path_.empty() ? name : path_ + "." + name; }
  void require_new_name(const char* op, const std::string& name) const;
  void collect(std::vector<Parameter>& found) const;
  int freeze_matching(const std::string& path_pattern);

  std::string path_;
  std::vector<Parameter> own_;
  std::vector<Child> children_;
  Module* parent_ = nullptr;
};

// While it lives, modules that this thread makes have their parameters on the planned device
// (tensor/device/planned.cpp): paths, shapes and counts are the module's, and nothing is allocated.
class PlannedModules : Exchange<Device> {
 public:
  explicit PlannedModules(Device in_place_of = Device::cpu());
};

}  // namespace whence
