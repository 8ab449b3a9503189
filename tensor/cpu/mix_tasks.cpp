// The head mix on the CPU: a unit of work is some rows of all heads. The mix itself is in
// tensor/cpu/tiles/mix_forward.h and mix_backward.h.
#include "tensor/cpu/threads.h"
#include "tensor/cpu/tile_tasks.h"

namespace whence::tiles {
namespace {

using Mix = TiledCall;

// Returns x [rows, n] in rows of `count` numbers, starting at number `shift`; the others are 0.
template <class T> Tensor shifted_with_zeros(const Tensor& x, index_t shift, index_t count) {
  const index_t n = x.size(-1), rows = x.numel() / std::max<index_t>(n, 1);
  const Tensor wide = Tensor::zeros({rows, count}, x.dtype(), x.device());
  if (computes_nothing(x.device())) return wide;
  for (index_t r = 0; r < rows; ++r)
    for (index_t c = std::max<index_t>(0, -shift); c < n && c + shift < count; ++c)
      wide.data<T>()[r * count + c + shift] = x.data<T>()[r * n + c];
  return wide;
}

// The adjoint of `shifted_with_zeros`: x [rows, n] = the sum over parts [part, rows, count] in order, without the added numbers.
template <class T> void sum_narrowed(const Tensor& parts, index_t shift, const Tensor& x) {
  if (!parts.defined() || computes_nothing(x.device())) return;
  const index_t n = x.size(-1), rows = x.numel() / std::max<index_t>(n, 1), count = parts.size(-1);
  T* to = x.data<T>();
  std::fill_n(to, x.numel(), T(0));
  for (index_t part = 0; part < parts.size(0); ++part) {
    const T* from = parts.data<T>() + part * rows * count;
    for (index_t r = 0; r < rows; ++r)
      for (index_t c = std::max<index_t>(0, -shift); c < n && c + shift < count; ++c)
        to[r * n + c] += from[r * count + c + shift];
  }
}

Tensor pad_rows(const Tensor& x) {
  return Tensor::zeros({x.size(0), x.size(1), x.size(2), padded_to_vectors(x.size(3))}, x.dtype(), x.device());
}
// Rows of whole vectors: x itself, or a copy.
Tensor padded_rows(const Tensor& x) {
  if (padded_to_vectors(x.size(3)) == x.size(3)) return x;
  const Tensor wide = pad_rows(x);
  kernels(x.device()).copy(x, wide.view(x.shape(), wide.strides()));
  return wide;
}
// The target of sums over blocks of rows: x itself, or wider rows of whole vectors.
Tensor zero_padding(const Tensor& x) {
  if (!x.defined()) return x;
  if (padded_to_vectors(x.size(3)) != x.size(3)) return pad_rows(x);
  kernels(x.device()).fill(x, 0);
  return x;
}

// The inputs that the problem reads in another layout.
struct MixInputs {
  index_t table_shift = 0, base_shift = 0;
  Tensor table, base, key, value;

  template <class T> MixInputs(const TiledCall& at, const TiledCall::Operands& x, Problem<T>& p) {
    // Tables have zeros on both sides for lanes whose distance they do not hold: a block has 64 lanes at most, and
    // walks less than 4 kernels beyond the keys.
    const index_t margin = 64 + 4 * p.kernel;
    p.mix_lowest = at.first_row - p.keys - margin, p.mix_distances = p.queries + p.keys + 2 * margin;
    table_shift = at.table_lowest - p.mix_lowest, base_shift = at.lowest - p.mix_lowest;
    table = shifted_with_zeros<T>(x[Mix::mix_table], table_shift, p.mix_distances);
    if (x[Mix::distance_table].defined())
      base = shifted_with_zeros<T>(x[Mix::distance_table], base_shift, p.mix_distances);
    key = padded_rows(x[Mix::key]), value = padded_rows(x[Mix::value]);
    p.in[Mix::key] = rows_of<const T>("b g j d", key, p.heads);
    p.in[Mix::value] = rows_of<const T>("b g j c", value, p.heads);
    p.in[Mix::mix_table].at = table.data<T>();
    if (base.defined()) p.in[Mix::distance_table].at = base.data<T>();
  }
};

// Orders the blocks of backward (tensor/cpu/tiles/problem.h): each block enters the steps in their order.
class StepOrder {
 public:
  StepOrder(index_t batch, index_t blocks) : blocks_(blocks), left_(static_cast<std::size_t>(batch * blocks)) {}
  static void enter(void* order, index_t b, index_t block, index_t step) {
    if (block == 0) return;
    const std::atomic<int>& before = static_cast<StepOrder*>(order)->left(b, block - 1);
    if (spin_until([&] { return before > step; })) return;
    for (int left = before; left <= step; left = before) before.wait(left);
  }
  static void leave(void* order, index_t b, index_t block, index_t step) {
    std::atomic<int>& left = static_cast<StepOrder*>(order)->left(b, block);
    left = static_cast<int>(step + 1);
    left.notify_all();
  }

