// One step of Adam or AdamW for one parameter.
#include <cmath>

#include "tensor/cpu_kernels.h"
#include "tensor/error.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

// g = s g (+ l2 w);  w -= lr decay w;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
// w -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
template <class T>
void adam_range(const AdamStep& step, const T* __restrict gradient, T* __restrict weight, T* __restrict first, T* __restrict second,
                index_t begin, index_t end) {
  const double steps = static_cast<double>(step.step);
  const T scale = static_cast<T>(step.gradient_scale), coupled = static_cast<T>(step.coupled_decay);
  const T shrink = static_cast<T>(1 - step.learning_rate * step.decoupled_decay);
  const T beta1 = static_cast<T>(step.beta1), rest1 = static_cast<T>(1 - step.beta1);
  const T beta2 = static_cast<T>(step.beta2), rest2 = static_cast<T>(1 - step.beta2);
  const T rate = static_cast<T>(step.learning_rate / (1 - std::pow(step.beta1, steps)));
  const T root = static_cast<T>(std::sqrt(1 - std::pow(step.beta2, steps))), epsilon = static_cast<T>(step.epsilon);
  for (index_t i = begin; i < end; ++i) {
    const T g = gradient[i] * scale + coupled * weight[i];
    const T m = beta1 * first[i] + rest1 * g, v = beta2 * second[i] + rest2 * g * g;
    first[i] = m;
    second[i] = v;
    weight[i] = weight[i] * shrink - rate * m / (std::sqrt(v) / root + epsilon);
  }
}

template <class T>
void adam_step(const AdamStep& step, const Tensor& gradient, const Tensor& weight, const Tensor& first, const Tensor& second) {
  const T* g = gradient.data<T>();
  T *w = weight.data<T>(), *m = first.data<T>(), *v = second.data<T>();
  parallel_for(weight.numel(), cpu_grain, [&](index_t begin, index_t end) { adam_range(step, g, w, m, v, begin, end); });
}

}  // namespace

void CpuKernels::adam(const AdamStep& step, const Tensor& gradient, const Tensor& weight, const Tensor& first, const Tensor& second) {
  if (weight.dtype() == DType::f32) return adam_step<float>(step, gradient, weight, first, second);
  if (weight.dtype() == DType::f64) return adam_step<double>(step, gradient, weight, first, second);
  wrong_dtype("adam", weight.dtype(), "f32 or f64");
}

}  // namespace whence
