// Tiled attention on the CPU: which instruction set, who does which part, and what parts leave to be added up.
// The tiles themselves are in tensor/cpu/tiles/. A part of the work is a head, or with a head mix a few rows of all
// heads; how the work is cut changes no bits, and what several parts sum to is summed in their order.
#include "tensor/tiled_attention.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "tensor/cpu/instruction_set.h"
#include "tensor/cpu/kernels.h"
#include "tensor/cpu/tiles/instruction_sets.h"
#include "tensor/cpu/turn.h"
#include "tensor/operands.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

using tiles::Functions;
using tiles::Problem;
using tiles::Rows;
using Operand = TiledAttention::Operand;

std::atomic<InstructionSet> chosen_set = InstructionSet::best;

template <class T> Functions<T> functions_of([[maybe_unused]] InstructionSet set) {
#ifdef WHENCE_X86
  if constexpr (!std::is_same_v<T, Dual>) {
    if (set == InstructionSet::best) set = instruction_set();
    if (set == InstructionSet::avx512) return tiles::of_avx512<T>();
    if (set == InstructionSet::avx2) return tiles::of_avx2<T>();
  }
#endif
  return tiles::of_plain<T>();
}

// On the planned device (tensor/device/planned.cpp) memory is taken as here, and nobody computes.
bool planned(Device device) { return !device.is_cpu(); }

// Memory that parts at work take in turn: as many pieces as threads.
template <class T> class Scratch {
 public:
  Scratch(index_t pieces, index_t numbers, Device device)
      : size_((numbers + 15) / 16 * 16), memory_(Tensor::empty({pieces * size_}, dtype_of<T>, device)) {
    for (index_t n = 0; n < pieces; ++n) free_.push_back(memory_.template data<T>() + n * size_);
  }
  T* take() {
    const std::lock_guard lock(mutex_);
    T* piece = free_.back();
    free_.pop_back();
    return piece;
  }
  void give_back(T* piece) {
    const std::lock_guard lock(mutex_);
    free_.push_back(piece);
  }

 private:
  index_t size_;
  Tensor memory_;
  std::mutex mutex_;
  std::vector<T*> free_;
};

// f(task, scratch) for all tasks.
template <class T, class F> void for_each_task(index_t tasks, Scratch<T>& scratch, const F& f) {
  parallel_for(tasks, 1, [&](index_t begin, index_t end) {
    T* piece = scratch.take();
    for (index_t task = begin; task < end; ++task) f(task, piece);
    scratch.give_back(piece);
  });
}
template <class T, class F> void for_each_task(index_t tasks, index_t numbers, Device device, const F& f) {
  Scratch<T> scratch(std::min<index_t>(tasks, threads()), numbers, device);
  if (!planned(device)) for_each_task(tasks, scratch, f);
}

// x as rows: all axes but its batch, its head and its columns are one axis of rows, which two axes never are.
template <class T> Rows<T> rows_of(const char* axes, const Tensor& x) {
  Rows<T> rows;
  if (!x.defined() || x.numel() == 0) return rows;
  rows.at = reinterpret_cast<T*>(x.bytes());
  each_axis(axes, [&](char letter, int axis, bool) {
    const index_t stride = x.size(axis) > 1 ? x.strides()[axis] : 0;
    if (letter == 'b')
      rows.batch = stride;
    else if (letter == 'h')
      rows.head = stride;
    else if (axis + 1 < x.rank())
      rows.row = stride;
  });
  return rows;
}

struct Drop {
  const TiledAttention& at;
  index_t heads, keys;
};

template <class T>
void draw_row(const void* drop, index_t b, index_t h, index_t row, index_t first, index_t count, T* kept) {
  const Drop& d = *static_cast<const Drop*>(drop);
  const auto threshold = static_cast<std::uint32_t>(std::ceil(d.at.dropout * 0x1p24));  // as autograd/ops/dropout.cpp
  const T scale = static_cast<T>(1 / (1 - d.at.dropout));
  const index_t number = ((b * d.heads + h) * d.at.total_rows + d.at.first_row + row) * d.keys + first;
  std::array<std::uint32_t, 4> words{};
  for (index_t k = 0; k < count; ++k) {
    const index_t n = number + k;
    if (k == 0 || n % 4 == 0) words = philox(d.at.stream.key, static_cast<std::uint64_t>(n / 4), d.at.stream.step);
    kept[k] = (words[static_cast<std::size_t>(n % 4)] >> 8) >= threshold ? scale : T(0);
  }
}

