// One step of Adam or AdamW (tensor/adam.h has the formula), and the norm of all gradients.
#include "tensor/adam.h"

#include "tensor/plain/access.h"

namespace whence {

using plain::In, plain::Out;

void Kernels::adam_all(const AdamStep& step, const Tensor& controls, std::span<const AdamEntry> entries) {
  const auto of_step = step_controls(step, std::numeric_limits<double>::infinity(), 1);
  const In<double> given(controls);
  const auto number = [&](Control which) {
    const auto place = static_cast<std::size_t>(which);
    return given ? given(static_cast<index_t>(place)) : of_step[place];
  };
  if (!math::isfinite(number(Control::gradient_scale))) return;
  for (const AdamEntry& entry : entries)
    visit_adam_entry(entry, [](auto, auto) {});  // throws before anything is changed
  for (const AdamEntry& entry : entries)
    visit_adam_entry(entry, [&]<class G, class T>(Type<G>, Type<T>) {
      const AdamRule<T> rule = AdamRule<T>::of(step);
      const auto factors = AdamFactors<T>::of(number, step.coupled_decay, entry.decays);
      const In<G> gradient(entry.gradient);
      {
        const Out<T> weight(entry.weight), first(entry.first), second(entry.second);
        for (index_t i = 0; i < weight.rows(); ++i)
          for (index_t j = 0; j < weight.width(); ++j) {
            T w = weight[i][j], m = first[i][j], v = second[i][j];
            rule.update(factors, static_cast<T>(gradient[i][j]), w, m, v);
            weight[i][j] = w, first[i][j] = m, second[i][j] = v;
          }
      }
      if (entry.shadow.defined()) Kernels::copy(entry.weight, entry.shadow);
    });
}

// total = sum (x / unit)^2
void Kernels::sum_of_squares(std::span<const Tensor> x, double unit, const Tensor& total) {
  double all = 0;
  for (const Tensor& each : x)
    visit_real("sum_of_squares", each.dtype(), [&]<class T>(Type<T>) {
      double sum = 0;
      const In<T> from(each);
      for (index_t i = 0; i < from.rows(); ++i)
        for (index_t j = 0; j < from.width(); ++j) {
          const double value = static_cast<double>(from[i][j]) / unit;
          sum += value * value;
        }
      all += sum;
    });
  Kernels::fill(total, all);
}

// norm = sqrt(total) / loss_scale,  gradient_scale = min(1, max_norm / norm) / loss_scale / terms
void Kernels::clip_scale(const Tensor& total, const Tensor& controls) {
  const In<double> squares(total);
  const Out<double> numbers(controls);
  std::array<double, control_count> at;
  for (index_t n = 0; n < control_count; ++n) at[static_cast<std::size_t>(n)] = numbers(n);
  clip_to_norm(std::sqrt(squares(0)), at.data());
  for (index_t n = 0; n < control_count; ++n) numbers(n) = at[static_cast<std::size_t>(n)];
}

}  // namespace whence
