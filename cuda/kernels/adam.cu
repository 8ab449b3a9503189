// One step of Adam or AdamW for all parameters in few launches.
#include <algorithm>
#include <array>
#include <limits>

#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/many_tensors.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/adam.h"
#include "tensor/math.h"

namespace whence {
namespace gpu {
namespace {

constexpr index_t chunk_length = 8192;

template <class G, class T> struct AdamTensor {
  Global<const G> gradient;
  Global<T> weight, first, second;
  Global<Float16> half;  // where the rounded weight goes: one of the two, or neither
  Global<BFloat16> brain;
  index_t count, first_chunk;
  bool decays, in_packs, has_half, has_brain;
};

// Per element: 4 numbers read, 3 written (4 with a rounded copy), 14 operations, 1 root, 2 divisions: memory.
template <class G, class T> struct AdamChunks {
  static constexpr const char* name = "adam";
  static constexpr int threads = 256, pack = sizeof(T) == 8 ? 2 : 4;
  ManyTensors<AdamTensor<G, T>, 40> all;
  Global<const double> controls;
  AdamRule<T> rule;
  double given[control_count], coupled_decay;  // given: the controls when there are none on the device
  bool has_controls;

  WHENCE_HD double number(Control which) const {
    const int at = static_cast<int>(which);
    return has_controls ? plain(load<double>(controls, at)) : given[at];
  }

  WHENCE_HD void operator()(Thread& t) const {
    const AdamTensor<G, T> tensor = all.entry[all.of_chunk(t.block())];  // a copy: no store can change its pointers
    const auto by = AdamFactors<T>::of([this](Control which) { return number(which); }, coupled_decay, tensor.decays);
    if (!math::isfinite(by.scale)) return;  // not finite: a step that is left out
    const index_t begin = (t.block() - tensor.first_chunk) * chunk_length;
    const index_t end = begin + chunk_length < tensor.count ? begin + chunk_length : tensor.count;
    const index_t packs_end = tensor.in_packs ? begin + (end - begin) / pack * pack : begin;
    for (index_t i = begin + t.index() * pack; i < packs_end; i += threads * pack) step_pack(tensor, by, i);
    for (index_t i = packs_end + t.index(); i < end; i += threads) step_one(tensor, by, i);
  }

  WHENCE_HD void step_pack(const AdamTensor<G, T>& tensor, const AdamFactors<T>& by, index_t i) const {
    const auto g = load_pack<pack>(tensor.gradient, i);
    auto w = load_pack<pack>(tensor.weight, i), m = load_pack<pack>(tensor.first, i),
         v = load_pack<pack>(tensor.second, i);
    for (int k = 0; k < pack; ++k) {
      Number<T> weight(w.of[k]), first(m.of[k]), second(v.of[k]);
      rule.update(by, from_stored<T>(g.of[k]), weight, first, second);
      w.of[k] = plain(weight), m.of[k] = plain(first), v.of[k] = plain(second);
    }
    store_pack<pack>(tensor.weight, i, w);
    store_pack<pack>(tensor.first, i, m);
    store_pack<pack>(tensor.second, i, v);
    if (tensor.has_half) store_rounded(tensor.half, i, w);
    if (tensor.has_brain) store_rounded(tensor.brain, i, w);
  }

  template <class H> WHENCE_HD static void store_rounded(Global<H> to, index_t i, const Pack<T, pack>& numbers) {
    Pack<H, pack> rounded;
    for (int k = 0; k < pack; ++k) rounded.of[k] = convert<H>(numbers.of[k]);
    store_pack<pack>(to, i, rounded);
  }

  WHENCE_HD void step_one(const AdamTensor<G, T>& tensor, const AdamFactors<T>& by, index_t i) const {
    Number<T> weight = load<T>(tensor.weight, i), first = load<T>(tensor.first, i), second = load<T>(tensor.second, i);
    rule.update(by, load<T>(tensor.gradient, i), weight, first, second);
    store(tensor.weight, i, weight);
    store(tensor.first, i, first);
    store(tensor.second, i, second);
    if (tensor.has_half) store(tensor.half, i, weight);
    if (tensor.has_brain) store(tensor.brain, i, weight);
  }
};

// All entries of these types, as many at a time as the kernel's table holds.
template <class G, class T> class AdamLaunches {
 public:
  AdamLaunches(const AdamStep& step, const Tensor& controls) {
    const std::array<double, control_count> given = step_controls(step, std::numeric_limits<double>::infinity(), 1);
    std::copy(given.begin(), given.end(), kernel_.given);
    kernel_.rule = AdamRule<T>::of(step);
    kernel_.coupled_decay = step.coupled_decay;
    kernel_.has_controls = controls.defined();
    if (controls.defined()) kernel_.controls = global<const double>(controls);
  }

  void add(const AdamEntry& entry) {
    if (entry.weight.numel() == 0) return;
    constexpr int pack = AdamChunks<G, T>::pack;
    AdamTensor<G, T> tensor{};
    tensor.gradient = global<const G>(entry.gradient);
    tensor.weight = global<T>(entry.weight), tensor.first = global<T>(entry.first),
    tensor.second = global<T>(entry.second);
    tensor.count = entry.weight.numel(), tensor.decays = entry.decays;
    tensor.in_packs = begins_with_pack(entry.gradient, pack) && begins_with_pack(entry.weight, pack) &&
                      begins_with_pack(entry.first, pack) && begins_with_pack(entry.second, pack);
    if (entry.shadow.defined()) {
      tensor.in_packs = tensor.in_packs && begins_with_pack(entry.shadow, pack);
      tensor.has_half = entry.shadow.dtype() == DType::f16, tensor.has_brain = !tensor.has_half;
      if (tensor.has_half) tensor.half = global<Float16>(entry.shadow);
      if (tensor.has_brain) tensor.brain = global<BFloat16>(entry.shadow);
    }
    if (kernel_.all.full()) run();
    kernel_.all.add(tensor, chunk_length);
  }

  void run() {
    launch_kernel(kernel_, {.blocks = kernel_.all.chunks});
    kernel_.all.clear();
  }

 private:
  AdamChunks<G, T> kernel_{};
};

}  // namespace
}  // namespace gpu

// A launch holds entries of one pair of types; entries of other types go by in a round of their own.
void CudaKernels::adam_all(const AdamStep& step, const Tensor& controls, std::span<const AdamEntry> entries) {
  for (const AdamEntry& entry : entries)
    visit_adam_entry(entry, [](auto, auto) {});  // refuses before anything is changed
  const auto run = [&]<class G, class T>(Type<G>, Type<T>) {
    gpu::AdamLaunches<G, T> launches(step, controls);
    for (const AdamEntry& entry : entries)
      if (entry.gradient.dtype() == dtype_of<G> && entry.weight.dtype() == dtype_of<T>) launches.add(entry);
    launches.run();
  };
  run(Type<float>{}, Type<float>{});
  run(Type<Float16>{}, Type<float>{});
  run(Type<BFloat16>{}, Type<float>{});
  run(Type<double>{}, Type<double>{});
}

}  // namespace whence
