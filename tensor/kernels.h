// The primitives that a device must provide, where a plain loop (tensor/launch.h) is not enough. Callers (tensor/raw.h)
// have checked shapes, dtypes and devices and made the outputs: kernels only compute. Every result is the same for any
// number of threads.
#pragma once

#include <span>

#include "tensor/pointwise.h"
#include "tensor/tensor.h"

namespace whence {

struct AdamEntry;
struct AdamStep;
struct Convolution;
struct IndexCheck;
struct Stream;

enum class Reduction : unsigned char { sum, maximum };

class Kernels {
 public:
  virtual ~Kernels() = default;

  // Any strides on both sides; dtypes may differ (one rounding).
  virtual void fill(const Tensor& out, double value) = 0;
  virtual void copy(const Tensor& from, const Tensor& to) = 0;

  // Inputs of any strides, already expanded to out's shape; out contiguous. Floating dtypes, all equal.
  virtual void unary(Unary f, UnaryAttributes p, const Tensor& x, const Tensor& y) = 0;
  virtual void unary_backward(Unary f, UnaryAttributes p, const Tensor& saved, const Tensor& dy,
      const Tensor& dx) = 0;  // dx = dy f'
  // dx = dy d(derivative)/d(saved): with derivative(saved) as the function, by evaluating it on Dual{saved, 1}.
  virtual void unary_second(Unary f, UnaryAttributes p, const Tensor& saved, const Tensor& dy, const Tensor& dx) = 0;
  virtual void binary(Binary f, const Tensor& a, const Tensor& b, const Tensor& y) = 0;
  // y = mask ? x : value; mask is bool, expanded to x's shape.
  virtual void masked(const Tensor& x, const Tensor& mask, double value, const Tensor& y) = 0;

  // out has x's rank, with extent 1 on the reduced axes. A fixed tree over fixed chunks.
  virtual void reduce(Reduction f, const Tensor& x, const Tensor& out) = 0;
  // Along the last axis of a contiguous x: index of the first maximum, i64.
  virtual void argmax(const Tensor& x, const Tensor& out) = 0;

  // out[..., m, n] = alpha a[..., m, k] b[..., k, n] (+ bias[n]); batches expanded alike; a and b of any strides; out
  // contiguous.
  virtual void matmul(const Tensor& a, const Tensor& b, const Tensor* bias, double alpha, const Tensor& out) = 0;
  // before = a b (+ bias), out = gelu(before), the tanh form. Here in two steps; a device may do it in one, and then
  // takes gelu of the sum before it is rounded to 16 bit.
  virtual void matmul_gelu(
      const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& before, const Tensor& out);

  // Along the last axis, contiguous. mask (may be undefined): bool of any strides, expanded to x's shape; a masked
  // entry gets 0 and a fully masked row is all 0.
  virtual void softmax(const Tensor& x, const Tensor& mask, const Tensor& y) = 0;
  virtual void softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) = 0;  // dx = y (dy - sum y dy)

