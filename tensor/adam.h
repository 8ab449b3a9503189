// Adam's step (Kingma and Ba 2014, Algorithm 1; AdamW: Loshchilov and Hutter 2017, Algorithm 2), and the numbers and
// entries that an optimiser (nn/training/optim.h) passes to the kernels of a device.
#pragma once

#include <array>
#include <cmath>
#include <limits>

#include "tensor/math.h"
#include "tensor/tensor.h"

namespace whence {

// One optimiser step. The decays apply only to entries with `decays`.
struct AdamStep {
  double learning_rate, beta1, beta2, epsilon;
  double decoupled_decay;  // AdamW: w -= learning_rate * decay * w
  double coupled_decay;    // Adam with L2: the gradient gains decay * w
  double gradient_scale;   // clipping: every gradient is multiplied by this first
  index_t step;            // 1 for the first step: the bias corrections are 1 - beta^step
};

// AdamFactors change with the step and the entry, AdamRule does not. Both are computed in double and rounded once.
template <class T> struct AdamFactors {
  T scale, coupled, shrink, rate, root;  // shrink = 1 - lr decay, rate = lr / (1 - beta1^t), root = sqrt(1 - beta2^t)
  T low, high;                           // of the entry's weights
};

template <class T> struct AdamRule {
  T beta1, rest1, beta2, rest2, epsilon;  // rest = 1 - beta

  static AdamRule of(const AdamStep& step) {
    return {static_cast<T>(step.beta1), static_cast<T>(1 - step.beta1), static_cast<T>(step.beta2),
        static_cast<T>(1 - step.beta2), static_cast<T>(step.epsilon)};
  }
  // One weight w and its running means m of g and v of g^2. C: T, or the type that a kernel computes in.
  template <class C> WHENCE_HD void update(const AdamFactors<T>& by, C gradient, C& w, C& m, C& v) const {
    const C g = gradient * C(by.scale) + C(by.coupled) * w;
    m = C(beta1) * m + C(rest1) * g;
    v = C(beta2) * v + C(rest2) * g * g;
    w = w * C(by.shrink) - C(by.rate) * m / (math::sqrt(v) / C(by.root) + C(epsilon));
    w = w < C(by.low) ? C(by.low) : (w > C(by.high) ? C(by.high) : w);
  }
};

// Control names the f64 numbers in the device's memory that change from one optimiser step to the next. A captured
// graph of the step's launches can so be replayed with new numbers. step_controls computes shrink, rate and root on the
// CPU, so that they are equal on all devices.
enum class Control : unsigned char {
  gradient_scale,  // every gradient is multiplied by this first; if it is not finite, the step changes nothing
  shrink,          // 1 - learning_rate * decoupled_decay
  rate,            // learning_rate / (1 - beta1^step)
  root,            // sqrt(1 - beta2^step)
  loss_scale,      // the gradients are those of loss_scale * loss
  max_norm,        // gradients are clipped to this norm; infinity clips nothing
  terms,           // gradients are sums over this many targets, and are divided by it after clipping
  norm             // norm of all gradients, divided by loss_scale; clip_scale writes it
};
inline constexpr index_t control_count = 8;
// step_controls returns the numbers in the order of Control. `norm` is NaN until clip_scale writes it.
inline std::array<double, control_count> step_controls(
    const AdamStep& step, double max_norm, double loss_scale, double terms = 1) {
  const double steps = static_cast<double>(step.step);
  return {step.gradient_scale, 1 - step.learning_rate * step.decoupled_decay,
      step.learning_rate / (1 - std::pow(step.beta1, steps)), std::sqrt(1 - std::pow(step.beta2, steps)), loss_scale,
      max_norm, terms, std::numeric_limits<double>::quiet_NaN()};
}

// AdamEntry is one parameter of a step. Its tensors are contiguous, have equal extents and are on one device.
struct AdamEntry {
  Tensor gradient;               // f16, bf16 or f32; f64 where the weight is
  Tensor weight, first, second;  // f32 or f64; written in place
  Tensor shadow;                 // undefined, or f16 or bf16: the rounded f32 weight, written by the same step
  bool decays;
  // The weight's range, to which the step clamps it
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
};

// Calls f(Type<G>{}, Type<T>{}) with the types of the entry's gradient and weight. Throws Error if AdamEntry does not
// allow them.
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

// Returns the factors of a step for an AdamEntry, or what a kernel reads of it. number(control) is a control in f64.
template <class T, class F, class Entry>
WHENCE_HD AdamFactors<T> adam_factors(const F& number, double coupled_decay, const Entry& of) {
  return {static_cast<T>(number(Control::gradient_scale)), static_cast<T>(of.decays ? coupled_decay : 0),
      static_cast<T>(of.decays ? number(Control::shrink) : 1), static_cast<T>(number(Control::rate)),
      static_cast<T>(number(Control::root)), static_cast<T>(of.low), static_cast<T>(of.high)};
}

// Returns the factor that clips gradients of loss_scale * loss. `norm` is the norm of the unscaled loss's gradients; if
// it is not finite, the factor is NaN.
WHENCE_HD inline double clip_factor(double norm, double max_norm, double loss_scale) {
  const double clip = norm > max_norm ? max_norm / norm : 1.0;
  return math::isfinite(norm) ? clip / loss_scale : std::numeric_limits<double>::quiet_NaN();
}

// Writes controls[norm] and controls[gradient_scale]. `given` is the norm of all gradients as they are stored.
WHENCE_HD inline void clip_to_norm(double given, double* controls) {
  const auto number = [&](Control control) { return controls[static_cast<int>(control)]; };
  const double norm = given / number(Control::loss_scale);
  controls[static_cast<int>(Control::norm)] = norm;
  controls[static_cast<int>(Control::gradient_scale)] =
      clip_factor(norm, number(Control::max_norm), number(Control::loss_scale)) / number(Control::terms);
}

}  // namespace whence
