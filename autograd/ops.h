// The differentiable functions, by family. Each has a file in autograd/ops/ with its equation, derivative and samples.
//
// Axis legend, the same in comments, errors and docs:
// b batch, t time, i query, j key, h head, d head dim, c channels, n table row, v vocabulary.
// All take floating tensors of one dtype and device, unless an argument is called index (i64 or i32) or mask (bool).
// Results are contiguous unless the function is called a view. Negative axes count from the end. Arguments that do not
// fit throw Error before anything runs. It names the call site, the op, what was given and what is required. One
// exception: an index out of range on a GPU throws when numbers are next read from that GPU.
#pragma once

#include <array>
#include <vector>

#include "tensor/pointwise.h"
#include "tensor/tensor.h"

namespace whence {

struct Steps;
struct Stream;

// ---- Functions of one number: formulas and derivatives in tensor/pointwise.h, recorded by ops/unary.cpp ----
[[nodiscard]] Tensor unary(Unary f, const Tensor& x, UnaryAttributes p = {}, Site site = Site::current());
// dy f'(x), where `saved` is x or y = f(x), whichever f saves (tensor/pointwise.h). For the backward of ops that
// contain f.
[[nodiscard]] Tensor unary_backward(
    Unary f, const Tensor& saved, const Tensor& dy, UnaryAttributes p = {}, Site site = Site::current());
[[nodiscard]] Tensor affine(
    const Tensor& x, double scale, double shift, Site site = Site::current());  // scale x + shift
[[nodiscard]] Tensor abs(const Tensor& x, Site site = Site::current());         // derivative at 0: 0
[[nodiscard]] Tensor exp(const Tensor& x, Site site = Site::current());
[[nodiscard]] Tensor log(const Tensor& x, Site site = Site::current());
[[nodiscard]] Tensor log1p(const Tensor& x, Site site = Site::current());  // log(1 + x)
[[nodiscard]] Tensor sqrt(const Tensor& x, Site site = Site::current());
[[nodiscard]] Tensor square(const Tensor& x, Site site = Site::current());
[[nodiscard]] Tensor reciprocal(const Tensor& x, Site site = Site::current());
[[nodiscard]] Tensor sin(const Tensor& x, Site site = Site::current());
[[nodiscard]] Tensor cos(const Tensor& x, Site site = Site::current());
[[nodiscard]] Tensor tanh(const Tensor& x, Site site = Site::current());
[[nodiscard]] Tensor sigmoid(const Tensor& x, Site site = Site::current());
// log(1 + e^x) without overflow; log sigmoid(x) = -softplus(-x)
[[nodiscard]] Tensor softplus(const Tensor& x, Site site = Site::current());
[[nodiscard]] Tensor silu(const Tensor& x, Site site = Site::current());  // x sigmoid(x)  (Elfwing et al. 2017)
[[nodiscard]] Tensor relu(const Tensor& x, Site site = Site::current());  // derivative at 0, and of NaN: 0
// derivative at 0, and of NaN: slope
[[nodiscard]] Tensor leaky_relu(const Tensor& x, double slope = 0.01, Site site = Site::current());
[[nodiscard]] Tensor gelu(const Tensor& x, Site site = Site::current());      // tanh form  (Hendrycks and Gimpel 2016)
[[nodiscard]] Tensor gelu_erf(const Tensor& x, Site site = Site::current());  // x Phi(x)  (the same)
// Limits x to [low, high]. The derivative is 1 at the bounds and for NaN, which stays NaN.
[[nodiscard]] Tensor clamp(const Tensor& x, double low, double high, Site site = Site::current());
[[nodiscard]] Tensor clamp_max(const Tensor& x, double high, Site site = Site::current());

// ---- Functions of two numbers, broadcasting as numpy does (ops/binary.cpp) ----
[[nodiscard]] Tensor add(const Tensor& a, const Tensor& b, Site site = Site::current());
[[nodiscard]] Tensor subtract(const Tensor& a, const Tensor& b, Site site = Site::current());
[[nodiscard]] Tensor multiply(const Tensor& a, const Tensor& b, Site site = Site::current());
[[nodiscard]] Tensor divide(const Tensor& a, const Tensor& b, Site site = Site::current());
// Divides by a number, rounded to the tensor's dtype: equal to division by a tensor full of it, without its memory.
[[nodiscard]] Tensor divide(const Tensor& a, double b, Site site = Site::current());
[[nodiscard]] Tensor divide(double a, const Tensor& b, Site site = Site::current());
// NaN if either is. If a and b are equal, or one is NaN, each gets half the gradient.
[[nodiscard]] Tensor maximum(const Tensor& a, const Tensor& b, Site site = Site::current());
[[nodiscard]] Tensor minimum(const Tensor& a, const Tensor& b, Site site = Site::current());
// An operator has no parameter for the call site, so its operand carries the site from its conversion.
struct Sited {
  Sited(const Tensor& tensor, Site here = Site::current()) : x(tensor), site(here) {}
  const Tensor& x;
  Site site;
};
[[nodiscard]] inline Tensor operator+(Sited a, const Tensor& b) { return add(a.x, b, a.site); }
[[nodiscard]] inline Tensor operator-(Sited a, const Tensor& b) { return subtract(a.x, b, a.site); }
[[nodiscard]] inline Tensor operator*(Sited a, const Tensor& b) { return multiply(a.x, b, a.site); }
[[nodiscard]] inline Tensor operator/(Sited a, const Tensor& b) { return divide(a.x, b, a.site); }
[[nodiscard]] inline Tensor operator-(Sited a) { return affine(a.x, -1, 0, a.site); }
[[nodiscard]] inline Tensor operator*(Sited a, double scale) { return affine(a.x, scale, 0, a.site); }
[[nodiscard]] inline Tensor operator*(double scale, Sited a) { return affine(a.x, scale, 0, a.site); }
[[nodiscard]] inline Tensor operator+(Sited a, double shift) { return affine(a.x, 1, shift, a.site); }
[[nodiscard]] inline Tensor operator+(double shift, Sited a) { return affine(a.x, 1, shift, a.site); }
[[nodiscard]] inline Tensor operator-(Sited a, double shift) { return affine(a.x, 1, -shift, a.site); }
[[nodiscard]] inline Tensor operator-(double shift, Sited a) { return affine(a.x, -1, shift, a.site); }
[[nodiscard]] inline Tensor operator/(Sited a, double b) { return divide(a.x, b, a.site); }
[[nodiscard]] inline Tensor operator/(double a, Sited b) { return divide(a, b.x, b.site); }

// ---- Shapes (ops/views.cpp, ops/cast.cpp, ops/concat.cpp). Views share storage with x ----
// A view if the strides allow it, else a copy; one extent may be -1.
[[nodiscard]] Tensor reshape(const Tensor& x, const Shape& shape, Site site = Site::current());
// Axis k of the result is axis axes[k] of x.
[[nodiscard]] Tensor permute(const Tensor& x, const std::vector<int>& axes, Site site = Site::current());
[[nodiscard]] Tensor transpose(const Tensor& x, int axis_a = -2, int axis_b = -1, Site site = Site::current());
// Elements begin, begin + step, ... below end; 0 <= begin <= end <= extent, step >= 1. select removes the axis.
[[nodiscard]] Tensor slice(
    const Tensor& x, int axis, index_t begin, index_t end, index_t step = 1, Site site = Site::current());
[[nodiscard]] Tensor select(const Tensor& x, int axis, index_t index, Site site = Site::current());
// unsqueeze: a new axis of extent 1, axis in [-rank-1, rank]. expand stretches extents of 1 and adds leading axes.
[[nodiscard]] Tensor unsqueeze(const Tensor& x, int axis, Site site = Site::current());
[[nodiscard]] Tensor expand(const Tensor& x, const Shape& shape, Site site = Site::current());
// These copy, except that an x that is already contiguous, or already of this dtype, is returned itself.
[[nodiscard]] Tensor contiguous(const Tensor& x, Site site = Site::current());
[[nodiscard]] Tensor cast(const Tensor& x, DType dtype, Site site = Site::current());  // any dtypes; dx in x's dtype
// The parts in order along `axis`. Their other extents are equal.
[[nodiscard]] Tensor concat_along(int axis, const std::vector<Tensor>& parts, Site site = Site::current());

// ---- Reductions and scans (ops/reduce.cpp, ops/cumulative_sum.cpp). Without axes: over all axes ----
// In x's dtype; a 16-bit x is accumulated in f32. keep_axes: reduced axes stay, with extent 1.
[[nodiscard]] Tensor sum(
    const Tensor& x, const std::vector<int>& axes = {}, bool keep_axes = false, Site site = Site::current());
// Error for the mean of no elements.
[[nodiscard]] Tensor mean(
    const Tensor& x, const std::vector<int>& axes = {}, bool keep_axes = false, Site site = Site::current());
// Removes the axis. The first of equal maxima gets the gradient. NaN counts as the largest: the first NaN is the
// maximum.
[[nodiscard]] Tensor maximum_along(const Tensor& x, int axis, Site site = Site::current());
// The adjoint of broadcasting: sums x to a shape that expands to x's.
[[nodiscard]] Tensor sum_to(const Tensor& x, const Shape& shape, Site site = Site::current());
// y_j = sum_{l <= j} x_l, and y_j = sum_{l >= j} x_l. wide: the sums of a 16-bit x stay in f32; dx in x's dtype.
[[nodiscard]] Tensor cumulative_sum(const Tensor& x, int axis = -1, Site site = Site::current());
[[nodiscard]] Tensor reverse_cumulative_sum(
    const Tensor& x, int axis = -1, bool wide = false, Site site = Site::current());

// ---- Products (ops/matmul.cpp, ops/linear.cpp, ops/convolve_keys.cpp) ----
// [..., m, k] [..., k, n] -> [..., m, n], times scale; leading axes broadcast.
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b, double scale = 1, Site site = Site::current());
// x [..., in], weight [out, in], bias [out] or undefined -> x weight' + bias, [..., out]. On a GPU, a 16-bit result with
// 128 columns or more, not a multiple of 8, is not contiguous: its rows begin a multiple of 128 numbers apart.
[[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Site site = Site::current());

// Convolves every row of x [b c i j] along the keys, with heads as channels.  (DAPE V2, Zheng et al. 2024)
//   y[b,o,i,j] = bias[o] + sum_c sum_t weight[o,c,0,t] x[b,c,i,j+t-left]        x is zero outside
// weight [o c 1 k], bias [o] or undefined. y has j + left + right - (k - 1) keys. Negative left or right crop. k = 1 is
// a linear layer over the heads (DAPE).
[[nodiscard]] Tensor convolve_keys(const Tensor& x, const Tensor& weight, const Tensor& bias, index_t left,
    index_t right, Site site = Site::current());

// ---- Indexing (ops/gather.cpp, ops/take_rows.cpp, ops/by_distance.cpp, ops/lerp_at.cpp) ----
// y[..., j, ...] = x[..., index[..., j, ...], ...] along axis. index has x's rank, and x's extents on the other axes.
// An axis before `axis` may have extent 1; then all lines of x share the index.
[[nodiscard]] Tensor gather(const Tensor& x, int axis, const Tensor& index, Site site = Site::current());
// y[..., n] = sum over j with index[..., j] = n of x[..., j], n in [0, rows): the adjoint of gather along the last
// axis. index has x's shape, or 1 on axes before the last.
[[nodiscard]] Tensor sum_by_index(const Tensor& x, const Tensor& index, index_t rows, Site site = Site::current());
// table [rows, c], index [...] -> [..., c]. The Error names the first index outside [0, rows).
[[nodiscard]] Tensor take_rows(const Tensor& table, const Tensor& index, Site site = Site::current());
// table [h n], steps of the pairs (b, i, j) -> [1|b h i j]: each pair reads the entry of its distance. Any dtype.
[[nodiscard]] Tensor by_distance(const Tensor& table, const Steps& steps, Site site = Site::current());
// Reads each row of a table at real-valued indices, linear between integers. table [..., n], position [..., m]
// in [0, n-1] -> [..., m], in the table's dtype; position may be f32 with a 16-bit table. At an integer, floor and
// ceiling are the same row, so the derivative with respect to position is exactly 0, as in CoPE's Listing 1.
[[nodiscard]] Tensor lerp_at(const Tensor& table, const Tensor& position, Site site = Site::current());

// ---- Along the last axis (ops/softmax.cpp, ops/norm.cpp, ops/rotary.cpp) ----
// e^{x_j} / sum_l e^{x_l}. mask (may be undefined) broadcasts to x. Masked entries are 0; so is a row in which all
// entries are masked.
[[nodiscard]] Tensor softmax(const Tensor& x, const Tensor& mask = {}, Site site = Site::current());
// (x - mean) / sqrt(variance + epsilon) * weight + bias; weight and bias [c].  (Ba et al. 2016)
[[nodiscard]] Tensor layer_norm(
    const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon = 1e-5, Site site = Site::current());
// x / sqrt(mean(x^2) + epsilon) * weight; weight [c].  (Zhang and Sennrich 2019)
[[nodiscard]] Tensor rms_norm(
    const Tensor& x, const Tensor& weight, double epsilon = 1e-6, Site site = Site::current());
struct SumAndNorm {
  Tensor sum, normed;
};
// sum = x + added, of equal shapes; normed = layer_norm(sum, weight, bias, epsilon), or, with an undefined bias,
// rms_norm(sum, weight, epsilon).
[[nodiscard]] SumAndNorm add_norm(const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias,
    double epsilon, Site site = Site::current());
// Rotates pairs of x [... t d] by angles [... t m], broadcast over leading axes, 2m <= d; dims from 2m on are
// unchanged. Angles have x's dtype, or f64, so that large positions keep their phase. Pairs (k, k + m), or interleaved
// (2k, 2k + 1). (RoPE, Su et al. 2021)
[[nodiscard]] Tensor rotary(
    const Tensor& x, const Tensor& angles, bool interleaved = false, Site site = Site::current());

// ---- Choices among elements (ops/masked.cpp, ops/dropout.cpp, ops/straight_through.cpp) ----
// mask ? x : value. mask broadcasts to x.
[[nodiscard]] Tensor masked(const Tensor& x, const Tensor& mask, double value = 0, Site site = Site::current());
// The place of a strip x [... i j] in a larger tensor [... rows columns]: rows [first_row, first_row + i), columns
// [first_column, first_column + j). rows = 0: x is the whole tensor.
struct StripOf {
  index_t first_row = 0, rows = 0, columns = 0, first_column = 0;
};
// Each element is 0 with probability p, else x / (1 - p). The choice depends on stream and index, and backward draws it
// again. A strip drops the same elements as the whole tensor would. p in [0, 1).  (Srivastava et al. 2014) Error while
// work is being recorded, because each replay would drop the same elements.
[[nodiscard]] Tensor dropout(
    const Tensor& x, double probability, const Stream& stream, const StripOf& whole = {}, Site site = Site::current());
// The value of `value` (and its storage, if contiguous) with the gradient of x: dx = dy, and `value` gets no gradient.
// Equal shapes.  (Bengio et al. 2013)
[[nodiscard]] Tensor straight_through(const Tensor& value, const Tensor& x, Site site = Site::current());

// ---- Losses (ops/cross_entropy.cpp) ----
// logits [..., v], target [...] (index, on the logits' device or on the CPU) -> scalar: the mean of -log
// softmax(logits)[target] over targets that are not `ignored`; 0 if all are. The loss of 16-bit logits is f32. Shapes
// must agree exactly: losses never broadcast. Error for a target that is neither in [0, v) nor a negative `ignored`.
[[nodiscard]] Tensor cross_entropy(
    const Tensor& logits, const Tensor& target, index_t ignored = -1, Site site = Site::current());
// The sum instead of the mean. On a GPU nothing waits for the targets, so it can be recorded
// (tensor/device/device_runtime.h) before they are known.
[[nodiscard]] Tensor cross_entropy_sum(
    const Tensor& logits, const Tensor& target, index_t ignored = -1, Site site = Site::current());

// ---- Fused: a GPU runs in fewer kernels what layers compute by several ops (nn/layers/layers.h, nn/attention/attention.h) ----

// linear(gelu(linear(x, weight_in, bias_in)), weight_out, bias_out): x [... in], weight_in [m in], weight_out [out m],
// bias_in [m], bias_out [out], which may be undefined -> [... out].
[[nodiscard]] Tensor linear_gelu_linear(const Tensor& x, const Tensor& weight_in, const Tensor& bias_in,
    const Tensor& weight_out, const Tensor& bias_out, Site site = Site::current());

struct Projection {
  Tensor weight, bias;  // [h d, c], [h d] or undefined
};
// Returns linear(x, weight, bias) for each of the three projections (biases: all or none) of x [b t c], computed as one
// product. The results are its heads, as views [b h t d]. Key and value may have fewer heads: a divisor of the query's
// number.
[[nodiscard]] std::array<Tensor, 3> project_heads(const Tensor& x, const Projection& query, const Projection& key,
    const Projection& value, index_t heads, Site site = Site::current());

}  // namespace whence
