// The kernels of a device. Their bodies in tensor/kernels/ are the CPU's, for any dtype, duals included; a device whose
// memory is not the CPU's overrides all. Those of GPUs alone are in tensor/device/gpu_kernels.h.
// Callers are raw.h, the ops in autograd/ops/, optimiser and initialisation. They have checked shapes, dtypes and
// devices and made the outputs: kernels only compute. Every result is the same for any number of threads. An override
// may rely on the layouts stated below.
#pragma once

#include <span>

#include "tensor/error.h"
#include "tensor/pointwise.h"
#include "tensor/tensor.h"

namespace whence {

struct AdamEntry;
struct AdamStep;
struct Convolution;
struct Band;
struct Steps;
struct Stream;

// A range that indices must be in, and the Error about an index outside it.
struct IndexCheck {
  const char* op;
  const char* argument;
  index_t count;  // allowed: [0, count),
  index_t also;   // or this number, if it is negative

  WHENCE_HD bool allows(index_t value) const { return (value >= 0 && value < count) || (also < 0 && value == also); }
};

// Throws "take_rows: index at [1,0] is 5; a value in [0, 5) required", for that element of an index of this shape.
[[noreturn]] void index_out_of_range(const IndexCheck& check, const Shape& shape, index_t element, index_t value);

enum class Reduction : unsigned char { sum, maximum };

// The first layer of a head mix's network, W1 [d c k], whose last channels read the base (nn/positional/adaptive.h).
struct MixNetwork {
  index_t left, right;   // taps on either side of a column's own
  index_t heads, pairs;  // channels that stay in the mix: those of the scores, and as many of the base if it has pieces
  bool adds_base;        // to the logits too
};

class Kernels {
 public:
  virtual ~Kernels() = default;

  // Any strides on both sides; dtypes may differ (one rounding).
  virtual void fill(const Tensor& out, double value);
  virtual void copy(const Tensor& from, const Tensor& to);
  // For each k copies from[k] into to[k]. Along `axis` (negative: from the last) the shorter tensor is rows row[0],
  // row[0] + 1, ... of the longer one; row is i64 [1] on the same device. REQUIRES: those rows exist
  virtual void copy_rows(std::span<const Tensor> from, std::span<const Tensor> to, int axis, const Tensor& row);

  // Inputs of any strides, already expanded to out's shape; out contiguous. Floating dtypes, all equal.
  virtual void unary(Unary f, UnaryAttributes p, const Tensor& x, const Tensor& y);
  // dx = dy f'(saved)
  virtual void unary_backward(Unary f, UnaryAttributes p, const Tensor& saved, const Tensor& dy, const Tensor& dx);
  // dx = dy d(f'(saved))/d(saved): the tangent of f' at Dual{saved, 1}.
  virtual void unary_second(Unary f, UnaryAttributes p, const Tensor& saved, const Tensor& dy, const Tensor& dx);
  virtual void binary(Binary f, const Tensor& a, const Tensor& b, const Tensor& y);
  // y = mask ? x : value; mask is bool, expanded to x's shape.
  virtual void masked(const Tensor& x, const Tensor& mask, double value, const Tensor& y);

  // Floating; out has x's rank, with extent 1 on the reduced axes. A fixed tree over fixed chunks.
  virtual void reduce(Reduction f, const Tensor& x, const Tensor& out);
  // Along the last axis of a contiguous x: index of the first maximum, i64.
  virtual void argmax(const Tensor& x, const Tensor& out);

  // out [... m n] = alpha a [... m k] b [... k n] (+ bias [n]); equal batches; a and b of any strides; out contiguous,
  // or as product_rows() makes it (tensor/device/product_layout.h).
  virtual void matmul(const Tensor& a, const Tensor& b, const Tensor* bias, double alpha, const Tensor& out);

  // Along the last axis, contiguous. mask (may be undefined): bool of any strides, expanded to x's shape; a masked
  // entry gets 0 and a fully masked row is all 0.
  virtual void softmax(const Tensor& x, const Tensor& mask, const Tensor& y);
  virtual void softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx);  // dx = y (dy - sum y dy)

