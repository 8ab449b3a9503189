// Rows of kernels that work along axes: reductions, softmax, norms, cross-entropy, running sums.
#include <array>
#include <limits>

#include "tests/tensor/kernels/table.h"

namespace whence::test {
namespace {

// Up to 32 and 1024: a GPU's warp with few numbers per lane and with many; 8192 in f32: a block that holds its row;
// beyond: a row read again.
const std::vector<index_t> widths{1, 2, 31, 32, 33, 255, 256, 1000, 1024, 1025, 5000, 9000};
constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

// ---- Reductions.

// Sums or maxima over the axes where `to` has extent 1, in long double, in order. A NaN wins.
Numbers reduced(Reduction f, const Tensor& x, const Shape& to) {
  const bool sum = f == Reduction::sum;
  std::vector<long double> result(place(numel(to)), sum ? 0 : -INFINITY);
  const Numbers values = read(x);
  std::size_t i = 0;
  for_each_position(x.shape(), [&](const std::vector<index_t>& p) {
    index_t at = 0;
    for (int axis = 0; axis < x.rank(); ++axis) at = at * to[axis] + (to[axis] == 1 ? 0 : p[place(axis)]);
    long double& total = result[place(at)];
    const long double value = values[i++];
    total = sum ? total + value : std::isnan(total) || value < total ? total : value;
  });
  return {result.begin(), result.end()};
}
KernelCase reduce(Reduction f, const Operand& x, const Shape& shape, const Shape& to) {
  return {"reduce", to_text(f == Reduction::sum ? "sum of " : "maximum of ", shape, " to ", to), {x}, {rows(to)},
      [f](Kernels& k, In in, In out) { k.reduce(f, in[0], out[0]); }, [=](In in, In) { return reduced(f, in[0], to); },
      {std::max<index_t>(numel(to) > 0 ? numel(shape) / numel(to) : 1, 1)}};
}
// Bit k of `axes`: axis k is summed.
Shape without(Shape shape, unsigned axes) {
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (axes >> axis & 1) shape[axis] = 1;
  return shape;
}

// Small whole numbers, so that many are equal; a row with two NaN, one of -infinity, one whose last is the largest.
Operand hard_rows(index_t width) {
  return then(few({5, width}), [=](const Tensor& x) {
    const auto set = [&](index_t row, index_t begin, index_t end, double value) {
      kernels(Device::cpu()).fill(raw::slice(raw::slice(x, 0, row, row + 1), 1, begin, end), value);
    };
    set(1, width / 3, width / 3 + 1, nan), set(1, width - 1, width, nan);
    set(2, 0, width, -infinity), set(3, width - 1, width, 9);
    return x;
  });
}
Numbers places_of_maxima(const Tensor& x) {
  const Numbers values = read(x);
  const std::size_t width = place(x.size(-1));
  Numbers found;
  for (std::size_t row = 0; row < values.size(); row += width) {
    std::size_t best = row;
    for (std::size_t i = row; i < row + width && !std::isnan(values[best]); ++i)
      if (std::isnan(values[i]) || values[i] > values[best]) best = i;
    found.push_back(static_cast<double>(best - row));
  }
  return found;
}
KernelCase argmax(const Operand& x, index_t count) {
  return {"argmax", to_text(count, " rows"), {x}, {of(DType::i64, rows({count}))},
      [](Kernels& k, In in, In out) { k.argmax(in[0], out[0]); }, [](In in, In) { return places_of_maxima(in[0]); }};
}

void add_reductions(KernelCases& table) {
  for (const Reduction f : {Reduction::sum, Reduction::maximum}) {
    const auto add = [&](const Shape& shape, const Shape& to) {
      table.push_back(reduce(f, any(shape), shape, to));
      table.back().any_strides = numel(shape) <= 20000;
    };
    for (const Shape& shape : std::vector<Shape>{{7}, {3, 5}, {2, 3, 4}, {3, 1, 2, 5}})
      for (unsigned axes = 1; axes < 1u << shape.rank(); ++axes) add(shape, without(shape, axes));
    for (const auto& [shape, to] : std::vector<std::pair<Shape, Shape>>{{{5, 1}, {5, 1}}, {{6, 7}, {6, 1}},
             {{6, 700}, {6, 1}}, {{3, 1025}, {3, 1}}, {{2, 70000}, {2, 1}}, {{700, 6}, {1, 6}}, {{2000, 40}, {1, 40}},
             {{20, 300}, {1, 300}}, {{300, 40}, {1, 1}}, {{3, 50, 40}, {3, 1, 40}}, {{4, 3, 9, 11}, {1, 3, 1, 1}},
             {{4, 3, 40, 5}, {1, 3, 1, 5}}, {{2, 3, 4, 5}, {1, 1, 1, 1}}, {{4, 50, 3}, {4, 1, 1}}, {{12, 8}, {12, 1}},
             {{2, 0}, {2, 1}}})
      add(shape, to);
    // Long enough to be cut into chunks.
    for (const auto& [shape, all_axes] :
        std::vector<std::pair<Shape, std::vector<unsigned>>>{{{2, 33000}, {1, 2, 3}}, {{2000, 20}, {1, 3}},
            {{700, 90}, {1, 2, 3}}, {{3, 900, 30}, {2, 5, 6, 7}}, {{40, 3, 300}, {5}}, {{700, 301}, {1, 2, 3}}}) {
      for (const unsigned axes : all_axes) {
        if (f == Reduction::maximum && axes != all_axes.back() && shape[0] != 700) continue;
        for (const Layout layout : {Layout::contiguous, Layout::permuted}) {
          table.push_back(reduce(f, laid(shape, layout), shape, without(shape, axes)));
          table.back().dtypes = {DType::f32, DType::bf16, DType::dual}, table.back().on_cpu_alone = true;
        }
      }
    }
  }
  for (const index_t width : widths) {
    table.push_back(argmax(hard_rows(width), 5));
    for (const Shape& to : {Shape{5, 1}, Shape{1, width}})
      table.push_back(reduce(Reduction::maximum, hard_rows(width), {5, width}, to));
  }
  for (const Shape& to : {Shape{64, 1}, Shape{1, 768}})
    table.push_back(reduce(Reduction::sum, rows({64, 768}), {64, 768}, to).counted(1));
  table.push_back(argmax(rows({64, 768}), 64).counted(1));
}

// ---- Softmax.

Numbers softmax_of(const Numbers& x, const Numbers& seen, index_t columns) {
  const std::size_t width = place(columns);
  Numbers y(x.size(), 0);
  for (std::size_t row = 0; row < x.size(); row += width) {
    double top = -INFINITY, total = 0;
    for (std::size_t i = row; i < row + width; ++i) top = seen[i] != 0 ? std::fmax(top, x[i]) : top;
    for (std::size_t i = row; i < row + width; ++i) total += y[i] = seen[i] != 0 ? std::exp(x[i] - top) : 0;
    for (std::size_t i = row; i < row + width; ++i) y[i] = total > 0 ? y[i] / total : 0;
  }
  return y;
}
KernelCase softmax(const std::string& name, const Shape& shape, const Operand& seen) {
  return {"softmax", to_text(shape, ", ", name), {rows(shape), seen}, {rows(shape)},
      [](Kernels& k, In in, In out) { k.softmax(in[0], in[1], out[0]); },
      [=](In in, In) {
        const Numbers x = read(in[0]);
        return softmax_of(x, in[1].defined() ? read(in[1]) : Numbers(x.size(), 1), shape[-1]);
      },
      {shape[-1]}};
}
Numbers softmax_gradient(const Numbers& y, const Numbers& dy, index_t columns) {
  const std::size_t width = place(columns);
  Numbers dx(y.size());
  for (std::size_t row = 0; row < y.size(); row += width) {
    double mean = 0;
    for (std::size_t i = row; i < row + width; ++i) mean += y[i] * dy[i];
    for (std::size_t i = row; i < row + width; ++i) dx[i] = y[i] * (dy[i] - mean);
  }
  return dx;
}
KernelCase softmax_backward(const Shape& shape) {
  KernelCase row{"softmax_backward", to_text(shape), {rows(shape), rows(shape)}, {rows(shape)},
      [](Kernels& k, In in, In out) { k.softmax_backward(in[0], in[1], out[0]); },
      [=](In in, In) { return softmax_gradient(read(in[0]), read(in[1]), shape[-1]); }, {shape[-1]}};
  row.prepare = [](In in) { kernels(in[0]).softmax(in[0], {}, in[0]); };
  return row;
}

// A mask whose first row has no entry at all.
Operand mask_of(const Shape& shape) {
  return then(mask(shape), [](const Tensor& seen) {
    std::fill_n(seen.data<bool>(), std::min(seen.size(-1), seen.numel()), false);
    return seen;
  });
}
Operand as_view(const Operand& x, const Shape& shape, const Strides& strides) {
  return then(x, [=](const Tensor& each) { return each.view(shape, strides); });
}

void add_softmax(KernelCases& table) {
  std::vector<Shape> shapes{{5}, {3, 1}, {2, 3, 4, 70}, {0, 4}, {2, 0}, {4, 600}};
  for (const index_t width : widths) shapes.push_back({width > 1000 ? 2 : 6, width});
  for (const Shape& shape : shapes) {
    table.push_back(softmax("no mask", shape, none()));
    table.push_back(softmax("a mask of its own", shape, mask_of(shape)));
    Shape row = shape, column = shape;
    for (int axis = 0; axis < shape.rank(); ++axis) (axis + 1 < shape.rank() ? row : column)[axis] = 1;
    table.push_back(softmax("one row for all", shape, expanded(mask(row), shape)));
    table.push_back(softmax("one entry for each row", shape, expanded(mask(column), shape)));
    if (shape.rank() != 2 || numel(shape) == 0) continue;
    const index_t count = shape[0], width = shape[1];
    table.push_back(softmax("every second entry", shape, as_view(mask_of({count, 2 * width}), shape, {2 * width, 2})));
    table.push_back(softmax("stored by columns", shape, as_view(mask_of({width, count}), shape, {1, count})));
  }
  table.push_back(softmax("a mask in several axes", {2, 3, 4, 40}, expanded(mask_of({3, 1, 40}), {2, 3, 4, 40})));
  for (const index_t width : {3, 1500, 9000}) {  // by every implementation for a row's width
    const Shape shape{4, width};
    table.push_back(softmax("not finite", shape, none()));
    table.back().prepare = [=](In in) {
      const double values[] = {nan, infinity, -infinity};
      for (index_t row = 0; row < 3; ++row)
        kernels(Device::cpu()).fill(in[0].view({1}, {1}, row * width + width / 2), values[row]);
    };
    table.back().loops = {}, table.back().dtypes = {DType::f32};
    table.push_back(softmax("no entries", shape, chosen(Numbers(place(4 * width), 0), shape, DType::boolean)));
    table.back().dtypes = {DType::f32}, table.back().terms = {0};
  }
  for (const index_t width : widths) table.push_back(softmax_backward({width > 1000 ? 2 : 6, width}));
  const Shape for_threads{700, 301}, scores{64, 1024};
  table.push_back(softmax("no mask", for_threads, none()).on_threads());
  table.push_back(softmax("a mask", for_threads, mask(for_threads)).on_threads());
  table.push_back(softmax_backward(for_threads).on_threads());
  table.push_back(softmax("no mask", scores, none()).counted(1));
  table.push_back(softmax("a mask", scores, mask(scores)).counted(1));
  table.push_back(softmax_backward(scores).counted(1));
  table.push_back(softmax("duals", {16, 256}, none())), table.back().dtypes = {DType::dual};
}

// ---- Norms: layer norm, with a bias and a mean, or root mean square norm.

struct OfNorm {
  index_t count, width;
  bool centered;
  // In rows this narrow nearly everything cancels; a large epsilon leaves something.
  double epsilon() const { return width <= 2 ? 1 : 1e-3; }
  Shape shape() const { return {count, width}; }
  std::string text(const char* of_a_sum) const { return to_text(shape(), centered ? ", centered" : "", of_a_sum); }
};
KernelCase norm(const OfNorm& of, bool added) {
  const std::size_t width = place(of.width);
  const auto normed = [=](In in, In) {
    // Rounded as it is stored.
    const Numbers x =
        added ? read(Tensor::of(mapped(in[0], in[1], std::plus<double>()), of.shape(), in[0].dtype())) : read(in[0]);
    const Numbers weight = read(in[2]), bias = of.centered ? read(in[3]) : Numbers(width, 0);
    Numbers y, mean, rstd;
    for (std::size_t row = 0; row < x.size(); row += width) {
      double m = 0, v = 0;
      for (std::size_t i = 0; of.centered && i < width; ++i) m += x[row + i] / static_cast<double>(width);
      for (std::size_t i = 0; i < width; ++i) v += (x[row + i] - m) * (x[row + i] - m) / static_cast<double>(width);
      mean.push_back(m), rstd.push_back(1 / std::sqrt(v + of.epsilon()));
      for (std::size_t i = 0; i < width; ++i) y.push_back((x[row + i] - m) * rstd.back() * weight[i] + bias[i]);
    }
    return Results{x, y, mean, rstd};
  };
  KernelCase row{"norm", of.text(added ? ", of a sum" : ""),
      {rows(of.shape()), added ? rows(of.shape()) : none(), rows({of.width}), of.centered ? rows({of.width}) : none()},
      {added ? rows(of.shape()) : none(), rows(of.shape()), of.centered ? wide(rows({of.count})) : none(),
          wide(rows({of.count}))},
      [=](Kernels& k, In in, In out) {
        k.norm(in[0], in[1], in[2], in[3], of.epsilon(), out[0], out[1], out[2], out[3]);
      },
      normed, {of.width}};
  row.launches = 1;
  if (added)
    row.composed = [=](Kernels& k, In in, In out) {
      k.binary(functions::Add{}, in[0], in[1], out[0]);
      k.norm(out[0], {}, in[2], in[3], of.epsilon(), {}, out[1], out[2], out[3]);
    };
  return row;
}
// `asked` has a bit each for dx, dweight and dbias.
KernelCase norm_backward(const OfNorm& of, unsigned asked, bool added) {
  const std::size_t width = place(of.width);
  const auto gradients = [=](In in, In) {
    const Numbers x = read(in[0]), weight = read(in[1]), rstd = read(in[3]), dy = read(in[5]);
    const Numbers mean = of.centered ? read(in[2]) : Numbers(rstd.size(), 0);
    Numbers dx = added ? read(in[4]) : Numbers(x.size(), 0), dweight(width), dbias(width);
    for (std::size_t row = 0; row < x.size(); row += width) {
      const double r = rstd[row / width];
      const auto n = [&](std::size_t i) { return (x[row + i] - mean[row / width]) * r; };
      double g = 0, gn = 0;
      for (std::size_t i = 0; i < width; ++i) {
        g += of.centered ? dy[row + i] * weight[i] / static_cast<double>(width) : 0;
        gn += dy[row + i] * weight[i] * n(i) / static_cast<double>(width);
        dweight[i] += dy[row + i] * n(i), dbias[i] += dy[row + i];
      }
      for (std::size_t i = 0; i < width; ++i) dx[row + i] += r * (dy[row + i] * weight[i] - g - n(i) * gn);
    }
    return Results{dx, dweight, dbias};
  };
  const auto if_asked = [=](unsigned bit, const Shape& shape) { return asked & bit ? rows(shape) : none(); };
  KernelCase row{"norm_backward", of.text(added ? ", of a sum" : "") + to_text(", asked for ", asked),
      {rows(of.shape()), rows({of.width}), of.centered ? wide(rows({of.count})) : none(), wide(rows({of.count})),
          added ? rows(of.shape()) : none(), rows(of.shape())},
      {if_asked(1, of.shape()), if_asked(2, {of.width}), if_asked(4, {of.width})},
      [](Kernels& k, In in, In out) {
        k.norm_backward(in[0], in[1], in[2], in[3], in[4], in[5], out[0], out[1], out[2]);
      },
      gradients, {of.width, of.count}};
  row.prepare = [=](In in) {
    const Tensor bias = of.centered ? in[1] : Tensor();
    kernels(in[0]).norm(in[0], {}, in[1], bias, of.epsilon(), {}, Tensor::like(in[0]), in[2], in[3]);
  };
  row.size = of.width <= 2 ? 1.0 : 0.0, row.launches = asked & 6 ? 2u : 1u;
  return row;
}
void add_norms(KernelCases& table) {
  // Backward goes over chunks of 16 rows or more; for each chunk a thread keeps two sums of every column that it has.
  for (const index_t width : {1, 2, 31, 32, 33, 255, 256, 360, 1000, 1024, 1025, 5000, 9000}) {
    for (const bool centered : {true, false}) {
      const OfNorm of{width == 33 ? 300 : 5, width, centered}, of_chunks{18, width, centered};
      const unsigned all = centered ? 7 : 3;
      if (width >= 5000)
        table.push_back(norm_backward(of_chunks, all, false)), table.back().dtypes = {DType::f32, DType::dual};
      table.push_back(norm(of, false));
      for (const unsigned asked : {all, 1u, 2u, 4u})
        if (asked != 4 || centered) table.push_back(norm_backward(of, asked, false));
      if (width == 1 || width == 31 || width == 32 || width == 255 || width == 1000) continue;
      table.push_back(norm(of, true));
      table.push_back(norm_backward(of, all, true));
    }
  }
  table.push_back(norm_backward({700, 301, true}, 7, false).on_threads());
  table.push_back(norm({64, 768, true}, false).counted(1));
  table.push_back(norm_backward({64, 768, true}, 7, false).counted(2));
}

// ---- Cross-entropy, and running sums.

// Calls f(row, index of its first number, its target) for each row that is not ignored.
template <class F> void each_row(const Tensor& target, index_t width, const F& f) {
  const Numbers targets = read(target);
  for (std::size_t row = 0; row < targets.size(); ++row)
    if (targets[row] >= 0) f(row, row * place(width), static_cast<std::size_t>(targets[row]));
}
KernelCase cross_entropy(index_t count, index_t width) {
  const auto losses = [=](In in, In) {
    const Numbers x = read(in[0]);
    Numbers norm, loss(place(count));
    for (index_t row = 0; row < count; ++row) norm.insert(norm.end(), {0, 1});
    each_row(in[1], width, [&](std::size_t row, std::size_t first, std::size_t target) {
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first);
      const double top = *std::max_element(begin, begin + width);
      double total = 0;
      for (std::size_t i = 0; i < place(width); ++i) total += std::exp(x[first + i] - top);
      norm[2 * row] = top, norm[2 * row + 1] = total, loss[row] = std::log(total) - (x[first + target] - top);
    });
    return Results{norm, loss};
  };
  KernelCase row{"cross_entropy", to_text(count, " rows of ", width), {rows({count, width}), below(width, {count})},
      {wide(rows({count, 2})), wide(rows({count}))},
      [](Kernels& k, In in, In out) { k.cross_entropy(in[0], in[1], -7, out[0], out[1]); }, losses, {width}};
  row.prepare = [=](In in) { in[1].data<index_t>()[0] = width - 1, in[1].data<index_t>()[1] = -7; };
  row.size = width == 1 ? 1.0 : 0.0, row.launches = 1;
  return row;
}
KernelCase cross_entropy_backward(index_t count, index_t width) {
  KernelCase row = cross_entropy(count, width);
  row.kernel = "cross_entropy_backward";
  row.in.push_back(wide(rows({count, 2}))), row.in.push_back(wide(rows({1})));
  row.out = {rows({count, width})};
  row.prepare = [=, of_targets = row.prepare](In in) {
    of_targets(in);
    kernels(in[0]).cross_entropy(in[0], in[1], -7, in[2], Tensor::like(in[2], {count}));
  };
  row.call = [](Kernels& k, In in, In out) { k.cross_entropy_backward(in[0], in[1], -7, in[2], in[3], 0.125, out[0]); };
  row.loops = [=](In in, In) {
    const Numbers x = read(in[0]), norm = read(in[2]);
    const double dy = read(in[3])[0] * 0.125;
    Numbers dx(x.size());
    each_row(in[1], width, [&](std::size_t r, std::size_t first, std::size_t target) {
      for (std::size_t i = 0; i < place(width); ++i)
        dx[first + i] = dy * (std::exp(x[first + i] - norm[2 * r]) / norm[2 * r + 1] - (i == target ? 1 : 0));
    });
    return dx;
  };
  return row;
}
KernelCase running_sum(const Shape& shape, bool reverse) {
  const auto sums = [=](In in, In) {
    Numbers y = read(in[0]);
    const std::size_t last = y.size() - 1;
    for (std::size_t n = 0; n < y.size(); ++n)
      if (n % place(shape[-1]) != 0) y[reverse ? last - n : n] += y[reverse ? last - n + 1 : n - 1];
    return y;
  };
  return {"cumulative_sum", to_text(shape, reverse ? ", from the end" : ""), {rows(shape)}, {rows(shape)},
      [=](Kernels& k, In in, In out) { k.cumulative_sum(in[0], reverse, out[0]); }, sums, {shape[-1]}};
}
// From 16 bits into f32, or from f32 into 16 bits: the bits of a cast before the sums, or after them.
KernelCase mixed_sum(const Shape& shape, bool reverse, bool widens) {
  KernelCase row = running_sum(shape, reverse);
  (widens ? row.out : row.in)[0] = wide(rows(shape));
  row.name += widens ? ", wide" : ", of wide", row.dtypes = {DType::f16, DType::bf16};
  row.composed = [=](Kernels& k, In in, In out) {
    const Tensor cast = Tensor::empty(shape, DType::f32, in[0].device());
    if (widens) k.copy(in[0], cast);
    k.cumulative_sum(widens ? cast : in[0], reverse, widens ? out[0] : cast);
    if (!widens) k.copy(cast, out[0]);
  };
  return row;
}

}  // namespace

