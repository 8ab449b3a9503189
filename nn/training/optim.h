// Adam (Kingma and Ba 2014), AdamW (Loshchilov and Hutter 2017) and SGD with momentum.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "nn/training/clipping.h"
#include "tensor/adam.h"

namespace whence {

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
  // since. Throws before anything changes: no parameter is skipped silently.
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

  // The parts of a step that is computed elsewhere. require_ready: Error for a rate, or parameters, that step()
  // refuses. write: calls `update` with the tensors that a step writes in place, for all trained parameters; then
  // clamps parameters to their bounds.
  using Update = std::function<void(std::span<const AdamEntry> entries)>;
  void require_ready(double learning_rate) const;
  void write(const Update& update, const Site& site);

 protected:
  // Parameters are f32 or f64, or 16-bit with `masters`, else Error. `moments`: the number kept for each.
  Optimizer(const Module& module, int moments, bool masters, const Site& site);

 private:
  void take(double learning_rate, double gradient_scale, const Site& site);
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

  // Returns the numbers of the next step.
  AdamStep next_step(double learning_rate, double gradient_scale) const;

 private:
  void update(std::span<const AdamEntry> entries, double learning_rate, double gradient_scale) override;

  AdamOptions options_;
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
