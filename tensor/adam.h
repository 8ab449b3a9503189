// Adam's step (Kingma and Ba 2014, Algorithm 1; AdamW: Loshchilov and Hutter 2017, Algorithm 2) as numbers and entries:
// what an optimiser (nn/training/optim.h) gives to the kernels of a device.
#pragma once

#include <array>
#include <cmath>
#include <limits>

#include "tensor/math.h"
#include "tensor/tensor.h"

namespace whence {

// One optimiser step. The decays apply to the entries that decay.
struct AdamStep {
  double learning_rate, beta1, beta2, epsilon;
  double decoupled_decay;  // AdamW: w -= learning_rate * decay * w
  double coupled_decay;    // Adam with L2: the gradient gains decay * w
  double gradient_scale;   // clipping: every gradient is multiplied by this first
  index_t step;            // 1 for the first step: bias corrections are 1 - beta^step
};

// What changes from one optimiser step to the next, as f64 numbers in the device's memory. So the launches of a step
// can be captured in a graph and replayed with new numbers. step_controls works out shrink, rate and root on the CPU,
// so that all devices have the same.
enum class Control : unsigned char {
  gradient_scale,  // every gradient is multiplied by this first; not finite: the step changes nothing
  shrink,          // 1 - learning_rate * decoupled_decay
  rate,            // learning_rate / (1 - beta1^step)
  root,            // sqrt(1 - beta2^step)
  loss_scale,      // the gradients are those of the loss times this
  max_norm,        // gradients are clipped to it; infinity clips nothing
  terms,           // gradients are sums of so many, and are divided by it once they are clipped
  norm             // of all gradients, divided by the loss scale; clip_scale writes it
};
inline constexpr index_t control_count = 8;
// In the order of Control; norm is NaN until clip_scale writes it.
inline std::array<double, control_count> step_controls(
    const AdamStep& step, double max_norm, double loss_scale, double terms = 1) {
  const double steps = static_cast<double>(step.step);
  return {step.gradient_scale, 1 - step.learning_rate * step.decoupled_decay,
      step.learning_rate / (1 - std::pow(step.beta1, steps)), std::sqrt(1 - std::pow(step.beta2, steps)), loss_scale,
      max_norm, terms, std::numeric_limits<double>::quiet_NaN()};
}

// One parameter of a step: contiguous, of equal extents, on one device.
struct AdamEntry {
  Tensor gradient;               // f16, bf16 or f32; f64 where the weight is
  Tensor weight, first, second;  // f32 or f64; written in place
  Tensor shadow;                 // undefined, or f16 or bf16: the f32 weight, rounded, written by the same step
  bool decays;
};

// f(Type<G>{}, Type<T>{}) with the types of the entry's gradient and weight. Error when AdamEntry does not allow them.
template <class F> void visit_adam_entry(const AdamEntry& entry, F&& f) {
  const DType weight = entry.weight.dtype(), gradient = entry.gradient.dtype();
  if (entry.shadow.defined() && (weight != DType::f32 || compute_dtype(entry.shadow.dtype()) == entry.shadow.dtype()))
    wrong_dtype("adam", entry.shadow.dtype(), "f16 or bf16 as the shadow of an f32 weight");
  if (weight == DType::f64 && gradient == DType::f64) return f(Type<double>{}, Type<double>{});
  if (weight != DType::f32) wrong_dtype("adam", weight, "an f32 weight, or an f64 weight with an f64 gradient");
  if (gradient == DType::f32) return f(Type<float>{}, Type<float>{});
  if (gradient == DType::f16) return f(Type<Float16>{}, Type<float>{});
  if (gradient == DType::bf16) return f(Type<BFloat16>{}, Type<float>{});
  wrong_dtype("adam", gradient, "a gradient in f16, bf16 or f32");
}

// What a step multiplies with, worked out in double and rounded once: what changes by step
// or by entry, and what does not.
template <class T> struct AdamFactors {
  T scale, coupled, shrink, rate, root;

  // number(control) is a control in f64.
  template <class F> WHENCE_HD static AdamFactors of(const F& number, double coupled_decay, bool decays) {
    return {static_cast<T>(number(Control::gradient_scale)), static_cast<T>(decays ? coupled_decay : 0),
        static_cast<T>(decays ? number(Control::shrink) : 1), static_cast<T>(number(Control::rate)),
        static_cast<T>(number(Control::root))};
  }
};

template <class T> struct AdamRule {
  T beta1, rest1, beta2, rest2, epsilon;

  static AdamRule of(const AdamStep& step) {
    return {static_cast<T>(step.beta1), static_cast<T>(1 - step.beta1), static_cast<T>(step.beta2),
        static_cast<T>(1 - step.beta2), static_cast<T>(step.epsilon)};
  }
  // g = s g (+ l2 w);  w -= lr decay w;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
  // w -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)        C: T, or what a kernel computes T with
  template <class C> WHENCE_HD void update(const AdamFactors<T>& by, C gradient, C& w, C& m, C& v) const {
    const C g = gradient * C(by.scale) + C(by.coupled) * w;
    m = C(beta1) * m + C(rest1) * g;
    v = C(beta2) * v + C(rest2) * g * g;
    w = w * C(by.shrink) - C(by.rate) * m / (math::sqrt(v) / C(by.root) + C(epsilon));
  }
};

// Returns the factor of gradients, which are those of the loss times `loss_scale`, that clips their `norm`. The norm is
// that of the loss's own gradients; where it is not finite the factor is NaN.
WHENCE_HD inline double clip_factor(double norm, double max_norm, double loss_scale) {
  const double clip = norm > max_norm ? max_norm / norm : 1.0;
  return math::isfinite(norm) ? clip / loss_scale : std::numeric_limits<double>::quiet_NaN();
}

// Writes controls[norm] and controls[gradient_scale] from the norm of all gradients as they are.
WHENCE_HD inline void clip_to_norm(double given, double* controls) {
  const auto number = [&](Control control) { return controls[static_cast<int>(control)]; };
  const double norm = given / number(Control::loss_scale);
  controls[static_cast<int>(Control::norm)] = norm;
  controls[static_cast<int>(Control::gradient_scale)] =
      clip_factor(norm, number(Control::max_norm), number(Control::loss_scale)) / number(Control::terms);
}

}  // namespace whence