KernelCases row_cases() {
  KernelCases table;
  add_reductions(table), add_softmax(table), add_norms(table);
  for (const index_t width : widths) {
    table.push_back(cross_entropy(width > 1000 ? 3 : 9, width));
    table.push_back(cross_entropy_backward(width > 1000 ? 3 : 9, width));
  }
  for (const bool reverse : {false, true}) {
    for (const index_t width : {0, 1, 2, 7, 16, 31, 32, 33, 255, 256, 260, 1000, 1024, 1025, 5000, 9000})
      table.push_back(running_sum({width > 1000 ? 2 : 5, width}, reverse));
    for (const index_t width : {0, 7, 512, 2052})
      for (const bool widens : {false, true}) table.push_back(mixed_sum({3, width}, reverse, widens));
    table.push_back(running_sum({700, 301}, reverse).on_threads());
  }
  table.push_back(cross_entropy(64, 1024).counted(1));
  table.push_back(cross_entropy_backward(64, 1024).counted(1));
  table.push_back(running_sum({64, 1024}, false).counted(1));
  table.push_back(mixed_sum({64, 1024}, true, true).counted(1));
  return table;
}

}  // namespace whence::test

using namespace whence;
using namespace whence::test;

TEST_CASE("kernels that work along axes") { walk_on_cpu(row_cases()); }

