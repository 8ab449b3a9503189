// The primitives that a device must provide, where a plain loop (tensor/launch.h) is not enough. Callers (tensor/raw.h) have checked
// shapes, dtypes and devices and made the outputs: kernels only compute. Every result is the same for any number of threads.
#pragma once

#include <array>
#include <span>

#include "tensor/pointwise.h"
#include "tensor/tensor.h"

struct CUstream_st;

namespace whence {

class Allocator;
class DeviceRuntime;
struct Convolution;
struct IndexCheck;
struct Stream;

enum class Reduction : unsigned char { sum, maximum };

// One optimiser step. The decays apply to the entries that decay.
struct AdamStep {
  double learning_rate, beta1, beta2, epsilon;
  double decoupled_decay;  // AdamW: w -= learning_rate * decay * w
  double coupled_decay;    // Adam with L2: the gradient gains decay * w
  double gradient_scale;   // clipping: every gradient is multiplied by this first
  index_t step;            // 1 for the first step: bias corrections are 1 - beta^step
};

// What changes from one optimiser step to the next, as f64 numbers in the device's memory: the launches of a step can be captured in a
// graph and replayed with new numbers. shrink, rate and root are worked out on the CPU (step_controls) so that all devices have the same.
enum class Control : unsigned char {
  gradient_scale,  // every gradient is multiplied by this first; not finite: the step changes nothing
  shrink,          // 1 - learning_rate * decoupled_decay
  rate,            // learning_rate / (1 - beta1^step)
  root,            // sqrt(1 - beta2^step)
  loss_scale,      // the gradients are those of the loss times this
  max_norm,        // gradients are clipped to it; infinity clips nothing
  norm             // of all gradients, divided by the loss scale; clip_scale writes it
};
inline constexpr index_t control_count = 7;
// In the order of Control; norm is NaN until clip_scale writes it.
std::array<double, control_count> step_controls(const AdamStep& step, double max_norm, double loss_scale);

// One parameter of a step: contiguous, of equal extents.
struct AdamEntry {
  Tensor gradient;               // f16, bf16 or f32; f64 where the weight is
  Tensor weight, first, second;  // f32 or f64; written in place
  Tensor shadow;                 // undefined, or f16 or bf16: the f32 weight, rounded, written by the same step
  bool decays;
};

// f(Type<G>{}, Type<T>{}) with the types of the entry's gradient and weight. Error when they are not those that AdamEntry allows.
template <class F>
void visit_adam_entry(const AdamEntry& entry, F&& f) {
  const DType weight = entry.weight.dtype(), gradient = entry.gradient.dtype();
  if (entry.shadow.defined() && (weight != DType::f32 || size_of(entry.shadow.dtype()) != 2)) {
    wrong_dtype("adam", entry.shadow.dtype(), "f16 or bf16 as the shadow of an f32 weight");
  }
  if (weight == DType::f64 && gradient == DType::f64) return f(Type<double>{}, Type<double>{});
  if (weight != DType::f32) wrong_dtype("adam", weight, "an f32 weight, or an f64 weight with an f64 gradient");
  if (gradient == DType::f32) return f(Type<float>{}, Type<float>{});
  if (gradient == DType::f16) return f(Type<Float16>{}, Type<float>{});
  if (gradient == DType::bf16) return f(Type<BFloat16>{}, Type<float>{});
  wrong_dtype("adam", gradient, "a gradient in f16, bf16 or f32");
}

// controls[norm] and controls[gradient_scale] from the norm of all gradients as they are. A norm that is not finite makes the scale NaN.
WHENCE_HD inline void clip_to_norm(double given, double* controls) {
  const double loss_scale = controls[static_cast<int>(Control::loss_scale)], largest = controls[static_cast<int>(Control::max_norm)];
  const double norm = given / loss_scale, clip = norm > largest ? largest / norm : 1.0;
  controls[static_cast<int>(Control::norm)] = norm;
  controls[static_cast<int>(Control::gradient_scale)] = clip / loss_scale + (norm - norm);  // the last is 0, or NaN
}

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
  // before = a b (+ bias), out = gelu(before), the tanh form. Here in two steps; a device may do it in one, and then takes gelu of the sum
  // before it is rounded to 16 bit.
  virtual void matmul_gelu(const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& before, const Tensor& out);