template <class T>
Problem<T> problem_of(const TiledAttention& at, const TiledAttention::Operands& x, const Drop& drop) {
  Problem<T> p{};
  const Extents of = extents_of("tiled_attention", TiledAttention::info, x);
  p.batch = of['b'], p.heads = of['h'], p.queries = of['i'], p.keys = of['j'], p.dim = of['d'], p.value_dim = of['c'];
  p.distances = at.bin_of.defined() ? at.bin_of.numel() : std::max<index_t>(of['n'], 0);
  p.positions = std::max<index_t>(of['p'], 1);
  for (std::size_t k = 0; k < x.size(); ++k) p.in[k] = rows_of<const T>(TiledAttention::info[k].axes, x[k]);
  p.scale = T(static_cast<T>(at.scale)), p.relative_scale = T(static_cast<T>(at.relative_scale));
  p.gate_scale = T(static_cast<T>(at.gate_scale)), p.position_scale = T(static_cast<T>(at.position_scale));
  p.causal = at.causal, p.first_row = at.first_row, p.lowest = at.lowest;
  p.present = at.present.defined() ? at.present.data<bool>() : nullptr;
  if (at.query_step.defined()) {
    p.query_step = at.query_step.data<std::int64_t>(), p.key_step = at.key_step.data<std::int64_t>();
    p.query_step_batch = at.query_step.size(0) > 1 ? p.queries : 0;
    p.key_step_batch = at.key_step.size(0) > 1 ? p.keys : 0;
  }
  p.bin_of = at.bin_of.defined() ? at.bin_of.data<std::int64_t>() : nullptr, p.bins = at.bins;
  if (at.dropout > 0) p.draw = draw_row<T>, p.stream = &drop;
  return p;
}

// ---- the head mix ----

// Tables with room on both sides for the lanes of a block that read no distance of theirs.
struct MixTables {
  index_t lowest, count;  // the steps of number 0, and how many numbers
};

MixTables mix_tables(const TiledAttention& at, const TiledAttention::Operands& x) {
  const index_t queries = x[Operand::query].size(2), keys = x[Operand::key].size(2);
  const index_t kernel = x[Operand::mix_input].size(-1), margin = 64 + 4 * kernel;
  const index_t least = at.first_row - keys - margin, most = at.first_row + queries + margin;
  return {least, most - least};
}

// x [rows, n], whose first number is that of `lowest` steps, as [rows, tables.count].
template <class T> Tensor widened(const Tensor& x, index_t lowest, const MixTables& tables) {
  const index_t n = x.size(-1), rows = x.numel() / std::max<index_t>(n, 1);
  const Tensor wide = Tensor::zeros({rows, tables.count}, x.dtype(), x.device());
  if (planned(x.device())) return wide;
  const index_t shift = lowest - tables.lowest;
  for (index_t r = 0; r < rows; ++r)
    for (index_t c = std::max<index_t>(0, -shift); c < n && c + shift < tables.count; ++c)
      wide.data<T>()[r * tables.count + c + shift] = x.data<T>()[r * n + c];
  return wide;
}

// The sum over the parts [parts, rows, tables.count] as x, which has n numbers in a row.
template <class T> void add_narrowed(const Tensor& parts, index_t lowest, const MixTables& tables, const Tensor& x) {
  const index_t n = x.size(-1), rows = x.numel() / std::max<index_t>(n, 1), shift = lowest - tables.lowest;
  const index_t count = parts.numel() / std::max<index_t>(rows * tables.count, 1);
  if (planned(x.device())) return;
  T* to = x.data<T>();
  std::fill_n(to, x.numel(), T(0));
  for (index_t part = 0; part < count; ++part) {
    const T* from = parts.data<T>() + part * rows * tables.count;
    for (index_t r = 0; r < rows; ++r)
      for (index_t c = std::max<index_t>(0, -shift); c < n && c + shift < tables.count; ++c)
        to[r * n + c] += from[r * tables.count + c + shift];
  }
}

