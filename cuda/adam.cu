// One step of Adam or AdamW for one parameter.
#include <cmath>

#include "cuda/kernels.h"
#include "tensor/launch.h"
#include "tensor/math.h"

namespace whence {
namespace {

// g = s g (+ l2 w);  w -= lr decay w;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
// w -= lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
template <class T>
struct Adam {
  const T* gradient;
  T *weight, *first, *second;
  T scale, coupled, shrink, beta1, rest1, beta2, rest2, rate, root, epsilon;

  Adam(const AdamStep& step, const Tensor& g, const Tensor& w, const Tensor& m, const Tensor& v)
      : gradient(g.data<T>()), weight(w.data<T>()), first(m.data<T>()), second(v.data<T>()) {
    const double steps = static_cast<double>(step.step);
    scale = static_cast<T>(step.gradient_scale), coupled = static_cast<T>(step.coupled_decay);
    shrink = static_cast<T>(1 - step.learning_rate * step.decoupled_decay);
    beta1 = static_cast<T>(step.beta1), rest1 = static_cast<T>(1 - step.beta1);
    beta2 = static_cast<T>(step.beta2), rest2 = static_cast<T>(1 - step.beta2);
    rate = static_cast<T>(step.learning_rate / (1 - std::pow(step.beta1, steps)));
    root = static_cast<T>(std::sqrt(1 - std::pow(step.beta2, steps))), epsilon = static_cast<T>(step.epsilon);
  }
  WHENCE_HD void operator()(index_t i) const {
    const T g = gradient[i] * scale + coupled * weight[i];
    const T m = beta1 * first[i] + rest1 * g, v = beta2 * second[i] + rest2 * g * g;
    first[i] = m;
    second[i] = v;
    weight[i] = weight[i] * shrink - rate * m / (math::sqrt(v) / root + epsilon);
  }
};

}  // namespace

void CudaKernels::adam(const AdamStep& step, const Tensor& gradient, const Tensor& weight, const Tensor& first, const Tensor& second) {
  const auto run = [&]<class T>(Type<T>) {
    launch("adam", weight.device(), weight.numel(), Adam<T>(step, gradient, weight, first, second));
  };
  if (weight.dtype() == DType::f32) return run(Type<float>{});
  if (weight.dtype() == DType::f64) return run(Type<double>{});
  wrong_dtype("adam", weight.dtype(), "f32 or f64");
}

}  // namespace whence
