// Adam (Kingma and Ba 2014), AdamW (Loshchilov and Hutter 2017), and clipping by the global norm.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "nn/layers/module.h"
#include "tensor/adam.h"

namespace whence {

struct GradientNorm {
  double value;  // of all gradients divided by the loss scale, before clipping; not finite when a gradient is not
  // What gradients are to be multiplied by: min(1, max_norm / value) / loss_scale.
  // 1 / loss_scale when value is 0, NaN when value is not finite.
  double scale;
  bool finite() const { return std::isfinite(value); }
};

// sqrt(sum of squares of all gradients), summed in f64 in a fixed order. Gradients stay as they are: give the result to
// Adam::step. Throws Error that names all parameters without a path from the loss, NotFinite that names the first with a gradient
// that is not finite. Frozen parameters do not count, the others are on one device. max_norm is above 0; infinity clips
// nothing.
// With a loss scale, finite and above 0, the gradients are those of loss_scale times the loss (precision f16 needs
// this), and `scale` divides by it. Gradients that are not finite are then a result and no error: a loss scale that was
// too large makes them.
[[nodiscard]] GradientNorm clip_by_global_norm(const std::vector<Module::Parameter>& parameters, double max_norm,
    std::optional<double> loss_scale = {}, Site site = Site::current());

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;  // of the parameters that decay
  // AdamW: w -= learning_rate decay w. Otherwise the gradient gains decay w, as in Adam with an L2 penalty.
  bool decoupled = true;
  // Allows f16 and bf16 parameters: an f32 copy of each is trained, and rounded after each step.
  bool masters = false;
};

class Adam {
 public:
  struct Moments {
    Tensor first, second;  // running means of g and g^2; f32 for a parameter of 16 bits
    Tensor master;         // the f32 weight of a parameter of 16 bits; undefined for the others
  };

  // Parameters are f32 or f64, or of 16 bits with `masters`. Throws Error when an option is out of range.
  explicit Adam(const Module& module, const AdamOptions& options = {}, Site site = Site::current());

  // One step from the gradients that backward left, each multiplied by gradient_scale. Throws the errors of
  // clip_by_global_norm before anything is changed: no parameter is skipped in silence.
  void step(double learning_rate, double gradient_scale = 1, Site site = Site::current());
  // The same with the result of clip_by_global_norm for the present gradients, so that they are not read again. Throws
  // Error when the norm is not finite: leave such a step out.
  void step(double learning_rate, const GradientNorm& norm, Site site = Site::current());
  void zero_gradients();

  // The step, with clipping, as launches that can be captured in a graph and replayed. Nothing waits for the device;
  // what changes from step to step is read from the device's memory. Works on the CPU too.
  //   adam.prepare_replay(rate, max_norm, loss_scale);   // before each replay: counts the step, copies a few numbers
  //   graph.replay();                                    // captured around: forward, backward, adam.replayable_step()
  //   const GradientNorm norm = adam.replayed_norm();    // waits; not finite: nothing changed, the step does not count
  void prepare_replay(double learning_rate, double max_norm, double loss_scale = 1, Site site = Site::current());
  void replayable_step(Site site = Site::current());
  [[nodiscard]] GradientNorm replayed_norm();

  index_t steps() const { return steps_; }  // taken so far
  const AdamOptions& options() const { return options_; }

  // What a checkpoint saves, in the order of parameters(): moments are restored through their handles.
  // Parameters frozen from the beginning are not among them.
  const std::vector<Module::Parameter>& parameters() const { return parameters_; }
  const std::vector<Moments>& moments() const { return moments_; }
  void set_steps(index_t steps) { steps_ = steps; }

 private:
  AdamStep next_step(double learning_rate, double gradient_scale) const;
  void require_ready(double learning_rate) const;
  void run(const AdamStep& step, const Tensor& controls, const Site& site);

  std::vector<Module::Parameter> parameters_;
  std::vector<Moments> moments_;
  AdamOptions options_;
  Tensor controls_;  // of a replayed step; see Control
  index_t steps_ = 0;
};

}  // namespace whence