  // Along the last axis, contiguous. mask (may be undefined): bool of any strides, expanded to x's shape; a masked entry gets 0 and a
  // fully masked row is all 0.
  virtual void softmax(const Tensor& x, const Tensor& mask, const Tensor& y) = 0;
  virtual void softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) = 0;  // dx = y (dy - sum y dy)

  // y = (x - mean) rstd weight + bias along the last axis, contiguous; mean and rstd are [rows], kept for backward.
  virtual void layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& y, const Tensor& mean,
                          const Tensor& rstd) = 0;
  virtual void layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd, const Tensor& dy,
                                   const Tensor& dx, const Tensor& dweight, const Tensor& dbias) = 0;

  // y = x rstd weight with rstd = 1 / sqrt(mean(x^2) + epsilon), likewise. Of backward's outputs those that are undefined are not made.
  virtual void rms_norm(const Tensor& x, const Tensor& weight, double epsilon, const Tensor& y, const Tensor& rstd) = 0;
  virtual void rms_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& dy, const Tensor& dx,
                                 const Tensor& dweight) = 0;

  // Of each row of logits [rows..., v] (contiguous) and its target in [0, v), i64: norm = log sum_v e^{x_v} and loss = norm - x_target,
  // both [rows] in the compute type, 0 where the target is `ignored`. Backward: dx_v = dy share (e^{x_v - norm} - [v = target]), 0 in
  // ignored rows; dy has one element.
  virtual void cross_entropy(const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm, const Tensor& loss) = 0;
  virtual void cross_entropy_backward(const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm, const Tensor& dy,
                                      double share, const Tensor& dx) = 0;

  // Running sums along the last axis, contiguous: y_j = sum_{l<=j} x_l, or sum_{l>=j} x_l when reverse.
  virtual void cumulative_sum(const Tensor& x, bool reverse, const Tensor& y) = 0;

  // into[index[i], :] += from[i, :], in order of i for each row. from [count, width], into [rows, width], index [count]; contiguous.
  virtual void scatter_add_rows(const Tensor& index, const Tensor& from, const Tensor& into) = 0;

  // ---- Reading and adding where numbers say. x, index, table, position and all outputs contiguous; index i64, already checked.
  // An index whose numbers are all allowed, to be used in the others: on the CPU `index` itself, or an Error at once. On a device 0 stands
  // where a number is not allowed, and the Error comes with the next report_faults: nothing waits for the device.
  virtual Tensor checked_index(const IndexCheck& check, const Tensor& index) = 0;
  // Error about a number that a device found and could not tell of before; called whenever numbers travel from it to the CPU. If there are
  // several, it is about any one of them.
  virtual void report_faults() {}
  // y[..., j, ...] = x[..., index[..., j, ...], ...] along `axis`, before which index may have extent 1 where x has not.
  virtual void gather(const Tensor& x, const Tensor& index, int axis, const Tensor& y) = 0;
  // The adjoint: y[..., n, ...] = sum over j with index[..., j, ...] = n of x[..., j, ...], rounded once.
  virtual void sum_by_index(const Tensor& x, const Tensor& index, int axis, const Tensor& y) = 0;
  // y_j = (1-w) t[a] + w t[c] for p = position[..., j], held in [0, n-1]: a = floor(p), c = ceil(p), w = p - a. table [... n].
  virtual void lerp_at(const Tensor& table, const Tensor& position, const Tensor& y) = 0;
  // dt[a] += (1-w) dy_j,  dt[c] += w dy_j,  dp_j = (t[c] - t[a]) dy_j
  virtual void lerp_at_backward(const Tensor& table, const Tensor& position, const Tensor& dy, const Tensor& dtable,
                                const Tensor& dposition) = 0;

  // Rows along their keys (tensor/convolution.h), contiguous. With `adjoint` the kernel of the adjoint is worked out from weight [o c 1 k]
  // of the forward one: then at.outputs is its c, at.channels its o. bias may be undefined.
  virtual void convolve_keys(const Convolution& at, const Tensor& x, const Tensor& weight, bool adjoint, const Tensor& bias,
                             const Tensor& y) = 0;
  virtual void convolve_keys_weight(const Convolution& at, const Tensor& x, const Tensor& dy, const Tensor& dweight) = 0;

  virtual void random_uniform(const Tensor& out, const Stream& stream, double low, double high) = 0;
  virtual void random_normal(const Tensor& out, const Stream& stream, double mean, double deviation) = 0;

  // One step for all entries, in place. With `controls` ([control_count] f64, on the entries' device) gradient scale, shrink, rate and root
  // are read from there and not from `step`. Error when a dtype is not one that AdamEntry allows.
  virtual void adam_all(const AdamStep& step, const Tensor& controls, std::span<const AdamEntry> entries) = 0;
  // The same for one parameter that decays.
  void adam(const AdamStep& step, const Tensor& gradient, const Tensor& weight, const Tensor& first, const Tensor& second) {
    const AdamEntry entry{gradient, weight, first, second, {}, true};
    adam_all(step, {}, {&entry, 1});
  }

  // total[0] = the sum of (x_i / unit)^2 over all elements of all x, summed in f64; infinite or NaN as soon as an element is. x contiguous,
  // of any dtypes from f16 to f64; total is [1] f64.
  virtual void sum_of_squares(std::span<const Tensor> x, double unit, const Tensor& total) = 0;
  // norm = sqrt(total) / loss_scale;  gradient_scale = min(1, max_norm / norm) / loss_scale, and NaN where the norm is not finite.
  virtual void clip_scale(const Tensor& total, const Tensor& controls) = 0;
};

