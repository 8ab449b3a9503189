// One step of Adam or AdamW for all parameters in few launches.
#include <algorithm>
#include <array>
#include <limits>

#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/many_tensors.h"
#include "cuda/vocabulary/rows.h"
#include "tensor/adam.h"
#include "tensor/math.h"

namespace whence {
namespace gpu {
namespace {

constexpr index_t chunk_length = 8192;

template <class G, class T> struct AdamTensor {
  Global<const G> gradient;
  Global<T> weight, first, second;
  Global<Float16> half;  // the rounded weight's target: one of the two, or neither; the other is null
  Global<BFloat16> brain;
  index_t count, first_chunk;
  bool decays, in_packs;
  T low, high;
};

// Per element: 4 numbers read, 3 written (4 with a rounded copy), 14 operations, 1 root, 2 divisions: memory.
template <class G, class T> struct AdamChunks {
  static constexpr const char* name = "adam";
  static constexpr int threads = 256, pack = sizeof(T) == 8 ? 2 : 4;
  ManyTensors<AdamTensor<G, T>, 40> all;
  Global<const double> controls;  // null: those of `given`
  AdamRule<T> rule;
  double coupled_decay, given[control_count];

  WHENCE_HD double number(Control which) const {
    const int at = static_cast<int>(which);
    return controls ? plain(load<double>(controls, at)) : given[at];
  }

  WHENCE_HD void operator()(Thread& t) const {
    const AdamTensor<G, T> tensor = all.entry[all.of_chunk(t.block())];  // a copy: no store can change its pointers
    const auto by = adam_factors<T>([this](Control which) { return number(which); }, coupled_decay, tensor);
    if (!math::isfinite(by.scale)) return;  // the step changes nothing
    each_in_chunk<threads, pack>(
        t, tensor, chunk_length, [&](auto n, index_t i) { step<decltype(n)::value>(tensor, by, i); });
  }

  template <int n> WHENCE_HD void step(const AdamTensor<G, T>& tensor, const AdamFactors<T>& by, index_t i) const {
    const auto gradient = load_pack<n>(tensor.gradient, i);
    auto weight = load_numbers<T, n>(tensor.weight, i), first = load_numbers<T, n>(tensor.first, i),
         second = load_numbers<T, n>(tensor.second, i);
    for (int k = 0; k < n; ++k)
      rule.update(by, from_stored<T>(gradient.of[k]), weight.of[k], first.of[k], second.of[k]);
    store_numbers(tensor.weight, i, weight);
    store_numbers(tensor.first, i, first);
    store_numbers(tensor.second, i, second);
    if (tensor.half) store_numbers(tensor.half, i, weight);
    if (tensor.brain) store_numbers(tensor.brain, i, weight);
  }
};

template <class G, class T> AdamTensor<G, T> tensor_of(const AdamEntry& entry) {
  const DType shadow = entry.shadow.defined() ? entry.shadow.dtype() : DType::f32;
  bool in_packs = true;
  for (const Tensor* x : {&entry.gradient, &entry.weight, &entry.first, &entry.second, &entry.shadow})
    in_packs = in_packs && (!x->defined() || begins_with_pack(*x, AdamChunks<G, T>::pack));
  return {global<const G>(entry.gradient), global<T>(entry.weight), global<T>(entry.first), global<T>(entry.second),
      global<Float16>(shadow == DType::f16 ? entry.shadow : Tensor()),
      global<BFloat16>(shadow == DType::bf16 ? entry.shadow : Tensor()), entry.weight.numel(), 0, entry.decays,
      in_packs, static_cast<T>(entry.low), static_cast<T>(entry.high)};
}

}  // namespace
}  // namespace gpu

// A launch holds entries of one pair of types; each other pair has launches of its own.
void CudaKernels::adam_all(const AdamStep& step, const Tensor& controls, std::span<const AdamEntry> entries) {
  for (const AdamEntry& entry : entries)
    visit_adam_entry(entry, [](auto, auto) {});  // throws before anything is changed
  const std::array<double, control_count> given = step_controls(step, std::numeric_limits<double>::infinity(), 1);
  const auto run = [&]<class G, class T>(Type<G>, Type<T>) {
    gpu::AdamChunks<G, T> kernel{
        {}, gpu::global<const double>(controls), AdamRule<T>::of(step), step.coupled_decay, {}};
    std::copy(given.begin(), given.end(), kernel.given);
    gpu::launch_all(kernel, entries, gpu::chunk_length, 0, [](const AdamEntry& entry) {
      const bool fits = entry.gradient.dtype() == dtype_of<G> && entry.weight.dtype() == dtype_of<T>;
      return fits ? gpu::tensor_of<G, T>(entry) : gpu::AdamTensor<G, T>{};
    });
  };
  run(Type<float>{}, Type<float>{});
  run(Type<Float16>{}, Type<float>{});
  run(Type<BFloat16>{}, Type<float>{});
  run(Type<double>{}, Type<double>{});
}

}  // namespace whence
