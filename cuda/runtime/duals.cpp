// Kernels for duals on a GPU: the CPU's, on copies. Gradient checks alone need them. fill and copy are the GPU's own.
#include "cuda/kernels/kernels.h"
#include "cuda/runtime/backend.h"
#include "tensor/convolution.h"
#include "tensor/pairs.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct Result {
  const Tensor& of;
};
struct Bias {
  Tensor x;
  operator const Tensor*() const { return x.defined() ? &x : nullptr; }
};

template <class A> A on_cpu(const A& x) { return x; }
Tensor on_cpu(const Tensor& x) { return x.defined() ? raw::to_device(x, Device::cpu()) : x; }
Tensor on_cpu(const Result& y) { return on_cpu(y.of); }
Bias on_cpu(const Tensor* bias) { return {bias ? on_cpu(*bias) : Tensor()}; }
Steps on_cpu(const Steps& steps) { return steps.on(Device::cpu()); }

class DualKernels final : public CudaKernels {
  // A Result is an argument that the kernel writes.
  template <class K, class... P, class... A> void run(void (K::*kernel)(P...), const A&... given) {
    const auto with = [&](const auto&... here) {
      (static_cast<K&>(kernels(Device::cpu())).*kernel)(here...);
      (write(here, given), ...);
    };
    with(on_cpu(given)...);
  }
  template <class A, class B> void write(const A&, const B&) {}
  void write(const Tensor& here, const Result& y) {
    if (y.of.defined()) copy(raw::to_device(here, y.of.device()), y.of);
  }
  using T = Tensor;
  using K = Kernels;

  void unary(Unary f, UnaryAttributes p, const T& x, const T& y) override { run(&K::unary, f, p, x, Result{y}); }
  void unary_backward(Unary f, UnaryAttributes p, const T& saved, const T& dy, const T& dx) override {
    run(&K::unary_backward, f, p, saved, dy, Result{dx});
  }
  void binary(Binary f, const T& a, const T& b, const T& y) override { run(&K::binary, f, a, b, Result{y}); }
  void masked(const T& x, const T& mask, double value, const T& y) override {
    run(&K::masked, x, mask, value, Result{y});
  }
  void reduce(Reduction f, const T& x, const T& out) override { run(&K::reduce, f, x, Result{out}); }
  void argmax(const T& x, const T& out) override { run(&K::argmax, x, Result{out}); }
  void matmul(const T& a, const T& b, const T* bias, double alpha, const T& out) override {
    run(&K::matmul, a, b, bias, alpha, Result{out});
  }
  void softmax(const T& x, const T& mask, const T& y) override { run(&K::softmax, x, mask, Result{y}); }
  void softmax_backward(const T& y, const T& dy, const T& dx) override { run(&K::softmax_backward, y, dy, Result{dx}); }
  void norm(const T& x, const T& added, const T& weight, const T& bias, double epsilon, const T& sum, const T& y,
      const T& mean, const T& rstd) override {
    run(&K::norm, x, added, weight, bias, epsilon, Result{sum}, Result{y}, Result{mean}, Result{rstd});
  }
  void norm_backward(const T& x, const T& weight, const T& mean, const T& rstd, const T& dsum, const T& dy, const T& dx,
      const T& dweight, const T& dbias) override {
    run(&K::norm_backward, x, weight, mean, rstd, dsum, dy, Result{dx}, Result{dweight}, Result{dbias});
  }
  void cross_entropy(const T& logits, const T& target, index_t ignored, const T& norm, const T& loss) override {
    run(&K::cross_entropy, logits, target, ignored, Result{norm}, Result{loss});
  }
  void cross_entropy_backward(const T& logits, const T& target, index_t ignored, const T& norm, const T& dy,
      double share, const T& dx) override {
    run(&K::cross_entropy_backward, logits, target, ignored, norm, dy, share, Result{dx});
  }
  void cumulative_sum(const T& x, bool reverse, const T& y) override { run(&K::cumulative_sum, x, reverse, Result{y}); }
  void scatter_add_rows(const T& index, const T& from, const T& into) override {
    run(&K::scatter_add_rows, index, from, Result{into});
  }
  void gather(const T& x, const T& index, int axis, const T& y) override { run(&K::gather, x, index, axis, Result{y}); }
  void sum_by_index(const T& x, const T& index, int axis, const T& y) override {
    run(&K::sum_by_index, x, index, axis, Result{y});
  }
  void lerp_at(const T& table, const T& position, const T& y) override { run(&K::lerp_at, table, position, Result{y}); }
  void lerp_at_backward(const T& table, const T& position, const T& dy, const T& dtable, const T& dposition) override {
    run(&K::lerp_at_backward, table, position, dy, Result{dtable}, Result{dposition});
  }
  void read_by_distance(const Steps& steps, const T& table, const T& y) override {
    run(&K::read_by_distance, steps, table, Result{y});
  }
  void sum_by_distance(const Steps& steps, const T& dy, const T& dtable) override {
    run(&K::sum_by_distance, steps, dy, Result{dtable});
  }
  void convolve_keys(
      const Convolution& at, const T& x, const T& weight, bool adjoint, const T& bias, const T& y) override {
    run(&K::convolve_keys, at, x, weight, adjoint, bias, Result{y});
  }
  void convolve_keys_weight(const Convolution& at, const T& x, const T& dy, const T& dweight) override {
    run(&K::convolve_keys_weight, at, x, dy, Result{dweight});
  }
  void random_uniform(const T& out, const Stream& stream, double low, double high) override {
    run(&K::random_uniform, Result{out}, stream, low, high);
  }
  void random_normal(const T& out, const Stream& stream, double mean, double deviation) override {
    run(&K::random_normal, Result{out}, stream, mean, deviation);
  }

  // ---- Fused: by their parts.
  void matmul_gelu(const T& a, const T& b, const T* bias, const T& before, const T& out) override {
    K::matmul_gelu(a, b, bias, before, out);
  }
  bool makes_terms() const override { return false; }
  bool matmul_beside(const T&, std::span<const T>, std::span<const T>, std::span<const T>, const T&) override {
    return false;
  }
  void matmul_row_sums(const T& a, const T& b, const T& out, const T& sums) override {
    K::matmul_row_sums(a, b, out, sums);
  }
};

}  // namespace

Kernels& dual_kernels() {
  static DualKernels& kernels = *new DualKernels;
  return kernels;
}

}  // namespace whence