TEST_CASE("reduce of nothing, of one, of a scalar; argmax of columns") {
  CHECK(read(raw::reduce(Reduction::sum, Tensor::zeros({3, 0}), {1}, false)) == std::vector<double>{0, 0, 0});
  CHECK(raw::reduce(Reduction::sum, Tensor::zeros({0, 3}), {1}, false).shape() == Shape{0});
  CHECK(raw::reduce(Reduction::sum, Tensor::zeros({0}), {}, false).item() == 0);
  CHECK(raw::reduce(Reduction::sum, Tensor::scalar(4), {}, false).item() == 4);
  CHECK(raw::reduce(Reduction::maximum, Tensor::zeros({0, 3}), {1}, false).numel() == 0);
  CHECK(raw::reduce(Reduction::sum, Tensor::ones({2, 3, 4}), {0, 2}, false).shape() == Shape{3});
  CHECK(raw::reduce(Reduction::maximum, Tensor::full({50}, -INFINITY), {}, false).item() == -INFINITY);
  CHECK(read(raw::argmax(raw::transpose(Tensor::of({1, 3, 2, 3, 2, 3}, {2, 3})))) == std::vector<double>{1, 0, 1});
}

TEST_CASE("softmax at the edges") {
  CHECK(read(softmax(Tensor::of({1e4, 1e4, -1e30}, {3}))) == std::vector<double>{0.5, 0.5, 0});
  CHECK(read(softmax(Tensor::of({0, -INFINITY}, {2}))) == std::vector<double>{1, 0});
  const Tensor none = Tensor::zeros({3}, DType::boolean), first = Tensor::of({1, 0, 0}, {3}, DType::boolean);
  CHECK(read(softmax(Tensor::of({1, NAN, INFINITY}, {3}), none)) == std::vector<double>{0, 0, 0});
  CHECK(read(softmax(Tensor::of({1, NAN, INFINITY}, {3}), first)) == std::vector<double>{1, 0, 0});
  const auto poisoned = read(softmax(Tensor::of({NAN, 2, 3}, {3}), first));  // NaN stays inside what is kept
  CHECK(std::isnan(poisoned[0]));
  CHECK(poisoned[1] == 0);
  CHECK(poisoned[2] == 0);
}
