// The primitives that a device must provide, where a plain loop (tensor/launch.h) is not enough. Callers (tensor/raw.h) have checked
// shapes, dtypes and devices and made the outputs: kernels only compute. Every result is the same for any number of threads.
#pragma once

#include "tensor/pointwise.h"
#include "tensor/tensor.h"

namespace whence {

struct Stream;

enum class Reduction : unsigned char { sum, maximum };

// One optimiser step for one parameter, everything in f32, in place.
struct AdamStep {
  double learning_rate, beta1, beta2, epsilon;
  double decoupled_decay;  // AdamW: w -= learning_rate * decay * w
  double coupled_decay;    // Adam with L2: the gradient gains decay * w
  double gradient_scale;   // clipping: every gradient is multiplied by this first
  index_t step;            // 1 for the first step: bias corrections are 1 - beta^step
};

class Kernels {
 public:
  virtual ~Kernels() = default;

  // Any strides on both sides; dtypes may differ (one rounding).
  virtual void fill(const Tensor& out, double value) = 0;
  virtual void copy(const Tensor& from, const Tensor& to) = 0;

  // Inputs of any strides, already expanded to out's shape; out contiguous. Floating dtypes, all equal.
  virtual void unary(Unary f, UnaryAttributes p, const Tensor& x, const Tensor& y) = 0;
  virtual void unary_backward(Unary f, UnaryAttributes p, const Tensor& kept, const Tensor& dy, const Tensor& dx) = 0;  // dx = dy f'
  // dx = dy d(derivative)/d(kept): with derivative(kept) as the function, by evaluating it on Dual{kept, 1}.
  virtual void unary_second(Unary f, UnaryAttributes p, const Tensor& kept, const Tensor& dy, const Tensor& dx) = 0;
  virtual void binary(Binary f, const Tensor& a, const Tensor& b, const Tensor& y) = 0;
  // y = mask ? x : value; mask is bool, expanded to x's shape.
  virtual void keep(const Tensor& x, const Tensor& mask, double value, const Tensor& y) = 0;

  // out has x's rank, with extent 1 on the reduced axes. A fixed tree over fixed chunks.
  virtual void reduce(Reduction f, const Tensor& x, const Tensor& out) = 0;
  // Along the last axis of a contiguous x: index of the first maximum, i64.
  virtual void argmax(const Tensor& x, const Tensor& out) = 0;

  // out[..., m, n] = alpha a[..., m, k] b[..., k, n] (+ bias[n]); batches expanded alike; a and b of any strides; out contiguous.
  virtual void matmul(const Tensor& a, const Tensor& b, const Tensor* bias, double alpha, const Tensor& out) = 0;

  // Along the last axis, contiguous. mask (may be undefined): bool of any strides, expanded to x's shape; a masked entry gets 0 and a
  // fully masked row is all 0.
  virtual void softmax(const Tensor& x, const Tensor& mask, const Tensor& y) = 0;
  virtual void softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) = 0;  // dx = y (dy - sum y dy)

  // y = (x - mean) rstd weight + bias along the last axis, contiguous; mean and rstd are [rows], kept for backward.
  virtual void layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& y, const Tensor& mean,
                          const Tensor& rstd) = 0;
  virtual void layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd, const Tensor& dy,
                                   const Tensor& dx, const Tensor& dweight, const Tensor& dbias) = 0;

  // Running sums along the last axis, contiguous: y_j = sum_{l<=j} x_l, or sum_{l>=j} x_l when reverse.
  virtual void cumulative_sum(const Tensor& x, bool reverse, const Tensor& y) = 0;

  // into[index[i], :] += from[i, :], in order of i for each row. from [count, width], into [rows, width], index [count]; contiguous.
  virtual void scatter_add_rows(const Tensor& index, const Tensor& from, const Tensor& into) = 0;

  virtual void random_uniform(const Tensor& out, const Stream& stream, double low, double high) = 0;
  virtual void random_normal(const Tensor& out, const Stream& stream, double mean, double deviation) = 0;

  // In place on weight, first and second moment (f32 or f64, contiguous).
  virtual void adam(const AdamStep& step, const Tensor& gradient, const Tensor& weight, const Tensor& first, const Tensor& second) = 0;
};

// Bytes on a device.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* block, std::size_t bytes) noexcept = 0;
  virtual void copy_to_cpu(const void* from, void* to, std::size_t bytes) = 0;
  virtual void copy_from_cpu(const void* from, void* to, std::size_t bytes) = 0;
};

// What a device needs to take part: where cuda/ and tensor/ meet.
struct Backend {
  Kernels* kernels = nullptr;
  DeviceMemory* memory = nullptr;
};
Backend cuda_backend();  // defined in cuda/; empty in a build without CUDA
Kernels& cpu_kernels();

// Throw Error when this build has no such device.
Kernels& kernels(Device device);
DeviceMemory& memory_of(Device device);

}  // namespace whence
