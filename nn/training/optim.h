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

  // A step's parts, for one that is made elsewhere. require_ready: Error for a rate, or parameters, that step() refuses.
  // write: calls `update` with what a step writes in place, of all trained parameters; then puts back what must stay
  // inside bounds.
  using Update = std::function<void(std::span<const AdamEntry> entries)>;
  void require_ready(double learning_rate) const;
  void write(const Update& update, const Site& site);

 protected:
  // Parameters are f32 or f64, or of 16 bits with `masters`, else Error. `moments`: how many are kept of each.
  Optimizer(const Module& module, int moments, bool masters, const Site& site);

 private:
  void take(double learning_rate, double gradient_scale, const Site& site);
  virtual void update(std::span<const AdamEntry> entries, double learning_rate, double gradient_scale) = 0;

  std::vector<Module::Parameter> parameters_;
  std::vector<Moments> moments_;
  std::vector<std::pair<DType, Device>> were_;  // the parameters
  index_t steps_ = 0;
};

class Adam final : public Optimizer {
 public:
  // Throws Error when an option is out of range.
  explicit Adam(const Module& module, const AdamOptions& options = {}, Site site = Site::current());

  // The numbers of the step that is due.
  AdamStep next_step(double learning_rate, double gradient_scale) const;

 private:
  void update(std::span<const AdamEntry> entries, double learning_rate, double gradient_scale) override;

  AdamOptions options_;
};

class Sgd final : public Optimizer {
 public:
  // Throws Error when an option is out of range or has no effect.
  explicit Sgd(const Module& module, const SgdOptions& options = {}, Site site = Site::current());

 private:
  void update(std::span<const AdamEntry> entries, double learning_rate, double gradient_scale) override;

  SgdOptions options_;
};

using OptimizerOptions = std::variant<AdamOptions, SgdOptions>;

}  // namespace whence