// The length of a row of whole vectors, which the products of tiles may read to its end.
index_t whole(index_t columns) { return (columns + 15) / 16 * 16; }

// What the mix reads in a form of its own, alive as long as the problem.
template <class T> struct MixOperands {
  MixTables tables;
  Tensor table, residual, query, key, value;

  MixOperands(const TiledAttention& at, const TiledAttention::Operands& x, Problem<T>& p) : tables(mix_tables(at, x)) {
    table = widened<T>(x[Operand::mix_table], at.mix.lowest, tables);
    if (x[Operand::distance_table].defined()) residual = widened<T>(x[Operand::distance_table], at.lowest, tables);
    p.width = x[Operand::mix_input].size(0), p.kernel = x[Operand::mix_input].size(2);
    p.left = at.mix.left, p.right = at.mix.right, p.behind = at.mix.behind, p.remask = at.mix.remask;
    p.mix_lowest = tables.lowest, p.mix_distances = tables.count;
    p.slope = T(static_cast<T>(at.mix.slope));
    p.mix_input = x[Operand::mix_input].data<T>(), p.mix_table = table.data<T>();
    p.mix_output = x[Operand::mix_output].data<T>();
    p.mix_residual = residual.defined() ? residual.data<T>() : nullptr;
    key = padded_rows(x[Operand::key]), value = padded_rows(x[Operand::value]);
    p.in[Operand::key] = rows_of<const T>("b h j d", key), p.in[Operand::value] = rows_of<const T>("b h j c", value);
  }
  static Tensor padded_rows(const Tensor& x) {
    if (whole(x.size(3)) == x.size(3)) return x;
    const Tensor wide = Tensor::zeros({x.size(0), x.size(1), x.size(2), whole(x.size(3))}, x.dtype(), x.device());
    kernels(x.device()).copy(x, wide.view(x.shape(), wide.strides()));
    return wide;
  }
};

// ---- forward ----

template <class T> void forward(const TiledAttention& at, const TiledAttention::Operands& x, Problem<T> p) {
  const Functions<T> run = functions_of<T>(chosen_set);
  const Device device = x[Operand::query].device();
  if (x[Operand::mix_input].defined()) {
    const MixOperands<T> mix(at, x, p);
    const index_t parts = (p.queries + run.mix_block - 1) / run.mix_block;
    // Causal rows have the more keys the later they are: the longest first.
    return for_each_task<T>(p.batch * parts, run.mix_forward_scratch(p), device, [&](index_t task, T* scratch) {
      run.mix_forward(p, task / parts, (parts - 1 - task % parts) * run.mix_block, scratch);
    });
  }
  // A head is a task; where heads are few, each is cut into pieces of whole blocks.
  constexpr index_t block = 64;
  const index_t heads = p.batch * p.heads, blocks = (p.queries + block - 1) / block;
  const index_t pieces = std::clamp<index_t>(4 * threads() / std::max<index_t>(heads, 1), 1, blocks);
  for_each_task<T>(heads * pieces, run.forward_scratch(p), device, [&](index_t task, T* scratch) {
    const index_t head = task / pieces, piece = pieces - 1 - task % pieces;
    const index_t begin = blocks * piece / pieces * block,
                  end = std::min(blocks * (piece + 1) / pieces * block, p.queries);
    run.forward(p, head / p.heads, head % p.heads, begin, end - begin, scratch);
  });
}

// ---- backward ----

// to = the sum over the first axis of parts, in order.
template <class T> void sum_parts(const Tensor& parts, const Tensor& to) {
  if (planned(to.device())) return;
  const index_t count = to.numel(), number = parts.numel() / std::max<index_t>(count, 1);
  const T* from = parts.data<T>();
  T* sum = to.data<T>();
  parallel_for(count, cpu_grain, [&](index_t begin, index_t end) {
    for (index_t n = begin; n < end; ++n) {
      T total = T(0);
      for (index_t part = 0; part < number; ++part) total += from[part * count + n];
      sum[n] = total;
    }
  });
}

