// Adam (Kingma and Ba 2014), AdamW (Loshchilov and Hutter 2017), SGD with momentum, and clipping by the global norm.
#pragma once

#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
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
// Optimizer::step. Throws Error that names all parameters without a path from the loss, NotFinite that names the first
// with a gradient that is not finite. Frozen parameters do not count, the others are on one device. max_norm is above
// 0, else Error; infinity clips nothing.  (Pascanu et al. 2013, Algorithm 1)
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

// As PyTorch's, without its dampening: g += weight_decay w,  m = momentum m + g,  w -= learning_rate m, with nesterov
// w -= learning_rate (g + momentum m).
struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;    // takes the step that the momentum will take next, too
  double weight_decay = 0;  // L2, of the parameters that decay: the gradient gains decay w
  bool masters = false;     // as Adam's
};

// What all optimisers share: parameters, what is kept beside each, steps that refuse before they change anything.
class Optimizer {
 public:
  struct Moments {
    Tensor first, second;  // Adam: running means of g and g^2; SGD: the momentum. f32 for a parameter of 16 bits
    Tensor master;         // the f32 weight of a parameter of 16 bits; undefined for the others
  };
  virtual ~Optimizer() = default;

  // One step from the gradients that backward left, each multiplied by gradient_scale. Throws the errors of
  // clip_by_global_norm, and Error for a rate or scale below 0 or not finite and for parameters cast or moved since,
  // before anything is changed: no parameter is skipped in silence.
  void step(double learning_rate, double gradient_scale = 1, Site site = Site::current());
  // The same with the result of clip_by_global_norm for the present gradients, so that they are not read again. Throws
  // Error when the norm is not finite: leave such a step out.
  void step(double learning_rate, const GradientNorm& norm, Site site = Site::current());
  void zero_gradients();

  index_t steps() const { return steps_; }  // taken so far

  // What a checkpoint saves, in the order of parameters(): moments are restored through their handles, undefined ones
  // are none. Parameters frozen from the beginning are not among them.
  const std::vector<Module::Parameter>& parameters() const { return parameters_; }
  const std::vector<Moments>& moments() const { return moments_; }
  void set_steps(index_t steps) { steps_ = steps; }

 protected:
  // Parameters are f32 or f64, or of 16 bits with `masters`, else Error. `moments`: how many are kept of each.
  Optimizer(const Module& module, int moments, bool masters, const Site& site);
  void require_ready(double learning_rate) const;
  // update() of all parameters at once; then what must stay inside bounds is put back.
  void run(double learning_rate, double gradient_scale, const Tensor& controls, const Site& site);
  // `controls`: of a replayed step (tensor/adam.h), else undefined.
  virtual void update(
      std::span<const AdamEntry> entries, double learning_rate, double gradient_scale, const Tensor& controls) = 0;

  std::vector<Module::Parameter> parameters_;
  std::vector<Moments> moments_;
  index_t steps_ = 0;

 private:
  std::vector<std::pair<DType, Device>> were_;  // the parameters
};

class Adam final : public Optimizer {
 public:
  // Throws Error when an option is out of range.
  explicit Adam(const Module& module, const AdamOptions& options = {}, Site site = Site::current());

  // The step, with clipping, as launches that can be captured in a graph and replayed. Nothing waits for the device;
  // what changes from step to step is read from the device's memory. Works on the CPU too.
  //   adam.prepare_replay(rate, max_norm, loss_scale);   // before each replay: counts the step, copies a few numbers
  //   graph.replay();                                    // captured around: forward, backward, adam.replayable_step()
  //   const GradientNorm norm = adam.replayed_norm();    // waits; not finite: nothing changed, the step does not count
  // Gradients are sums of `terms`, as is max_norm: the step takes their mean.
  void prepare_replay(
      double learning_rate, double max_norm, double loss_scale = 1, double terms = 1, Site site = Site::current());
  void replayable_step(Site site = Site::current());
  [[nodiscard]] GradientNorm replayed_norm();

 private:
  AdamStep next_step(double learning_rate, double gradient_scale) const;
  void update(
      std::span<const AdamEntry> entries, double learning_rate, double gradient_scale, const Tensor& controls) override;

  AdamOptions options_;
  Tensor controls_;  // of a replayed step; see Control
};

// Its step cannot be replayed: the rate is an argument of its launches.
class Sgd final : public Optimizer {
 public:
  // Throws Error when an option is out of range or has no effect.
  explicit Sgd(const Module& module, const SgdOptions& options = {}, Site site = Site::current());

 private:
  void update(
      std::span<const AdamEntry> entries, double learning_rate, double gradient_scale, const Tensor& controls) override;

  SgdOptions options_;
};

using OptimizerOptions = std::variant<AdamOptions, SgdOptions>;

}  // namespace whence
