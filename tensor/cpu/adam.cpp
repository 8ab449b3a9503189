// What the optimiser asks of a device: the step of Adam or AdamW for all parameters, the sum of squares of all
// gradients, clipping.
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "tensor/adam.h"
#include "tensor/convert.h"
#include "tensor/cpu/kernels.h"
#include "tensor/error.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

constexpr int at(Control control) { return static_cast<int>(control); }

// What the step multiplies with, worked out in double and rounded once.
template <class T>
struct Factors {
  T scale, coupled, shrink, beta1, rest1, beta2, rest2, rate, root, epsilon;

  Factors(const AdamStep& step, const double* controls, bool decays)
      : scale(static_cast<T>(controls[at(Control::gradient_scale)])),
        coupled(static_cast<T>(decays ? step.coupled_decay : 0)),
        shrink(static_cast<T>(decays ? controls[at(Control::shrink)] : 1)),
        beta1(static_cast<T>(step.beta1)),
        rest1(static_cast<T>(1 - step.beta1)),
        beta2(static_cast<T>(step.beta2)),
        rest2(static_cast<T>(1 - step.beta2)),
        rate(static_cast<T>(controls[at(Control::rate)])),
        root(static_cast<T>(controls[at(Control::root)])),
        epsilon(static_cast<T>(step.epsilon)) {}
};

// g = s g (+ l2 w);  w -= lr decay w;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
// w -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
template <class G, class T>
void adam_range(const Factors<T>& by, const G* __restrict gradient, T* __restrict weight, T* __restrict first,
    T* __restrict second, index_t begin, index_t end) {
  const T scale = by.scale, coupled = by.coupled, shrink = by.shrink, beta1 = by.beta1, rest1 = by.rest1,
          beta2 = by.beta2, rest2 = by.rest2, rate = by.rate, root = by.root, epsilon = by.epsilon;
  for (index_t i = begin; i < end; ++i) {
    const T g = static_cast<T>(gradient[i]) * scale + coupled * weight[i];
    const T m = beta1 * first[i] + rest1 * g, v = beta2 * second[i] + rest2 * g * g;
    first[i] = m;
    second[i] = v;
    weight[i] = weight[i] * shrink - rate * m / (std::sqrt(v) / root + epsilon);
  }
}

template <class G, class T>
void adam_entry(const AdamStep& step, const double* controls, const AdamEntry& entry) {
  const Factors<T> by(step, controls, entry.decays);
  const G* g = entry.gradient.data<G>();
  T *w = entry.weight.data<T>(), *m = entry.first.data<T>(), *v = entry.second.data<T>();
  parallel_for(
      entry.weight.numel(), cpu_grain, [&](index_t begin, index_t end) { adam_range(by, g, w, m, v, begin, end); });
}

// sum (x / unit)^2, in partial sums over fixed chunks.
template <class T>
double squares_of(const Tensor& x, double unit) {
  constexpr index_t grain = 1 << 14;
  const T* in = x.data<T>();
  std::vector<double> partial(static_cast<std::size_t>((x.numel() + grain - 1) / grain));
  parallel_for(x.numel(), grain, [&](index_t begin, index_t end) {
    double sum = 0;
    for (index_t i = begin; i < end; ++i) {
      const double value = static_cast<double>(static_cast<compute_t<T>>(in[i]));
      sum += (value / unit) * (value / unit);
    }
    partial[static_cast<std::size_t>(begin / grain)] = sum;
  });
  double total = 0;
  for (const double sum : partial) total += sum;
  return total;
}

}  // namespace

std::array<double, control_count> step_controls(const AdamStep& step, double max_norm, double loss_scale) {
  const double steps = static_cast<double>(step.step);
  return {step.gradient_scale, 1 - step.learning_rate * step.decoupled_decay,
      step.learning_rate / (1 - std::pow(step.beta1, steps)), std::sqrt(1 - std::pow(step.beta2, steps)), loss_scale,
      max_norm, std::numeric_limits<double>::quiet_NaN()};
}

void CpuKernels::adam_all(const AdamStep& step, const Tensor& controls, std::span<const AdamEntry> entries) {
  const std::array<double, control_count> of_step = step_controls(step, std::numeric_limits<double>::infinity(), 1);
  const double* numbers = controls.defined() ? controls.data<double>() : of_step.data();
  if (!std::isfinite(numbers[at(Control::gradient_scale)])) return;
  for (const AdamEntry& entry : entries) {
    visit_adam_entry(entry, [&]<class G, class T>(Type<G>, Type<T>) { adam_entry<G, T>(step, numbers, entry); });
    if (entry.shadow.defined()) copy(entry.weight, entry.shadow);
  }
}

void CpuKernels::sum_of_squares(std::span<const Tensor> x, double unit, const Tensor& total) {
  double sum = 0;
  for (const Tensor& each : x) {
    sum += visit_floating("sum_of_squares", each.dtype(), [&]<class T>(Type<T>) -> double {
      if constexpr (std::is_same_v<T, Dual>) {
        wrong_dtype("sum_of_squares", DType::dual, "f16, bf16, f32 or f64");
      } else {
        return squares_of<T>(each, unit);
      }
    });
  }
  *total.data<double>() = sum;
}

void CpuKernels::clip_scale(const Tensor& total, const Tensor& controls) {
  clip_to_norm(std::sqrt(*total.data<double>()), controls.data<double>());
}

}  // namespace whence
