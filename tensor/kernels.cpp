// The backends and the choice of kernels; and kernels that only call others, such as fused ones. A GPU has better ones
// (cuda/kernels/matmul.cu, copy.cu).
#include "tensor/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tensor/adam.h"
#include "tensor/backend.h"
#include "tensor/raw.h"

namespace whence {
namespace {

class SystemMemory final : public Memory {
 public:
  void* allocate(std::size_t bytes) override {
    if (void* const block = std::aligned_alloc(64, (bytes + 63) / 64 * 64)) return block;
    throw OutOfMemory(error_at_call_site("allocate", to_text(bytes_text(bytes), " asked for; the system has no more")),
        {.asked = bytes});
  }
  void deallocate(void* block, std::size_t) noexcept override { std::free(block); }
  void copy_to_cpu(const void* from, void* to, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy_from_cpu(const void* from, void* to, std::size_t bytes) override { std::memcpy(to, from, bytes); }
};

using Find = Backend (*)(Device);

Backend core_backend(Device) {
  static SystemMemory& memory = *new SystemMemory;  // never destroyed: tensors in static storage may be freed later
  static Kernels kernels;
  return {&kernels, &memory};
}

Find& found_by(Device::Kind kind) {
  static Find finds[3] = {core_backend, nullptr, nullptr};
  return finds[static_cast<std::size_t>(kind)];
}

}  // namespace

RegisteredBackend::RegisteredBackend(Device::Kind kind, Backend (*find)(Device)) { found_by(kind) = find; }

Backend backend_of(Device device) {
  if (device.kind == Device::Kind::cuda && device.index != 0)
    fail("device", to_string(device), " given; this version runs on one GPU, cuda:0");
  const Find find = found_by(device.kind);
  const Backend backend = find ? find(device) : Backend{};
  if (!backend.kernels)
    fail("device", to_string(device), " given; this build has no CUDA; configure with -DWHENCE_CUDA=ON, or use cpu");
  return backend;
}

Kernels& kernels(Device device) { return *backend_of(device).kernels; }
Kernels& kernels(const Tensor& x) {
  const Backend backend = backend_of(x.device());
  return x.dtype() == DType::dual && backend.of_duals ? *backend.of_duals : *backend.kernels;
}

void index_out_of_range(const IndexCheck& check, const Shape& shape, index_t element, index_t value) {
  fail(check.op, check.argument, " at ", position_of(element, shape), " is ", value, "; a value in [0, ", check.count,
      ") required", check.also < 0 ? to_text(", or ", check.also, " to ignore it") : std::string());
}

Tensor Kernels::checked_index(const IndexCheck& check, const Tensor& index) {
  for (index_t n = 0; n < index.numel(); ++n)
    if (const index_t value = index.data<index_t>()[n]; !check.allows(value))
      index_out_of_range(check, index.shape(), n, value);
  return index;
}

void Kernels::copy_rows(std::span<const Tensor> from, std::span<const Tensor> to, int axis, const Tensor& row) {
  const index_t first = raw::to_device(row, Device::cpu()).data<index_t>()[0];
  for (std::size_t k = 0; k < from.size(); ++k) {
    const index_t rows = std::min(from[k].size(axis), to[k].size(axis));
    const auto part = [&](const Tensor& x) {
      return x.size(axis) == rows ? x : raw::slice(x, axis, first, first + rows);
    };
    copy(part(from[k]), part(to[k]));
  }
}

// The gradients of a layer's weight and bias, one after the other. a is the transposed dy of the layer: sums has the
// bits of the sum of dy as stored.
void Kernels::matmul_row_sums(const Tensor& a, const Tensor& b, const Tensor& out, const Tensor& sums) {
  matmul(a, b, nullptr, 1, out);
  reduce(Reduction::sum, raw::transpose(a), sums.view({1, a.size(0)}, {a.size(0), 1}));
}

void Kernels::clip_scale(const Tensor& total, const Tensor& controls) {
  clip_to_norm(std::sqrt(*total.data<double>()), controls.data<double>());
}

// ---- Fused kernels as their parts, one after another.

void Kernels::matmul_gelu(
    const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& before, const Tensor& out) {
  matmul(a, b, bias, 1, before);
  unary(functions::Gelu{}, {}, before, out);
}

bool Kernels::matmul_beside(
    const Tensor&, std::span<const Tensor>, std::span<const Tensor>, std::span<const Tensor>, const Tensor&) {
  return false;
}

namespace {
[[noreturn]] void refuse_terms() {
  throw Error("terms by distance are asked of a device that composes them; one with makes_terms() required");
}
}  // namespace

void Kernels::kerple(bool, const Tensor&, const Tensor&, const Tensor&, const Tensor&) { refuse_terms(); }
void Kernels::kerple_backward(
    bool, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  refuse_terms();
}
void Kernels::mix_terms(const MixNetwork&, DType, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
    const Tensor&, const Tensor&, const Tensor&) {
  refuse_terms();
}
void Kernels::mix_terms_backward(const MixNetwork&, DType, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
    const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  refuse_terms();
}

void Kernels::copy_all(std::span<const Tensor> from, std::span<const Tensor> to) {
  for (std::size_t k = 0; k < from.size(); ++k) copy(from[k], to[k]);
}

void Kernels::matmul_gelu_backward(
    const Tensor& a, const Tensor& b, const Tensor& before, const Tensor& out, const Tensor& sums) {
  const Tensor dy = Tensor::like(out);
  matmul(a, b, nullptr, 1, dy);
  unary_backward(functions::Gelu{}, {}, before, dy, out);
  if (sums.defined()) reduce(Reduction::sum, out, sums.view({1, out.size(1)}, {out.size(1), 1}));
}

}  // namespace whence
