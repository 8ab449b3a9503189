// Tiled attention and the head mix on the CPU: the choice of instruction set, and the distribution of work. How the
// work is cut changes no bits: partial sums are added in their order.
#pragma once

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "tensor/cpu/instruction_set.h"
#include "tensor/cpu/threads.h"
#include "tensor/cpu/tiles/problem.h"
#include "tensor/pairs.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"
#include "tensor/tiled_call.h"
#include "tensor/tiles/operands.h"

namespace whence::tiles {

InstructionSet chosen_set();
// Returns nothing if this program was built without that set. T: float or double; of_dual is for dual numbers.
template <class T> std::optional<Functions<T>> functions_of(InstructionSet set);

// Calls f(Functions<T>) with T the output's type.
template <class F> void visit_functions(const char* op, const Tensor& output, const F& f) {
  if (output.device().is_gpu())
    fail(op, to_string(output.device()), " given; tiles are computed on the cpu; use another executor");
  switch (output.dtype()) {
    case DType::f32: return f(functions_of<float>(chosen_set()).value());
    case DType::f64: return f(functions_of<double>(chosen_set()).value());
    case DType::dual: return f(of_dual<Dual>());
    default: wrong_dtype(op, output.dtype(), "f32 or f64");
  }
}

// True on the planned device (tensor/device/planned.cpp): memory is taken as here, and nothing is computed.
inline bool computes_nothing(Device device) { return !device.is_cpu(); }

// Returns the length of a row of whole vectors, which the products of tiles may read to its end.
inline index_t padded_to_vectors(index_t columns) { return (columns + 15) / 16 * 16; }

// Calls f(task, scratch) for all tasks. Each thread has its own scratch of `numbers` numbers. One thread takes tasks
// from the front and the others from the back, as in parallel_for, so that each finds in its cache the data of the last
// loop. With as_numbered, all take from the front.
enum class Order : unsigned char { from_both_ends, as_numbered };
template <class T, class F>
void for_each_task(index_t tasks, index_t numbers, Device device, const F& f, Order order = Order::from_both_ends) {
  const index_t workers = std::min<index_t>(tasks, threads()), size = padded_to_vectors(numbers);
  const Tensor scratch = Tensor::empty({workers * size}, dtype_of<T>, device);
  if (computes_nothing(device)) return;
  std::atomic<index_t> taken = 0, from_front = 0, from_back = 0;
  parallel_for(workers, 1, [&](index_t worker, index_t) {
    const bool front = worker == 0 || order == Order::as_numbered;
    while (taken++ < tasks) f(front ? from_front++ : tasks - 1 - from_back++, scratch.data<T>() + worker * size);
  });
}

// x as rows: of the axes other than batch and heads, the last is columns and the one before it rows. `heads`: of
// queries, if x may have heads of keys.
template <class T> Rows<T> rows_of(const char* axes, const Tensor& x, index_t heads = 0) {
  Rows<T> rows{};
  if (!x.defined() || x.numel() == 0) return rows;
  rows.at = reinterpret_cast<T*>(x.bytes());
  each_axis(axes, [&](char letter, int axis, bool) {
    const index_t stride = x.size(axis) > 1 ? x.strides()[axis] : 0;
    if (letter == 'b')
      rows.batch = stride;
    else if (letter == 'h' || letter == 'g')
      rows.head = stride, rows.group = letter == 'g' ? heads / x.size(axis) : 0;
    else if (axis + 1 < x.rank())
      rows.row = stride;
  });
  return rows;
}

// The target of an operand's gradient: its own rows, if it has one for each batch and head. Otherwise each task has a
// part, and `sum` adds the parts.
template <class T> struct Gradient {
  Tensor to, parts;   // parts [b h row column], columns padded to whole vectors
  Tensor of_queries;  // for heads of keys shared by heads of queries: [b h row column], a part for each query head
  index_t columns = 1;

  Gradient(const char* axes, const Tensor& gradient, const Problem<T>& p, Rows<T>& rows) : to(gradient) {
    if (!to.defined()) return;
    index_t count = 1;
    bool each_batch = false;
    each_axis(axes, [&](char letter, int axis, bool) {
      each_batch |= letter == 'b';
      if (letter != 'b' && letter != 'h') count *= columns, columns = to.size(axis);
    });
    if (!each_batch)
      parts = Tensor::zeros({p.batch, p.heads, count, padded_to_vectors(columns)}, dtype_of<T>, to.device());
    rows = each_batch ? rows_of<T>(axes, to, p.heads) : rows_of<T>("b h r c", parts);
    if (rows.group < 2) return;
    of_queries = Tensor::like(to, {p.batch, p.heads, to.size(2), columns});
    rows = rows_of<T>("b h r c", of_queries);
  }

  // to = scale times the sum over the batch and heads that `to` does not have, in order.
  void sum(T scale) const {
    if (of_queries.defined()) {
      const Tensor total = Tensor::like(to, {to.size(0), to.size(1), 1, to.size(2), columns}),
                   by_group = raw::reshape(of_queries, {to.size(0), to.size(1), -1, to.size(2), columns});
      kernels(to).reduce(Reduction::sum, by_group, total);
      kernels(to).copy(raw::reshape(total, to.shape()), to);
    }
    if (!parts.defined() || computes_nothing(to.device())) return;
    const index_t rows = to.numel() / columns, repeats = parts.numel() / parts.size(3) / rows;
    parallel_for(rows, std::max<index_t>(1, cpu_grain / columns), [&](index_t begin, index_t end) {
      for (index_t row = begin; row < end; ++row) {
        for (index_t c = 0; c < columns; ++c) {
          T total = T(0);
          for (index_t n = 0; n < repeats; ++n) total += parts.data<T>()[(n * rows + row) * parts.size(3) + c];
          to.data<T>()[row * columns + c] = scale * total;
        }
      }
    });
  }
};

// Draws the mask of dropout, as autograd/ops/dropout.cpp does for all pairs.
struct DropoutMask {
  const TiledCall& at;
  index_t heads, keys;

