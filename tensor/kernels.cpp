#include "tensor/kernels.h"

#include "tensor/device/allocator.h"
#include "tensor/device/backend.h"
#include "tensor/device/device_runtime.h"
#include "tensor/pairs.h"
#include "tensor/raw.h"

namespace whence {
namespace {

[[noreturn]] void no_device(Device device) {
  fail("device", to_string(device), " given; this build has no CUDA; configure with -DWHENCE_CUDA=ON, or use cpu");
}

// The backend of a device that is not the CPU.
Backend backend_of(Device device) {
  if (device.is_planned()) return planned_backend(device);
  if (device.index != 0) fail("device", to_string(device), " given; one GPU, cuda:0, is what this version runs on");
  const Backend backend = cuda_backend();
  if (!backend.kernels) no_device(device);
  return backend;
}

}  // namespace

void Kernels::matmul_gelu(
    const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& before, const Tensor& out) {
  matmul(a, b, bias, 1, before);
  unary(functions::Gelu{}, {}, before, out);
}

void Kernels::copy_all(std::span<const Tensor> from, std::span<const Tensor> to) {
  for (std::size_t k = 0; k < from.size(); ++k) copy(from[k], to[k]);
}

// The sums of x's columns, [m n] -> [n].
static void sum_columns(Kernels& kernels, const Tensor& x, const Tensor& sums) {
  kernels.reduce(Reduction::sum, x, sums.view({1, x.size(1)}, {x.size(1), 1}));
}

void Kernels::matmul_row_sums(const Tensor& a, const Tensor& b, const Tensor& out, const Tensor& sums) {
  matmul(a, b, nullptr, 1, out);
  sum_columns(*this, raw::transpose(a), sums);  // a is the dy' of a layer: the sums, with their bits, of dy as it lies
}

void Kernels::matmul_gelu_backward(
    const Tensor& a, const Tensor& b, const Tensor& before, const Tensor& out, const Tensor& sums) {
  const Tensor dy = Tensor::empty(out.shape(), out.dtype(), out.device());
  matmul(a, b, nullptr, 1, dy);
  unary_backward(functions::Gelu{}, {}, before, dy, out);
  if (sums.defined()) sum_columns(*this, out, sums);
}

void Kernels::add_norm(const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias, double epsilon,
    const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  binary(functions::Add{}, x, added, sum);
  if (mean.defined())
    layer_norm(sum, weight, bias, epsilon, y, mean, rstd);
  else
    rms_norm(sum, weight, epsilon, y, rstd);
}

void Kernels::add_norm_backward(const Tensor& sum, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
    const Tensor& dsum, const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  if (mean.defined())
    layer_norm_backward(sum, weight, mean, rstd, dy, dx, dweight, dbias);
  else
    rms_norm_backward(sum, weight, rstd, dy, dx, dweight);
  if (dsum.defined()) binary(functions::Add{}, dx, dsum, dx);
}

void Kernels::causal_softmax_by_steps(
    const Tensor& x, const PairSteps& steps, const Tensor& table, index_t first_row, const Tensor& y) {
  const Tensor bias = raw::read_by_steps(steps, table);
  const Tensor logits = Tensor::empty(x.shape(), x.dtype(), x.device());
  binary(functions::Add{}, x, raw::expand(bias, x.shape()), logits);
  causal_softmax(logits, first_row, y);
}

void Kernels::causal_softmax(const Tensor& x, index_t first_row, const Tensor& y) {
  const Shape pairs{x.size(-2), x.size(-1)};
  const Tensor seen = raw::causal_mask(pairs[0], pairs[1], first_row, {}, x.device());
  softmax(x, raw::expand(raw::reshape(seen, pairs), x.shape()), y);
}
void Kernels::causal_softmax_backward(const Tensor& y, const Tensor& dy, index_t, const Tensor& dx) {
  softmax_backward(y, dy, dx);  // y is 0 where nothing is seen
}

[[noreturn]] static void no_tiles(const char* op, const Tensor& output) {
  fail(op, to_string(output.device()), " given; tiles are computed on the cpu; use another executor");
}
void Kernels::attention(
    const TiledAttention&, const TiledAttention::Operands&, const Tensor& output, const Tensor&, const Tensor&) {
  no_tiles("tiled_attention", output);
}
void Kernels::attention_backward(const TiledAttention&, const TiledAttention::Operands&, const Tensor& output,
    const Tensor&, const Tensor&, const Tensor&, const Tensor&, const TiledAttention::Operands&) {
  no_tiles("tiled_attention", output);
}
void Kernels::mixed_attention(const TiledMix&, const TiledMix::Operands&, const Tensor& output, const Tensor&) {
  no_tiles("tiled_mix", output);
}
void Kernels::mixed_attention_backward(const TiledMix&, const TiledMix::Operands&, const Tensor& output, const Tensor&,
    const Tensor&, const TiledMix::Operands&) {
  no_tiles("tiled_mix", output);
}

Kernels& kernels(Device device) { return device.is_cpu() ? cpu_kernels() : *backend_of(device).kernels; }

Allocator& memory_of(Device device) { return device.is_cpu() ? Allocator::cpu() : *backend_of(device).memory; }

DeviceRuntime& runtime_of(Device device) {
  if (device.is_cpu())
    fail("runtime_of", "cpu given; a GPU is required; the CPU records nothing and has nothing to wait for");
  return *backend_of(device).runtime;
}

IndexLauncher& launcher_of(const char* op, Device device) {
  const Backend backend = device.is_planned() ? planned_backend(device) : cuda_backend();
  if (!backend.launcher)
    fail(op, "device ", to_string(device), " given; this build has no CUDA; configure with -DWHENCE_CUDA=ON");
  return *backend.launcher;
}

void synchronise(Device device) {
  if (!device.is_cpu()) runtime_of(device).synchronise();
}

}  // namespace whence
