// Adam (Kingma and Ba 2014), AdamW (Loshchilov and Hutter 2017), SGD with momentum; and clipping by the global norm of
// all gradients (Pascanu et al. 2013, Algorithm 1).
#pragma once

#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "nn/layers/module.h"
#include "tensor/adam.h"

namespace whence {

// ---- Clipping

struct GradientNorm {
  double value;  // norm of all gradients divided by the loss scale, before clipping; not finite if a gradient is not
  // The factor for the gradients: min(1, max_norm / value) / loss_scale. 1 / loss_scale if value is 0, NaN if value is
  // not finite.
  double scale;
  bool finite() const { return std::isfinite(value); }
};

// Returns sqrt(sum of squares of all gradients), summed in f64 in a fixed order. Does not change the gradients: give
// the result to Optimizer::step. Throws Error that names all parameters without a path from the loss, NotFinite that
// names the first with a gradient that is not finite. Frozen parameters do not count; the others are on one device.
// max_norm must be above 0, else Error; infinity clips nothing.
// With a loss scale (finite, above 0; f16 needs it) the gradients are those of loss_scale times the loss, and `scale`
// divides by it. Gradients that are not finite are then a result and not an error: they mean that the loss scale was
// too large.
[[nodiscard]] GradientNorm clip_by_global_norm(const std::vector<Module::Parameter>& parameters, double max_norm,
    std::optional<double> loss_scale = {}, Site site = Site::current());

// False for frozen parameters. Freezing removes a parameter's link, so this also holds for one frozen late.
bool trained(const Module::Parameter& parameter);

// ---- Optimisers

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;  // for the parameters that decay
  // AdamW: w -= learning_rate decay w. If false, decay w is added to the gradient, as in Adam with an L2 penalty.
  bool decoupled = true;
  // Allows f16 and bf16 parameters: an f32 copy of each is trained, and rounded to it after each step.
  bool masters = false;
};

// SGD as in PyTorch without dampening: g += weight_decay w,  m = momentum m + g,  w -= learning_rate m, with nesterov w
// -= learning_rate (g + momentum m).
struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;    // looks ahead: also adds the momentum of the next step
  double weight_decay = 0;  // L2, for the parameters that decay: adds decay w to the gradient
  bool masters = false;     // see AdamOptions
};

// The common part of optimisers: parameters, the state of each, and steps that check before they change anything.
class Optimizer {
 public:
  struct Moments {
    Tensor first, second;  // Adam: running means of g and g^2; SGD: the momentum. f32 for a 16-bit parameter
    Tensor master;         // the f32 weight of a 16-bit parameter; undefined for others
  };
  virtual ~Optimizer() = default;

  // Takes one step with the gradients that backward left, each multiplied by gradient_scale. Throws the errors of
  // clip_by_global_norm, and Error for a rate or scale that is negative or not finite and for parameters cast or moved
  // since; nothing has changed then. If memory runs out in Sgd's step, some parameters have changed.
  void step(double learning_rate, double gradient_scale = 1, Site site = Site::current());
  // The same with the result of clip_by_global_norm for the present gradients, which are not read again. Throws Error
  // if the norm is not finite; skip such a step.
  void step(double learning_rate, const GradientNorm& norm, Site site = Site::current());
  void zero_gradients();

  index_t steps() const { return steps_; }  // taken so far

  // The state that a checkpoint saves, in the order of parameters(). Moments are restored through their handles;
  // undefined ones do not exist. Parameters frozen from the beginning are missing.
  const std::vector<Module::Parameter>& parameters() const { return parameters_; }
  const std::vector<Moments>& moments() const { return moments_; }
  void set_steps(index_t steps) { steps_ = steps; }

 protected:
  // Parameters are f32 or f64, or 16-bit with `masters`, else Error. `moments`: the number kept for each.
  Optimizer(const Module& module, int moments, bool masters, const Site& site);

  // Error for a rate, or parameters, that step() refuses.
  void require_ready(double learning_rate) const;
  // Calls `update` with the tensors that a step writes in place, for all trained parameters.
  void write(const std::function<void(std::span<const AdamEntry> entries)>& update, const Site& site);

 private:
  virtual void update(std::span<const AdamEntry> entries, double learning_rate, double gradient_scale) = 0;

  std::vector<Module::Parameter> parameters_;
  std::vector<Moments> moments_;
  std::vector<std::pair<DType, Device>> were_;  // the parameters' at construction
  index_t steps_ = 0;
};

class Adam final : public Optimizer {
 public:
  // Throws Error if an option is out of range.
  explicit Adam(const Module& module, const AdamOptions& options = {}, Site site = Site::current());

  // A clipped step as launches that a graph can hold. Numbers that change from step to step are read from the device's
  // memory, and nothing waits for the device. It also runs on the CPU.
  //   adam.prepare(rate, max_norm, loss_scale);    // before each replay: copies a few numbers to the device
  //   graph.replay();                              // captured around: forward, backward, adam.launch()
  //   const GradientNorm norm = adam.finish();     // waits; not finite: nothing changed, the step does not count
  // Gradients and max_norm are sums of `terms`; the step uses their mean. Error for everything that clip_by_global_norm
  // and step() refuse.
  void prepare(
      double learning_rate, double max_norm, double loss_scale = 1, double terms = 1, Site site = Site::current());
  void launch(Site site = Site::current());
  // Counts the step, and marks the weights as written, because a graph writes them without the host.
  [[nodiscard]] GradientNorm finish(Site site = Site::current());

 private:
  AdamStep next_step(double learning_rate, double gradient_scale) const;
  void update(std::span<const AdamEntry> entries, double learning_rate, double gradient_scale) override;

  AdamOptions options_;
  Tensor controls_;  // see Control
};

class Sgd final : public Optimizer {
 public:
  // Throws Error if an option is out of range or has no effect.
  explicit Sgd(const Module& module, const SgdOptions& options = {}, Site site = Site::current());

 private:
  void update(std::span<const AdamEntry> entries, double learning_rate, double gradient_scale) override;

  SgdOptions options_;
};

using OptimizerOptions = std::variant<AdamOptions, SgdOptions>;

}  // namespace whence
