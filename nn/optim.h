// Adam (Kingma and Ba 2014), AdamW (Loshchilov and Hutter 2017), and clipping by the global norm.
#pragma once

#include <string>
#include <vector>

#include "nn/module.h"

namespace whence {

struct GradientNorm {
  double value;  // before clipping
  double scale;  // what gradients are to be multiplied by: min(1, max_norm / value), and 1 when value is 0
};

// sqrt(sum of squares of all gradients), summed in f64 in a fixed order. Gradients stay as they are: hand `scale` to Adam::step.
// Throws Error that names all parameters without a path from the loss, or the first with a gradient that is not finite. Frozen parameters
// do not count. max_norm is above 0; infinity clips nothing.
[[nodiscard]] GradientNorm clip_by_global_norm(const std::vector<Module::Parameter>& parameters, double max_norm,
                                               Site at = Site::current());

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;  // of the parameters that decay
  bool decoupled = true;    // AdamW: w -= learning_rate decay w. Otherwise the gradient gains decay w, as in Adam with an L2 penalty
};

class Adam {
 public:
  struct Moments {
    Tensor first, second;  // running means of g and g^2
  };

  // Parameters are f32 or f64. Throws Error when an option is out of range.
  explicit Adam(const Module& module, const AdamOptions& options = {}, Site at = Site::current());

  // One step from the gradients that backward left, each multiplied by gradient_scale. Throws the errors of clip_by_global_norm before
  // anything is changed: a parameter is never skipped in silence.
  void step(double learning_rate, double gradient_scale = 1, Site at = Site::current());
  void zero_gradients();

  index_t steps() const { return steps_; }  // taken so far
  const AdamOptions& options() const { return options_; }

  // What a checkpoint keeps, in the order of parameters(): moments are restored through their handles.
  const std::vector<Module::Parameter>& parameters() const { return parameters_; }  // without those frozen from the beginning
  const std::vector<Moments>& moments() const { return moments_; }
  void set_steps(index_t steps) { steps_ = steps; }

 private:
  std::vector<Module::Parameter> parameters_;
  std::vector<Moments> moments_;
  AdamOptions options_;
  index_t steps_ = 0;
};

}  // namespace whence