  // Norms along the last axis, all contiguous.  y = (x - mean) rstd weight + bias,  rstd = 1 / sqrt(variance + epsilon);
  // where bias and mean are undefined, y = x rstd weight,  rstd = 1 / sqrt(mean(x^2) + epsilon). mean and rstd are
  // [rows], in the compute type. Where `added` is defined, sum = x + added is stored, and normed in place of x.
  virtual void norm(const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias, double epsilon,
      const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& rstd);
  // x: the tensor that was normed. dx = the gradient through the norm + dsum (may be undefined). Undefined outputs are
  // not computed.
  virtual void norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
      const Tensor& dsum, const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias);

  // Rows x of logits [... v] (contiguous, or as product_rows() makes them; dx has their strides), each with its target
  // in [0, v), i64:
  //   top = max_v x_v, total = sum_v e^{x_v - top}, loss = log(total) - (x_target - top)    loss is 0 in ignored rows
  //   dx_v = dy share (e^{x_v - top} / total - [v = target])                                0 in ignored rows
  // norm [rows, 2] (top, total) and loss [rows] have the compute type. top + log(total), one number, would be rounded to
  // the digits of top.
  // dy has one element, in the compute type; dx may be the logits.
  virtual void cross_entropy(
      const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm, const Tensor& loss);
  virtual void cross_entropy_backward(const Tensor& logits, const Tensor& target, index_t ignored, const Tensor& norm,
      const Tensor& dy, double share, const Tensor& dx);

  // Running sums along the last axis, contiguous: y_j = sum_{l<=j} x_l, or sum_{l>=j} x_l when reverse. x or y may be
  // f32 while the other is of 16 bits.
  virtual void cumulative_sum(const Tensor& x, bool reverse, const Tensor& y);

  // into[index[i], :] += from[i, :], in order of i. index [count], from [count, width], into [rows, width]; contiguous.
  virtual void scatter_add_rows(const Tensor& index, const Tensor& from, const Tensor& into);

  // ---- Reading and adding at indices and positions. All arguments contiguous; index i64, from checked_index.
  // y[..., j, ...] = x[..., index[..., j, ...], ...] along `axis`. Before that axis, index may have extent 1 where x
  // does not.
  virtual void gather(const Tensor& x, const Tensor& index, int axis, const Tensor& y);
  // The adjoint: y[..., n, ...] = sum over j with index[..., j, ...] = n of x[..., j, ...], rounded once.
  virtual void sum_by_index(const Tensor& x, const Tensor& index, int axis, const Tensor& y);
  // y_j = (1-w) t[a] + w t[c] for p_j in position [... m], t a row of table [... n]; a, c and w as in tensor/lookup.h.
  // position and dposition may be f32 where the others are of 16 bits.
  virtual void lerp_at(const Tensor& table, const Tensor& position, const Tensor& y);
  // dt[a] += (1-w) dy_j,  dt[c] += w dy_j,  dp_j = (t[c] - t[a]) dy_j
  virtual void lerp_at_backward(
      const Tensor& table, const Tensor& position, const Tensor& dy, const Tensor& dtable, const Tensor& dposition);

  // ---- Values of query-key pairs, read from one row each (tensor/pairs.h). All arguments contiguous.
  virtual void read_by_distance(const Steps& steps, const Tensor& table, const Tensor& y);
  // The adjoint: dtable[h, n] = the sum of dy over all pairs of that step, rounded once
  virtual void sum_by_distance(const Steps& steps, const Tensor& dy, const Tensor& dtable);
  // mask[b, 0, i, j], bool: true if key j is in the band of query i and present[b, 0, 0, j] (may be undefined)
  virtual void band_mask(const Band& band, const Tensor& present, const Tensor& mask);

  // Convolves rows along their keys (tensor/convolution.h): x [b c i j] -> y [b o i j'], contiguous; bias [o] may be
  // undefined. `adjoint`: the adjoint of the convolution by weight [o c 1 k]; at.outputs is the weight's c, at.channels
  // its o.
  virtual void convolve_keys(
      const Convolution& at, const Tensor& x, const Tensor& weight, bool adjoint, const Tensor& bias, const Tensor& y);
  virtual void convolve_keys_weight(const Convolution& at, const Tensor& x, const Tensor& dy, const Tensor& dweight);

  // out floating and contiguous: element i is number i of the stream, on [low, high) or N(mean, deviation^2).
  virtual void random_uniform(const Tensor& out, const Stream& stream, double low, double high);
  virtual void random_normal(const Tensor& out, const Stream& stream, double mean, double deviation);

  // One optimiser step for all entries, in place. controls: undefined, or [control_count] f64 on the entries' device,
  // which then replaces gradient scale, shrink, rate and root. Throws Error if AdamEntry does not allow a dtype.
  virtual void adam_all(const AdamStep& step, const Tensor& controls, std::span<const AdamEntry> entries);

  // total[0] = the sum of (x_i / unit)^2 over all elements of all x, summed in f64; infinite or NaN if an element is. x
  // contiguous, of any dtypes from f16 to f64; total is [1] f64.
  virtual void sum_of_squares(std::span<const Tensor> x, double unit, const Tensor& total);
  // Writes controls: norm = sqrt(total) / loss_scale, gradient_scale = min(1, max_norm / norm) / loss_scale, or NaN if
  // the norm is not finite.
  virtual void clip_scale(const Tensor& total, const Tensor& controls);

  // Fused kernels, whose bodies here run their parts one after another.

  // Copies from[k] into to[k], for each k.
  virtual void copy_all(std::span<const Tensor> from, std::span<const Tensor> to);

  // out [b h t d] = a [b t, k] b [k, h d] (+ bias [h d]) for each matrix b; all or none have a bias. row (may be
  // undefined): i64 [1]; an out of more than these t tokens gets them from that token on. Returns false, with nothing
  // done, if concatenating the matrices and multiplying once is as fast.
  virtual bool matmul_beside(const Tensor& a, std::span<const Tensor> b, std::span<const Tensor> bias,
      std::span<const Tensor> out, const Tensor& row);
  // before [m n] = a [m k] b [k n] (+ bias [n]), out [m n] = gelu(before), the tanh form. A fused implementation (a
  // GPU's, in 16 bit alone) applies gelu to the sum before rounding it.
  virtual void matmul_gelu(
      const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor& before, const Tensor& out);
  // out [m n] = (a [m k] b [k n]) gelu'(before [m n]), sums [n] = the sums of out's columns (may be undefined)
  virtual void matmul_gelu_backward(
      const Tensor& a, const Tensor& b, const Tensor& before, const Tensor& out, const Tensor& sums);

  // ---- Terms by distance that are one launch on a device with makes_terms(); others compose them. Contiguous.
  virtual bool makes_terms() const { return false; }
  // table[h n] = -strength_h f(rate_h, n):  f = ln(1 + rate n), or n^rate if `power`, at distances [n], f64 if the table
  // is, else f32. d: the gradients of strength and rate, by dtable.
  virtual void kerple(
      bool power, const Tensor& distances, const Tensor& strength, const Tensor& rate, const Tensor& table);
  virtual void kerple_backward(bool power, const Tensor& distances, const Tensor& strength, const Tensor& rate,
      const Tensor& dtable, const Tensor& d_strength, const Tensor& d_rate);
  // Operands of a head mix (tensor/tiled_call.h) of a base's table [h n] (may be undefined), W1, b1 [d] and b2 [h]:
  //   pairs: W1 of the channels that stay,  u[e d m] = b1_d + sum_{h,t >= left - e} W1[d h t] table[h, m - right - t + left]
  //   added[h n] = b2_h + table[h n] if adds_base.  u and added have the type of sums, that of a model in `dtype`
  virtual void mix_terms(const MixNetwork& at, DType dtype, const Tensor& table, const Tensor& input,
      const Tensor& bias, const Tensor& output_bias, const Tensor& pairs, const Tensor& u, const Tensor& added);
  // Undefined gradients of results are 0, and undefined outputs are not computed.
  virtual void mix_terms_backward(const MixNetwork& at, DType dtype, const Tensor& table, const Tensor& input,
      const Tensor& d_pairs, const Tensor& du, const Tensor& d_added, const Tensor& d_table, const Tensor& d_input,
      const Tensor& d_bias, const Tensor& d_output_bias);

  // Returns a contiguous i64 index of allowed numbers. On the CPU that is `index` itself, or an Error at once. A device
  // does not wait: it writes 0 for a number that is not allowed, and report_faults throws the Error later.
  virtual Tensor checked_index(const IndexCheck& check, const Tensor& index);
  // Throws the Error about an index that the device found not allowed; any one of several. Called at every copy of
  // numbers from the device to the CPU.
  virtual void report_faults() {}

  // out [m n] = a [m k] b [k n], contiguous, sums [m] = the sums of a's rows: the gradients of a layer's weight and bias.
  virtual void matmul_row_sums(const Tensor& a, const Tensor& b, const Tensor& out, const Tensor& sums);

  // ---- The layouts that a device prefers for products. The CPU has no preference.
  // Returns a new matrix [rows, width] with x's dtype and device, numbers unspecified. It is contiguous, or a view of
  // wider rows. Then the kernel that writes it, a product or cross-entropy's backward, writes zeros between its rows.
  virtual Tensor product_rows(const Tensor& x, index_t rows, index_t width) { return Tensor::like(x, {rows, width}); }
  // True for a transposed view whose gradient should be made with the strides of x, so that nothing is copied.
  virtual bool is_transposed_view(const Tensor&) { return false; }
  // True if each product would copy these matrices first.
  virtual bool is_copied_by_products(const Tensor&) { return false; }
};

Kernels& kernels(Device device);    // throws Error if this build has no such device
Kernels& kernels(const Tensor& x);  // of x's device and dtype

}  // namespace whence