  // y = (x - mean) rstd weight + bias along the last axis, contiguous; mean and rstd are [rows], saved for backward.
  virtual void layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& y,
      const Tensor& mean, const Tensor& rstd) = 0;
  virtual void layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
      const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias) = 0;

  // y = x rstd weight with rstd = 1 / sqrt(mean(x^2) + epsilon), likewise. Of backward's outputs those that are
  // undefined are not made.
  virtual void rms_norm(const Tensor& x, const Tensor& weight, double epsilon, const Tensor& y, const Tensor& rstd) = 0;
  virtual void rms_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& dy,
      const Tensor& dx, const Tensor& dweight) = 0;

  // Of each row of logits [rows..., v] (contiguous) and its target in [0, v), i64: norm = log sum_v e^{x_v} and loss =
  // norm - x_target, both [rows] in the compute type, 0 where the target is `ignored`. Backward: dx_v = dy share
  // (e^{x_v - norm} - [v = target]), 0 in ignored rows; dy has one element.
  virtual void cross_entropy(
      const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm, const Tensor& loss) = 0;
  virtual void cross_entropy_backward(const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm,
      const Tensor& dy, double share, const Tensor& dx) = 0;

  // Running sums along the last axis, contiguous: y_j = sum_{l<=j} x_l, or sum_{l>=j} x_l when reverse.
  virtual void cumulative_sum(const Tensor& x, bool reverse, const Tensor& y) = 0;

  // into[index[i], :] += from[i, :], in order of i for each row. from [count, width], into [rows, width], index
  // [count]; contiguous.
  virtual void scatter_add_rows(const Tensor& index, const Tensor& from, const Tensor& into) = 0;

  // ---- Reading and adding where numbers say. x, index, table, position and all outputs contiguous; index i64, already
  // checked.
  // An index whose numbers are all allowed, to be used in the others: on the CPU `index` itself, or an Error at once.
  // On a device 0 stands where a number is not allowed, and the Error comes with the next report_faults: nothing waits
  // for the device.
  virtual Tensor checked_index(const IndexCheck& check, const Tensor& index) = 0;
  // Error about a number that a device found and could not tell of before; called whenever numbers travel from it to
  // the CPU. If there are several, it is about any one of them.
  virtual void report_faults() {}
  // y[..., j, ...] = x[..., index[..., j, ...], ...] along `axis`, before which index may have extent 1 where x has
  // not.
  virtual void gather(const Tensor& x, const Tensor& index, int axis, const Tensor& y) = 0;
  // The adjoint: y[..., n, ...] = sum over j with index[..., j, ...] = n of x[..., j, ...], rounded once.
  virtual void sum_by_index(const Tensor& x, const Tensor& index, int axis, const Tensor& y) = 0;
  // y_j = (1-w) t[a] + w t[c] for p = position[..., j], held in [0, n-1]: a = floor(p), c = ceil(p), w = p - a. table
  // [... n].
  virtual void lerp_at(const Tensor& table, const Tensor& position, const Tensor& y) = 0;
  // dt[a] += (1-w) dy_j,  dt[c] += w dy_j,  dp_j = (t[c] - t[a]) dy_j
  virtual void lerp_at_backward(
      const Tensor& table, const Tensor& position, const Tensor& dy, const Tensor& dtable, const Tensor& dposition) = 0;

  // Rows along their keys (tensor/convolution.h), contiguous. With `adjoint` the kernel of the adjoint is worked out
  // from weight [o c 1 k] of the forward one: then at.outputs is its c, at.channels its o. bias may be undefined.
  virtual void convolve_keys(const Convolution& at, const Tensor& x, const Tensor& weight, bool adjoint,
      const Tensor& bias, const Tensor& y) = 0;
  virtual void convolve_keys_weight(
      const Convolution& at, const Tensor& x, const Tensor& dy, const Tensor& dweight) = 0;

  virtual void random_uniform(const Tensor& out, const Stream& stream, double low, double high) = 0;
  virtual void random_normal(const Tensor& out, const Stream& stream, double mean, double deviation) = 0;

  // One step for all entries, in place. With `controls` ([control_count] f64, on the entries' device) gradient scale,
  // shrink, rate and root are read from there and not from `step`. Error when a dtype is not one that AdamEntry allows.
  virtual void adam_all(const AdamStep& step, const Tensor& controls, std::span<const AdamEntry> entries) = 0;

  // total[0] = the sum of (x_i / unit)^2 over all elements of all x, summed in f64; infinite or NaN as soon as an
  // element is. x contiguous, of any dtypes from f16 to f64; total is [1] f64.
  virtual void sum_of_squares(std::span<const Tensor> x, double unit, const Tensor& total) = 0;
  // norm = sqrt(total) / loss_scale;  gradient_scale = min(1, max_norm / norm) / loss_scale, and NaN where the norm is
  // not finite.
  virtual void clip_scale(const Tensor& total, const Tensor& controls) = 0;
};

Kernels& cpu_kernels();
Kernels& kernels(Device device);  // Error when this build has no such device

}  // namespace whence
