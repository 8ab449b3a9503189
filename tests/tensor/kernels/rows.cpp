// Kernels that work along axes (reduce, argmax, softmax, layer norm, cumulative sum) against plain loops in double.
#include <limits>

#include "autograd/ops.h"
#include "tensor/kernels.h"
#include "tensor/raw.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

// Sums or maxima over `axes` (a bit per axis), in long double, in order.
std::vector<double> reduce_reference(Reduction f, const Tensor& x, unsigned axes) {
  Shape shape = x.shape();
  for (int axis = 0; axis < x.rank(); ++axis)
    if (axes >> axis & 1) shape[axis] = 1;
  const bool sum = f == Reduction::sum;
  std::vector<long double> result(static_cast<std::size_t>(numel(shape)), sum ? 0 : -INFINITY);
  const auto values = read(x);
  std::size_t i = 0;
  for_each_position(x.shape(), [&](const std::vector<index_t>& p) {
    index_t place = 0;
    for (int axis = 0; axis < x.rank(); ++axis)
      place = place * shape[axis] + (axes >> axis & 1 ? 0 : p[static_cast<std::size_t>(axis)]);
    long double& total = result[static_cast<std::size_t>(place)];
    total = sum ? total + values[i] : std::fmax(total, values[i]);
    ++i;
  });
  return {result.begin(), result.end()};
}

std::vector<int> axes_of(unsigned bits, int rank) {
  std::vector<int> axes;
  for (int axis = 0; axis < rank; ++axis)
    if (bits >> axis & 1) axes.push_back(axis);
  return axes;
}

void check_reduce(const Tensor& x, Reduction f, unsigned bits) {
  const Guards guards;
  CAPTURE(std::string(to_string(x.dtype())));
  CAPTURE(x.shape());
  CAPTURE(bits);
  CAPTURE(static_cast<int>(f));
  const Tensor y = raw::reduce(f, x, axes_of(bits, x.rank()), true);
  index_t length = y.numel() > 0 ? x.numel() / y.numel() : 1;
  expect_close(read(y), reduce_reference(f, x, bits), x.dtype(), length);
  CHECK(y.storage().guards_intact());
}

std::vector<double> softmax_reference(
    const std::vector<double>& x, const std::vector<double>& mask, std::size_t width) {
  std::vector<double> y(x.size(), 0);
  for (std::size_t row = 0; row < x.size(); row += width) {
    double top = -INFINITY, total = 0;
    for (std::size_t i = row; i < row + width; ++i) top = mask[i] != 0 ? std::fmax(top, x[i]) : top;
    for (std::size_t i = row; i < row + width; ++i) total += y[i] = mask[i] != 0 ? std::exp(x[i] - top) : 0;
    for (std::size_t i = row; i < row + width; ++i) y[i] = total > 0 ? y[i] / total : 0;
  }
  return y;
}

Tensor softmax_backward(const Tensor& y, const Tensor& dy) {
  const Tensor dx = Tensor::empty(y.shape(), y.dtype());
  kernels({}).softmax_backward(y, raw::contiguous(dy), dx);
  return dx;
}

}  // namespace

TEST_CASE("reduce over every set of axes, every dtype and layout") {
  for (const DType dtype : floating_dtypes) {
    for (const Layout layout : layouts) {
      for (const Shape& shape : {Shape{7}, Shape{3, 5}, Shape{2, 3, 4}, Shape{3, 1, 2, 5}}) {
        const Tensor x = random_tensor(shape, dtype, 1, layout);
        for (unsigned bits = 1; bits < 1u << shape.rank(); ++bits) {
          check_reduce(x, Reduction::sum, bits);
          check_reduce(x, Reduction::maximum, bits);
        }
      }
    }
  }
}

TEST_CASE("reduce over axes long enough to be cut into chunks") {
  const std::vector<std::pair<Shape, std::vector<unsigned>>> cases{{{2, 33000}, {1, 2, 3}}, {{2000, 20}, {1, 3}},
      {{700, 90}, {1, 2, 3}}, {{3, 900, 30}, {2, 5, 6, 7}}, {{40, 3, 300}, {5}}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::dual}) {
    for (const Layout layout : {Layout::contiguous, Layout::permuted}) {
      for (const auto& [shape, sets] : cases) {
        const Tensor x = random_tensor(shape, dtype, 2, layout);
        for (const unsigned bits : sets) check_reduce(x, Reduction::sum, bits);
        check_reduce(x, Reduction::maximum, sets.back());
      }
    }
  }
}