// Where the gradient of an operand goes: to its own rows, where it has one for each batch and head. Of others each task
// has a part, and `sum` adds the parts up.
template <class T> struct Gradient {
  Tensor to, parts;  // parts [b h row column], columns padded to whole vectors
  index_t columns = 1;

  Gradient(const char* axes, const Tensor& gradient, const Problem<T>& p, Rows<T>& rows) : to(gradient) {
    if (!to.defined()) return;
    index_t count = 1;
    bool each_batch = false;
    each_axis(axes, [&](char letter, int axis, bool) {
      each_batch |= letter == 'b';
      if (letter != 'b' && letter != 'h') count *= columns, columns = to.size(axis);
    });
    if (!each_batch) parts = Tensor::zeros({p.batch, p.heads, count, whole(columns)}, dtype_of<T>, to.device());
    rows = each_batch ? rows_of<T>(axes, to) : rows_of<T>("b h r c", parts);
  }

  // to = scale times the sum over what it does not have of batch and heads, in their order.
  void sum(T scale) const {
    if (!parts.defined() || planned(to.device())) return;
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

template <class T>
void backward_of_heads(const Functions<T>& run, Device device, const TiledAttention::Operands& d, Problem<T> p) {
  std::vector<Gradient<T>> gradients;
  for (std::size_t k = 0; k < d.size(); ++k) gradients.emplace_back(TiledAttention::info[k].axes, d[k], p, p.d[k]);
  if (const Tensor& column = d[Operand::column_term]; column.defined()) kernels(column.device()).fill(column, 0);
  for_each_task<T>(p.batch * p.heads, run.backward_scratch(p), device,
      [&](index_t task, T* scratch) { run.backward(p, task / p.heads, task % p.heads, scratch); });
  for (std::size_t k = 0; k < d.size(); ++k) gradients[k].sum(k == Operand::position_keys ? p.position_scale : T(1));
}

// Who may go where in the backward of the mix (tensor/cpu/tiles/problem.h). Each block enters the steps in their order.
class Turns {
 public:
  Turns(index_t batch, index_t blocks) : blocks_(blocks), left_(static_cast<std::size_t>(batch * blocks)) {}
  static void enter(void* turns, index_t b, index_t block, index_t step) {
    if (block == 0) return;
    const std::atomic<int>& before = static_cast<Turns*>(turns)->left(b, block - 1);
    if (turn_until([&] { return before > step; })) return;
    for (int left = before; left <= step; left = before) before.wait(left);
  }
  static void leave(void* turns, index_t b, index_t block, index_t step) {
    std::atomic<int>& left = static_cast<Turns*>(turns)->left(b, block);
    left = static_cast<int>(step + 1);
    left.notify_all();
  }

 private:
  std::atomic<int>& left(index_t b, index_t block) { return left_[static_cast<std::size_t>(b * blocks_ + block)]; }
  index_t blocks_;
  std::vector<std::atomic<int>> left_;  // how many steps a block has left behind
};

// Where sums over blocks of rows go: x itself, or wider rows of whole vectors.
Tensor cleared_rows(const Tensor& x) {
  if (!x.defined()) return x;
  if (whole(x.size(3)) != x.size(3))
    return Tensor::zeros({x.size(0), x.size(1), x.size(2), whole(x.size(3))}, x.dtype(), x.device());
  kernels(x.device()).fill(x, 0);
  return x;
}

template <class T>
void backward_of_mix(const Functions<T>& run, const TiledAttention& at, const TiledAttention::Operands& x,
    const TiledAttention::Operands& d, Problem<T> p) {
  const MixOperands<T> mix(at, x, p);
  const Device device = x[Operand::query].device();
  const index_t blocks = (p.queries + run.mix_rows - 1) / run.mix_rows, tasks = p.batch * blocks;
  const Tensor wide_key = cleared_rows(d[Operand::key]), wide_value = cleared_rows(d[Operand::value]);
  p.d[Operand::query] = rows_of<T>("b h i d", d[Operand::query]);
  p.d[Operand::key] = rows_of<T>("b h j d", wide_key), p.d[Operand::value] = rows_of<T>("b h j c", wide_value);
  const index_t weights = p.width * p.heads * p.kernel;
  const auto make = [&](Operand which, index_t count, T*& to) {
    const Tensor part = d[which].defined() ? Tensor::zeros({p.batch, count}, dtype_of<T>, device) : Tensor();
    to = part.defined() ? part.data<T>() : nullptr;
    return part;
  };
  const Tensor input = make(Operand::mix_input, weights, p.d_mix_input),
               output = make(Operand::mix_output, weights, p.d_mix_output),
               table = make(Operand::mix_table, (p.left + 1) * p.width * p.mix_distances, p.d_mix_table),
               residual = make(Operand::distance_table, p.heads * p.mix_distances, p.d_mix_residual);
  Turns turns(p.batch, blocks);
  p.enter = Turns::enter, p.leave = Turns::leave, p.turns = &turns;
  const index_t workers = std::min<index_t>(tasks, threads());
  std::atomic<index_t> next = 0;  // tasks begin in their order: whoever waits waits for one that has begun
  for_each_task<T>(workers, run.mix_backward_scratch(p), device, [&](index_t, T* scratch) {
    for (index_t task = next++; task < tasks; task = next++) run.mix_backward(p, task / blocks, task % blocks, scratch);
  });
  if (input.defined()) sum_parts<T>(input, d[Operand::mix_input]);
  if (output.defined()) sum_parts<T>(output, d[Operand::mix_output]);
  if (table.defined()) add_narrowed<T>(table, at.mix.lowest, mix.tables, d[Operand::mix_table]);
  if (residual.defined()) add_narrowed<T>(residual, at.lowest, mix.tables, d[Operand::distance_table]);
  for (const auto& [wide, which] : {std::pair{&wide_key, Operand::key}, std::pair{&wide_value, Operand::value}})
    if (wide->defined() && wide->identity() != d[which].identity())
      kernels(device).copy(wide->view(d[which].shape(), wide->strides()), d[which]);
}

template <class F> void visit_attention(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32: return f(Type<float>{});
    case DType::f64: return f(Type<double>{});
    case DType::dual: return f(Type<Dual>{});
    default: wrong_dtype("tiled_attention", dtype, "f32 or f64");
  }
}

template <class T>
void backward(const TiledAttention& at, const TiledAttention::Operands& x, const TiledAttention::Operands& d,
    const Problem<T>& p) {
  const Functions<T> run = functions_of<T>(chosen_set);
  if (x[Operand::mix_input].defined())
    backward_of_mix(run, at, x, d, p);
  else
    backward_of_heads(run, x[Operand::query].device(), d, p);
}

}  // namespace