 private:
  std::atomic<int>& left(index_t b, index_t block) { return left_[static_cast<std::size_t>(b * blocks_ + block)]; }
  index_t blocks_;
  std::vector<std::atomic<int>> left_;  // steps that each block has completed
};

}  // namespace

template <class T>
void mix_forward(
    const Functions<T>& run, const TiledCall& at, const TiledCall::Operands& x, Problem<T> p, Device device) {
  const MixInputs inputs(at, x, p);
  const index_t parts = (p.queries + run.mix_block - 1) / run.mix_block;
  // Later causal rows have more keys: the longest rows come first.
  for_each_task<T>(p.batch * parts, run.mix_forward_scratch(p), device, [&](index_t task, T* scratch) {
    run.mix_forward(p, task / parts, (parts - 1 - task % parts) * run.mix_block, scratch);
  });
}

template <class T>
void mix_backward(const Functions<T>& run, const TiledCall& at, const TiledCall::Operands& x,
    const TiledCall::Operands& d, Problem<T> p, Device device) {
  const MixInputs inputs(at, x, p);
  const index_t blocks = (p.queries + run.mix_rows - 1) / run.mix_rows;
  const Tensor wide_key = zero_padding(d[Mix::key]), wide_value = zero_padding(d[Mix::value]);
  p.d[Mix::query] = rows_of<T>("b h i d", d[Mix::query]);
  p.d[Mix::key] = rows_of<T>("b g j d", wide_key, p.heads);
  p.d[Mix::value] = rows_of<T>("b g j c", wide_value, p.heads);
  const auto parts = [&](Mix::Operand which, index_t rows, index_t count) {
    const Tensor part = d[which].defined() ? Tensor::zeros({p.batch, rows, count}, dtype_of<T>, device) : Tensor();
    if (part.defined()) p.d[which].at = part.data<T>();
    return part;
  };
  const Tensor input = parts(Mix::mix_input, p.width * p.channels, p.kernel),
               output = parts(Mix::mix_output, p.width * p.heads, p.kernel),
               table = parts(Mix::mix_table, (p.left + 1) * p.width, p.mix_distances),
               base = parts(Mix::distance_table, p.heads, p.mix_distances);
  std::vector<Gradient<T>> pieces;
  for (std::size_t k = Mix::piece_distance; k <= Mix::piece_offsets; ++k)
    pieces.emplace_back(Mix::info[k].axes, d[k], p, p.d[k]);
  StepOrder order(p.batch, blocks);
  p.enter = StepOrder::enter, p.leave = StepOrder::leave, p.order = &order;
  // A block only waits for tasks that have begun.
  const auto run_block = [&](index_t task, T* scratch) {
    try {
      run.mix_backward(p, task / blocks, task % blocks, scratch);
    } catch (...) {
      StepOrder::leave(&order, task / blocks, task % blocks, last_step);  // no other block waits for it any more
      throw;
    }
  };
  for_each_task<T>(p.batch * blocks, run.mix_backward_scratch(p), device, run_block, Order::as_numbered);
  sum_narrowed<T>(input, 0, d[Mix::mix_input]), sum_narrowed<T>(output, 0, d[Mix::mix_output]);
  sum_narrowed<T>(table, inputs.table_shift, d[Mix::mix_table]);
  sum_narrowed<T>(base, inputs.base_shift, d[Mix::distance_table]);
  for (const Gradient<T>& piece : pieces) piece.sum(T(1));
  for (const auto& [wide, which] : {std::pair{&wide_key, Mix::key}, std::pair{&wide_value, Mix::value}})
    if (wide->defined() && wide->identity() != d[which].identity())
      kernels(device).copy(wide->view(d[which].shape(), wide->strides()), d[which]);
}

template void mix_forward(const Functions<float>&, const Mix&, const Mix::Operands&, Problem<float>, Device);
template void mix_forward(const Functions<double>&, const Mix&, const Mix::Operands&, Problem<double>, Device);
template void mix_forward(const Functions<Dual>&, const Mix&, const Mix::Operands&, Problem<Dual>, Device);
template void mix_backward(
    const Functions<float>&, const Mix&, const Mix::Operands&, const Mix::Operands&, Problem<float>, Device);
template void mix_backward(
    const Functions<double>&, const Mix&, const Mix::Operands&, const Mix::Operands&, Problem<double>, Device);
template void mix_backward(
    const Functions<Dual>&, const Mix&, const Mix::Operands&, const Mix::Operands&, Problem<Dual>, Device);

}  // namespace whence::tiles