// Bytes on a device.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* block, std::size_t bytes) noexcept = 0;
  virtual void copy_to_cpu(const void* from, void* to, std::size_t bytes) = 0;    // waits for what was launched before
  virtual void copy_from_cpu(const void* from, void* to, std::size_t bytes) = 0;  // `from` may change afterwards
  virtual Allocator& allocator() = 0;
};

// The body of an index-style op (tensor/launch.h) without its type.
struct IndexBody {
  const void* body;  // `bytes` of it, trivially copyable
  std::size_t bytes;
  void (*call)(const void* body, index_t i);
};

// How index-style ops start on a device.
class IndexLauncher {
 public:
  virtual ~IndexLauncher() = default;
  // For ops that nvcc compiled: the stream to launch on, and what to call after it.
  virtual CUstream_st* stream() = 0;
  virtual void launched(const char* op, index_t blocks, int threads) = 0;
  // For ops compiled for the host alone: body(i) for every i in [0, count). Error where the device cannot run host code.
  virtual void run(const char* op, index_t count, const IndexBody& body) = 0;
};

// What a device needs to take part: where cuda/ and tensor/ meet.
struct Backend {
  Kernels* kernels = nullptr;
  DeviceMemory* memory = nullptr;
  DeviceRuntime* runtime = nullptr;  // tensor/device_runtime.h
  IndexLauncher* launcher = nullptr;
};
Backend cuda_backend();           // defined in cuda/; empty in a build without CUDA; Error where no GPU can be used
const DeviceFacts& cuda_facts();  // defined in cuda/; never an Error
Kernels& cpu_kernels();

// Throw Error when this build has no such device.
Kernels& kernels(Device device);
DeviceMemory& memory_of(Device device);
DeviceRuntime& runtime_of(Device device);
IndexLauncher& launcher_of(const char* op, Device device);

}  // namespace whence