  template <class T>
  static void row(const void* drop, index_t b, index_t h, index_t row, index_t first, index_t count, T* kept) {
    const DropoutMask& d = *static_cast<const DropoutMask*>(drop);
    const std::uint32_t threshold = dropout_threshold(d.at.dropout);
    const T scale = static_cast<T>(1 / (1 - d.at.dropout));
    const index_t number = ((b * d.heads + h) * d.at.total_rows + d.at.first_row + row) * d.keys + first;
    std::array<std::uint32_t, 4> words{};
    for (index_t k = 0; k < count; ++k) {
      const index_t n = number + k;
      if (k == 0 || n % 4 == 0) words = philox(d.at.stream.key, static_cast<std::uint64_t>(n / 4), d.at.stream.step);
      kept[k] = dropout_keeps(words[static_cast<std::size_t>(n % 4)], threshold) ? scale : T(0);
    }
  }
};

// Returns the problem of a call. `drop` and the tensors must outlive it.
template <class T>
Problem<T> problem_of(const TiledCall& at, const TiledCall::Operands& x, const DropoutMask& drop, const Tensor& output,
    const Tensor& bin_sums, const Tensor& norms, const Tensor& d_output = {}, const Tensor& d_bins = {}) {
  Problem<T> p{};
  const auto number = [](double of) { return T(static_cast<T>(of)); };
  const Extents of = extents_of(at.name(), At::info, x);
  for (char letter = 'a'; letter <= 'z'; ++letter) p.sizes[letter - 'a'] = of[letter];
  p.batch = of['b'], p.heads = of['h'], p.queries = of['i'], p.keys = of['j'], p.dim = of['d'], p.value_dim = of['c'];
  for (std::size_t k = 0; k < x.size(); ++k) p.in[k] = rows_of<const T>(At::info[k].axes, x[k], p.heads);
  p.distances = at.bin_of.defined() ? at.bin_of.numel() : std::max<index_t>(of['n'], 0), p.lowest = at.lowest;
  p.positions = std::max<index_t>(of['p'], 1);
  p.scale = number(at.scale), p.relative_scale = number(at.relative_scale);
  p.gate_scale = number(at.gate_scale), p.position_scale = number(at.position_scale);
  const Band band = Band::of(at.first_row, at.causal, at.window);
  p.first_row = band.first_row, p.before = band.before, p.after = band.after;
  p.stick = at.stick, p.rest_to_self = at.rest_to_self, p.bins = at.bins;
  if (at.present.defined()) p.present = at.present.data<bool>();
  if (at.bin_of.defined()) p.bin_of = at.bin_of.data<std::int64_t>();
  if (at.query_step.defined()) {
    p.query_step = at.query_step.data<std::int64_t>(), p.key_step = at.key_step.data<std::int64_t>();
    p.query_step_batch = at.query_step.size(0) > 1 ? p.queries : 0;
    p.key_step_batch = at.key_step.size(0) > 1 ? p.keys : 0;
  }
  if (at.dropout > 0) p.draw = DropoutMask::row<T>, p.stream = &drop;
  p.width = of['w'], p.kernel = of['k'], p.channels = of['x'], p.slope = number(at.slope);
  p.left = at.left, p.right = at.right, p.behind = at.behind, p.remask = at.remask, p.adds_pieces = at.adds_pieces;
  p.output = rows_of<T>("b h i c", output), p.norms = rows_of<T>("b h i n", norms);
  p.bin_sums = rows_of<T>("b h i c", bin_sums);
  p.output_gradient = rows_of<const T>("b h i c", d_output), p.bin_gradient = rows_of<const T>("b h i c", d_bins);
  return p;
}

// The head mix (mix_tasks.cpp), with T float, double or Dual.
template <class T>
void mix_forward(
    const Functions<T>& run, const TiledCall& at, const TiledCall::Operands& x, Problem<T> p, Device device);
template <class T>
void mix_backward(const Functions<T>& run, const TiledCall& at, const TiledCall::Operands& x,
    const TiledCall::Operands& d, Problem<T> p, Device device);

}  // namespace whence::tiles
