// One step of Adam or AdamW for all parameters.
#include <array>
#include <cmath>
#include <limits>

#include "tensor/adam.h"
#include "tensor/kernels.h"
#include "tensor/parallel.h"

namespace whence {

template <class G, class T>
static void adam_entry(const AdamStep& step, const double* controls, const AdamEntry& entry) {
  const AdamRule<T> rule = AdamRule<T>::of(step);
  const AdamFactors<T> by = adam_factors<T>(
      [controls](Control which) { return controls[static_cast<int>(which)]; }, step.coupled_decay, entry);
  const G* const gradient = entry.gradient.data<G>();
  T *const weight = entry.weight.data<T>(), *const first = entry.first.data<T>(),
           *const second = entry.second.data<T>();
  parallel_for(entry.weight.numel(), cpu_grain, [=](index_t begin, index_t end) {
#pragma omp simd
    for (index_t i = begin; i < end; ++i) {
      T w = weight[i], m = first[i], v = second[i];
      rule.update(by, static_cast<T>(gradient[i]), w, m, v);
      weight[i] = w, first[i] = m, second[i] = v;
    }
  });
}

void Kernels::adam_all(const AdamStep& step, const Tensor& controls, std::span<const AdamEntry> entries) {
  const std::array<double, control_count> of_step = step_controls(step, std::numeric_limits<double>::infinity(), 1);
  const double* numbers = controls.defined() ? controls.data<double>() : of_step.data();
  if (!std::isfinite(numbers[static_cast<int>(Control::gradient_scale)])) return;
  for (const AdamEntry& entry : entries)
    visit_adam_entry(entry, [](auto, auto) {});  // throws before anything is changed
  for (const AdamEntry& entry : entries) {
    visit_adam_entry(entry, [&]<class G, class T>(Type<G>, Type<T>) { adam_entry<G, T>(step, numbers, entry); });
    if (entry.shadow.defined()) copy(entry.weight, entry.shadow);
  }
}

}  // namespace whence
