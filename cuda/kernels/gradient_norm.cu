// The sum of squares of all gradients, and the scale that clips them: a few launches, no copy to the CPU.
#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/block.h"
#include "cuda/vocabulary/many_tensors.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/adam.h"

namespace whence {
namespace gpu {
namespace {

constexpr index_t chunk_length = 16384;

template <class T> struct SquaresTensor {
  Global<const T> x;
  index_t count, first_chunk;
  bool in_packs;
};

// One number for each chunk: a block's threads sum its packs in turn, then the block reduces.
// Per element: 1 number read, 2 operations in f64 (with a unit 1 division more): memory.
template <class T> struct SquareChunks {
  static constexpr const char* name = "sum_of_squares";
  static constexpr int threads = 256, pack = pack_size<T>;
  ManyTensors<SquaresTensor<T>, 100> all;
  Global<double> partial;
  double unit;

  WHENCE_HD Number<double> squared(Number<double> value) const {
    const Number<double> scaled = unit == 1 ? value : value / Number<double>(unit);
    return scaled * scaled;
  }
  WHENCE_HD void operator()(Thread& t) const {
    const SquaresTensor<T>& tensor = all.entry[all.of_chunk(t.block())];
    Number<double> sum(0.0);
    each_in_chunk<threads, pack>(t, tensor, chunk_length, [&](auto n, index_t i) {
      const auto x = load_pack<decltype(n)::value>(tensor.x, i);
      for (int k = 0; k < n; ++k) sum += squared(from_stored<double>(x.of[k]));
    });
    sum = block_reduce<threads>(t, sum, Plus{});
    if (t.index() == 0) store(partial, all.chunks_before + t.block(), sum);
  }
};

// Few numbers, so one thread. It does the same operations as the CPU, so that the scale has the same bits.
// Per launch: one thread reads a few numbers and writes 2: the latency of a launch.
struct ClipScale {
  static constexpr const char* name = "clip_scale";
  static constexpr int threads = 32;
  Global<const double> total;
  Global<double> controls;
  WHENCE_HD void operator()(Thread& t) const {
    if (t.index() != 0) return;
    double numbers[control_count];
    for (index_t k = 0; k < control_count; ++k) numbers[k] = plain(load<double>(controls, k));
    clip_to_norm(std::sqrt(plain(load<double>(total, 0))), numbers);
    for (const Control changed : {Control::gradient_scale, Control::norm})
      store(controls, static_cast<index_t>(changed), Number<double>(numbers[static_cast<int>(changed)]));
  }
};

}  // namespace
}  // namespace gpu

void CudaKernels::sum_of_squares(std::span<const Tensor> x, double unit, const Tensor& total) {
  index_t chunks = 0, done = 0;
  for (const Tensor& each : x) {
    visit_real("sum_of_squares", each.dtype(), [](auto) {});  // throws for other dtypes
    chunks += gpu::blocks_for(each.numel(), gpu::chunk_length);
  }
  const Tensor partial = Tensor::empty({chunks}, DType::f64, total.device());
  const auto run = [&]<class T>(Type<T>) {
    using Kernel = gpu::SquareChunks<T>;
    Kernel kernel{.all = {.chunks_before = done}, .partial = gpu::global<double>(partial), .unit = unit};
    constexpr std::size_t shared_bytes = gpu::block_reduce_bytes<Kernel::threads, gpu::Number<double>>;
    gpu::launch_all(kernel, x, gpu::chunk_length, shared_bytes, [](const Tensor& each) {
      const bool fits = each.dtype() == dtype_of<T>;
      return gpu::SquaresTensor<T>{gpu::global<const T>(fits ? each : Tensor()), fits ? each.numel() : 0, 0,
          fits && gpu::begins_with_pack(each, gpu::pack_size<T>)};
    });
    done = kernel.all.chunks_before;
  };
  run(Type<Float16>{});
  run(Type<BFloat16>{});
  run(Type<float>{});
  run(Type<double>{});
  reduce(Reduction::sum, partial, total);
}

void CudaKernels::clip_scale(const Tensor& total, const Tensor& controls) {
  gpu::launch_kernel(gpu::ClipScale{gpu::global<const double>(total), gpu::global<double>(controls)}, {.blocks = 1});
}

}  // namespace whence