void use_instruction_set(InstructionSet set) {
  if (!cpu_has(set)) fail("use_instruction_set", "this machine or this build has not that instruction set");
  chosen_set = set;
}

void CpuKernels::attention(const TiledAttention& at, const TiledAttention::Operands& x, const Tensor& output,
    const Tensor& bin_sums, const Tensor& log_sum) {
  const Drop drop{at, x[Operand::key].size(1), x[Operand::key].size(2)};
  visit_attention(output.dtype(), [&]<class T>(Type<T>) {
    Problem<T> p = problem_of<T>(at, x, drop);
    p.output = rows_of<T>("b h i c", output), p.log_sum = rows_of<T>("b h i", log_sum);
    p.bin_sums = rows_of<T>("b h i c", bin_sums);
    forward<T>(at, x, p);
  });
}

void CpuKernels::attention_backward(const TiledAttention& at, const TiledAttention::Operands& x, const Tensor& output,
    const Tensor& bin_sums, const Tensor& log_sum, const Tensor& d_output, const Tensor& d_bins,
    const TiledAttention::Operands& d) {
  const Drop drop{at, x[Operand::key].size(1), x[Operand::key].size(2)};
  visit_attention(output.dtype(), [&]<class T>(Type<T>) {
    Problem<T> p = problem_of<T>(at, x, drop);
    p.output = rows_of<T>("b h i c", output), p.log_sum = rows_of<T>("b h i", log_sum);
    p.output_gradient = rows_of<const T>("b h i c", d_output);
    p.bin_sums = rows_of<T>("b h i c", bin_sums), p.bin_gradient = rows_of<const T>("b h i c", d_bins);
    backward<T>(at, x, d, p);
  });
}

}  // namespace whence