TEST_CASE("reduce of nothing, of one, of a scalar; NaN wins a maximum") {
  CHECK(read(raw::reduce(Reduction::sum, Tensor::zeros({3, 0}), {1}, false)) == std::vector<double>{0, 0, 0});
  CHECK(raw::reduce(Reduction::sum, Tensor::zeros({0, 3}), {1}, false).shape() == Shape{0});
  CHECK(raw::reduce(Reduction::sum, Tensor::zeros({0}), {}, false).item() == 0);
  CHECK(raw::reduce(Reduction::sum, Tensor::scalar(4), {}, false).item() == 4);
  CHECK(raw::reduce(Reduction::maximum, Tensor::zeros({0, 3}), {1}, false).numel() == 0);
  CHECK(raw::reduce(Reduction::sum, Tensor::ones({2, 3, 4}), {0, 2}, false).shape() == Shape{3});
  for (const index_t at : {0, 3, 99, 199}) {
    const Tensor x = random_tensor({200}, DType::f32, 3);
    x.data<float>()[at] = NAN;
    CHECK(std::isnan(raw::reduce(Reduction::maximum, x, {}, false).item()));
    CHECK(std::isnan(raw::reduce(Reduction::maximum, raw::expand(raw::unsqueeze(x, 1), {200, 3}), {0}, false).at({1})));
    CHECK(raw::argmax(x).item() == at);
  }
  CHECK(raw::reduce(Reduction::maximum, Tensor::full({50}, -INFINITY), {}, false).item() == -INFINITY);
}

TEST_CASE("a dual sum carries tangents, a dual maximum that of the winner") {
  const Tensor x = random_tensor({3, 50}, DType::dual, 4);
  const auto values = read(x), tangents = read(x, true), sums = read(raw::reduce(Reduction::sum, x, {1}, false), true),
             tops = read(raw::reduce(Reduction::maximum, x, {1}, false), true);
  for (std::size_t row = 0; row < 3; ++row) {
    double total = 0;
    std::size_t best = row * 50;
    for (std::size_t i = row * 50; i < row * 50 + 50; ++i)
      total += tangents[i], best = values[i] > values[best] ? i : best;
    CHECK(std::fabs(sums[row] - total) < 1e-12);
    CHECK(tops[row] == tangents[best]);
  }
}

TEST_CASE("sum_to is the adjoint of expand") {
  const Tensor x = random_tensor({2, 3, 4}, DType::f64, 5);
  for (const Shape& shape : {Shape{2, 3, 4}, Shape{3, 1}, Shape{4}, Shape{}, Shape{2, 1, 1}, Shape{1, 1, 4}}) {
    const Tensor y = random_tensor(shape, DType::f64, 6);
    const auto left = read(raw::binary("test", functions::Multiply{}, sum_to(x, shape), y));
    const auto right = read(raw::binary("test", functions::Multiply{}, x, raw::expand(y, x.shape())));
    double a = 0, b = 0;
    for (const double v : left) a += v;
    for (const double v : right) b += v;
    CHECK(sum_to(x, shape).shape() == shape);
    CHECK(std::fabs(a - b) < 1e-12);
  }
}

TEST_CASE("argmax is the first of equals") {
  for (const DType dtype : floating_dtypes) {
    const Tensor x = Tensor::of({1, 3, 3, 2, -1, -2, -1, -5, 0, 0, 0, 0}, {3, 4}, dtype);
    CHECK(read(raw::argmax(x)) == std::vector<double>{1, 0, 0});
    CHECK(read(raw::argmax(raw::transpose(x))) == std::vector<double>{0, 0, 0, 0});
  }
}

TEST_CASE("softmax, with and without masks of any strides") {
  const Guards guards;
  for (const DType dtype : floating_dtypes) {
    for (const Layout layout : layouts) {
      for (const Shape& shape : {Shape{5}, Shape{3, 1}, Shape{2, 3, 4, 70}, Shape{0, 4}, Shape{2, 0}, Shape{4, 600}}) {
        const Tensor x = random_tensor(shape, dtype, 7, layout);
        const std::size_t width = static_cast<std::size_t>(shape[-1]);
        CAPTURE(std::string(to_string(dtype)));
        CAPTURE(name_of(layout));
        CAPTURE(shape);
        const Tensor y = softmax(x);
        if (x.numel() > 0)
          expect_close(
              read(y), softmax_reference(read(x), std::vector<double>(read(x).size(), 1), width), dtype, shape[-1]);
        CHECK(y.storage().guards_intact());
        for (const int stretched : {0, 1, 2}) {  // a mask of its own; one per row; one row for all
          Shape mask_shape = shape;
          for (int axis = 0; axis < shape.rank(); ++axis)
            if ((stretched == 1 && axis + 1 == shape.rank()) || (stretched == 2 && axis + 1 < shape.rank()))
              mask_shape[axis] = 1;
          const Tensor mask = Tensor::empty(mask_shape, DType::boolean);
          for (index_t i = 0; i < mask.numel(); ++i)
            mask.data<bool>()[i] = i % 5 != 2 && (stretched != 1 || i % 2 == 0);
          const Tensor masked = softmax(x, mask);
          if (x.numel() > 0)
            expect_close(
                read(masked), softmax_reference(read(x), read(raw::expand(mask, shape)), width), dtype, shape[-1]);
          CHECK(masked.storage().guards_intact());
        }
      }
    }
  }
}

TEST_CASE("softmax at the edges") {
  CHECK(read(softmax(Tensor::of({1e4, 1e4, -1e30}, {3}))) == std::vector<double>{0.5, 0.5, 0});
  CHECK(read(softmax(Tensor::of({0, -INFINITY}, {2}))) == std::vector<double>{1, 0});
  for (const double v : read(softmax(Tensor::of({INFINITY, 0}, {2})))) CHECK((std::isnan(v) || v == 0));
  CHECK(std::isnan(softmax(Tensor::of({INFINITY, 0}, {2})).at({0})));
  for (const double v : read(softmax(Tensor::of({NAN, 0}, {2})))) CHECK(std::isnan(v));
  const Tensor none = Tensor::zeros({3}, DType::boolean), first = Tensor::of({1, 0, 0}, {3}, DType::boolean);
  CHECK(read(softmax(Tensor::of({1, NAN, INFINITY}, {3}), none)) == std::vector<double>{0, 0, 0});
  CHECK(read(softmax(Tensor::of({1, NAN, INFINITY}, {3}), first)) == std::vector<double>{1, 0, 0});
  const auto poisoned = read(softmax(Tensor::of({NAN, 2, 3}, {3}), first));  // NaN stays inside what is kept
  CHECK(std::isnan(poisoned[0]));
  CHECK(poisoned[1] == 0);
  CHECK(poisoned[2] == 0);
}

TEST_CASE("softmax_backward, every dtype") {
  for (const DType dtype : floating_dtypes) {
    const Tensor y = softmax(random_tensor({6, 130}, dtype, 8)),
                 dy = random_tensor({6, 130}, dtype, 9, Layout::permuted);
    const auto p = read(y), d = read(dy);
    std::vector<double> expected(p.size());
    for (std::size_t row = 0; row < p.size(); row += 130) {
      double mean = 0;
      for (std::size_t i = row; i < row + 130; ++i) mean += p[i] * d[i];
      for (std::size_t i = row; i < row + 130; ++i) expected[i] = p[i] * (d[i] - mean);
    }
    expect_close(read(softmax_backward(y, dy)), expected, dtype, 130);
  }
}

TEST_CASE("layer norm and its backward, every dtype") {
  const index_t rows = 70, width = 33;
  for (const DType dtype : floating_dtypes) {
    const Tensor x = random_tensor({rows, width}, dtype, 10), w = random_tensor({width}, dtype, 11),
                 b = random_tensor({width}, dtype, 12);
    const Tensor dy = random_tensor({rows, width}, dtype, 13), y = Tensor::empty({rows, width}, dtype),
                 dx = Tensor::empty({rows, width}, dtype);
    const DType kept = compute_dtype(dtype);
    const Tensor mean = Tensor::empty({rows}, kept), rstd = Tensor::empty({rows}, kept),
                 dw = Tensor::empty({width}, dtype), db = Tensor::empty({width}, dtype);
    kernels({}).norm(x, {}, w, b, 1e-5, {}, y, mean, rstd);
    kernels({}).norm_backward(x, w, mean, rstd, {}, dy, dx, dw, db);
    const auto xs = read(x), ws = read(w), bs = read(b), ds = read(dy);
    std::vector<double> ey(xs.size()), edx(xs.size()), edw(ws.size()), edb(ws.size());
    for (std::size_t row = 0; row < xs.size(); row += width) {
      double m = 0, v = 0, g = 0, gn = 0;
      for (std::size_t i = 0; i < width; ++i) m += xs[row + i] / width;
      for (std::size_t i = 0; i < width; ++i) v += (xs[row + i] - m) * (xs[row + i] - m) / width;
      const double r = 1 / std::sqrt(v + 1e-5);
      for (std::size_t i = 0; i < width; ++i) {
        const double n = (xs[row + i] - m) * r;
        ey[row + i] = n * ws[i] + bs[i];
        g += ds[row + i] * ws[i] / width, gn += ds[row + i] * ws[i] * n / width;
        edw[i] += ds[row + i] * n, edb[i] += ds[row + i];
      }
      for (std::size_t i = 0; i < width; ++i) edx[row + i] = r * (ds[row + i] * ws[i] - g - (xs[row + i] - m) * r * gn);
    }
    CAPTURE(std::string(to_string(dtype)));
    expect_close(read(y), ey, dtype, width);
    expect_close(read(dx), edx, dtype, width);
    expect_close(read(dw), edw, dtype, rows);
    expect_close(read(db), edb, dtype, rows);
  }
}

TEST_CASE("cumulative sums forwards and backwards, every dtype, layout and width") {
  const Guards guards;
  for (const DType dtype : floating_dtypes) {
    for (const Layout layout : layouts) {
      for (const index_t width : {1, 7, 16, 33, 260}) {
        const Tensor x = random_tensor({3, width}, dtype, 14, layout);
        for (const bool reverse : {false, true}) {
          const Tensor y = reverse ? reverse_cumulative_sum(x) : cumulative_sum(x);
          for (const bool tangents : {false, true}) {
            auto expected = read(x, tangents);
            for (index_t row = 0; row < 3; ++row) {
              for (index_t j = 1; j < width; ++j) {
                const index_t at = row * width + (reverse ? width - 1 - j : j), before = reverse ? at + 1 : at - 1;
                expected[static_cast<std::size_t>(at)] += expected[static_cast<std::size_t>(before)];
              }
            }
            CAPTURE(std::string(to_string(dtype)));
            CAPTURE(name_of(layout));
            CAPTURE(width);
            CAPTURE(reverse);
            expect_close(read(y, tangents), expected, dtype, width);
          }
          CHECK(y.storage().guards_intact());
        }
      }
    }
  }
  CHECK(cumulative_sum(Tensor::zeros({3, 0})).numel() == 0);
}

TEST_CASE("row kernels give the same bits for any number of threads") {
  const Tensor x = random_tensor({700, 301}, DType::f32, 15), y = random_tensor({700, 301}, DType::f32, 16);
  const Tensor mask = raw::cast(raw::binary("test", functions::GreaterEqual{}, x, y), DType::boolean);
  for (const auto& axes : {std::vector<int>{0}, {1}, {0, 1}}) {
    expect_thread_independent("sum", [&] { return raw::reduce(Reduction::sum, x, axes, false); });
    expect_thread_independent("maximum", [&] { return raw::reduce(Reduction::maximum, x, axes, false); });
    expect_thread_independent(
        "sum of a transposed view", [&] { return raw::reduce(Reduction::sum, raw::transpose(x), axes, false); });
  }
  expect_thread_independent("softmax", [&] { return softmax(x); });
  expect_thread_independent("masked softmax", [&] { return softmax(x, mask); });
  expect_thread_independent("softmax_backward", [&] { return softmax_backward(x, y); });
  expect_thread_independent("cumulative_sum", [&] { return reverse_cumulative_sum(x); });
  const Tensor w = random_tensor({301}, DType::f32, 17), mean = Tensor::empty({700}), rstd = Tensor::empty({700});
  kernels({}).norm(x, {}, w, w, 1e-5, {}, Tensor::empty({700, 301}), mean, rstd);
  for (const int part : {0, 1, 2}) {
    expect_thread_independent("layer_norm_backward", [&] {
      const Tensor dx = Tensor::empty({700, 301}), dw = Tensor::empty({301}), db = Tensor::empty({301});
      kernels({}).norm_backward(x, w, mean, rstd, {}, y, dx, dw, db);
      return part == 0 ? dx : part == 1 ? dw : db;
    });
  }
}
