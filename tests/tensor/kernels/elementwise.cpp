// Kernels for single elements (fill, copy, masked, unary, binary, adam, scatter) against plain loops in double.
#include "tensor/kernels.h"

#include <limits>

#include "autograd/ops.h"
#include "tensor/adam.h"
#include "tensor/raw.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

const std::vector<Shape> shapes{
    {}, {1}, {7}, {3, 5}, {2, 3, 4}, {4, 1, 9}, {2, 300}, {0}, {3, 0, 2}, {2, 2, 1, 3, 2, 2}};

UnaryAttributes attributes_of(Unary f) { return facts_of(f).samples.attributes; }
std::string name_of(Unary f) { return facts_of(f).name; }

// One number in double, without tensors and kernels; that the formula is right is tests/cuda/backend.cpp's business.
double value_of(Unary f, double x) {
  return visit(f, [&]<class F>(F) { return F::value(x, attributes_of(f)); });
}
Tensor applied(Unary f, const Tensor& x) { return raw::unary(f, x, attributes_of(f)); }
Tensor derivative(Unary f, const Tensor& saved, const Tensor& dy) {
  const Tensor dx = Tensor::empty(dy.shape(), dy.dtype());
  kernels({}).unary_backward(f, attributes_of(f), saved, dy, dx);
  return dx;
}
Tensor second(Unary f, const Tensor& saved, const Tensor& dy) {
  const Tensor dx = Tensor::empty(dy.shape(), dy.dtype());
  kernels({}).unary_second(f, attributes_of(f), saved, dy, dx);
  return dx;
}

// Numbers where f is defined and not steep.
Tensor argument_of(Unary f, const Shape& shape, DType dtype, std::uint64_t seed, Layout layout) {
  const Tensor x = random_tensor(shape, dtype, seed, layout);
  const double low = facts_of(f).samples.low;
  if (low == UnaryFacts::Samples().low) return x;
  return raw::unary(functions::Affine{}, raw::unary(functions::Abs{}, x), {1, low});
}

template <class F> std::vector<double> map(const std::vector<double>& x, const F& f) {
  std::vector<double> y;
  for (const double value : x) y.push_back(f(value));
  return y;
}

}  // namespace

// One step for one parameter that decays.
static void adam(
    const AdamStep& step, const Tensor& gradient, const Tensor& weight, const Tensor& first, const Tensor& second) {
  const AdamEntry entry{gradient, weight, first, second, {}, true};
  kernels({}).adam_all(step, {}, {&entry, 1});
}

TEST_CASE("unary functions, every dtype, layout and shape") {
  const Guards guards;
  for (const Unary f : Unary::all()) {
    for (const DType dtype : floating_dtypes) {
      for (const Layout layout : layouts) {
        for (const Shape& shape : shapes) {
          const Tensor x = argument_of(f, shape, dtype, 1, layout), y = applied(f, x);
          CAPTURE(name_of(f));
          CAPTURE(std::string(to_string(dtype)));
          CAPTURE(name_of(layout));
          CAPTURE(shape);
          expect_close(read(y), map(read(x), [&](double v) { return value_of(f, v); }), dtype);
          CHECK(y.storage().guards_intact());
        }
      }
    }
  }
}

TEST_CASE("derivatives of unary functions against central differences in f64") {
  constexpr double h = 1e-5;
  for (const Unary f : Unary::all()) {
    for (const Layout layout : layouts) {
      const Tensor x = argument_of(f, {4, 70}, DType::f64, 2, layout),
                   dy = random_tensor({4, 70}, DType::f64, 3, layout);
      const Tensor saved = facts_of(f).saves == Saves::output ? applied(f, x) : x;
      const auto xs = read(x), dys = read(dy), kepts = read(saved);
      CAPTURE(name_of(f));
      CAPTURE(name_of(layout));
      const auto got = read(derivative(f, saved, dy));
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double slope = dys[i] * (value_of(f, xs[i] + h) - value_of(f, xs[i] - h)) / (2 * h);
        CHECK(std::fabs(got[i] - slope) < 1e-7 * std::max(1.0, std::fabs(slope)));
      }
      // the second: f' as a function of what is saved
      const auto above = read(derivative(f, raw::unary(functions::Affine{}, saved, {1, h}), dy));
      const auto below = read(derivative(f, raw::unary(functions::Affine{}, saved, {1, -h}), dy));
      const auto seconds = read(second(f, saved, dy));
      for (std::size_t i = 0; i < seconds.size(); ++i) {
        const double slope = kepts[i] == 0 ? 0 : (above[i] - below[i]) / (2 * h);  // relu's output 0 is its kink
        CHECK(std::fabs(seconds[i] - slope) < 1e-6 * std::max(1.0, std::fabs(slope)));
      }
    }
  }
}

TEST_CASE("derivatives in every dtype agree with f64") {
  for (const Unary f : Unary::all()) {
    for (const DType dtype : floating_dtypes) {
      const Tensor saved = argument_of(f, {3, 50}, dtype, 4, Layout::permuted),
                   dy = random_tensor({3, 50}, dtype, 5, Layout::sliced);
      const Tensor exact_saved = raw::cast(saved, DType::f64), exact_dy = raw::cast(dy, DType::f64);
      CAPTURE(name_of(f));
      CAPTURE(std::string(to_string(dtype)));
      expect_close(read(derivative(f, saved, dy)), read(derivative(f, exact_saved, exact_dy)), dtype);
      if (dtype == DType::dual) continue;
      expect_close(read(second(f, saved, dy)), read(second(f, exact_saved, exact_dy)), dtype);
    }
  }
}

TEST_CASE("a dual carries the derivative along") {
  constexpr double h = 1e-5;
  for (const Unary f : Unary::all()) {
    const Tensor x = argument_of(f, {80}, DType::dual, 6, Layout::contiguous);
    const auto values = read(x), tangents = read(x, true), got = read(applied(f, x), true);
    CAPTURE(name_of(f));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double slope = tangents[i] * (value_of(f, values[i] + h) - value_of(f, values[i] - h)) / (2 * h);
      CHECK(std::fabs(got[i] - slope) < 1e-7 * std::max(1.0, std::fabs(slope)));
    }
  }
}

TEST_CASE("binary functions broadcast, every dtype and layout") {
  const Guards guards;
  const std::vector<std::pair<Shape, Shape>> pairs{{{3, 5}, {3, 5}}, {{3, 5}, {5}}, {{3, 1}, {1, 5}}, {{}, {4}},
      {{2, 3, 4}, {3, 1}}, {{4, 300}, {4, 1}}, {{0, 3}, {3}}, {{1, 1}, {1}}};
  for (const Binary f : Binary::all()) {
    for (const DType dtype : floating_dtypes) {
      for (const Layout layout : layouts) {
        for (const auto& pair : pairs) {
          const Shape left = pair.first, right = pair.second;
          const Tensor a = random_tensor(left, dtype, 7, layout),
                       b = raw::unary(functions::Affine{}, random_tensor(right, dtype, 8, layout), {1, 3});
          const Tensor y = raw::binary("test", f, a, b);
          CAPTURE(std::string(facts_of(f).name));
          CAPTURE(std::string(to_string(dtype)));
          CAPTURE(name_of(layout));
          CAPTURE(left);
          CAPTURE(right);
          const Shape shape = broadcast_shapes("test", left, right);
          REQUIRE(y.shape() == shape);
          const auto as = read(raw::expand(a, shape)), bs = read(raw::expand(b, shape));
          std::vector<double> expected;
          for (std::size_t i = 0; i < as.size(); ++i)
            expected.push_back(visit(f, [&]<class F>(F) { return F::value(as[i], bs[i]); }));
          expect_close(read(y), expected, dtype);
          CHECK(y.storage().guards_intact());
        }
      }
    }
  }
}

TEST_CASE("copy converts every dtype into every other with one rounding") {
  const std::vector<double> values{
      0, 1, -1, 2.5, -2.5, 3.75, 100, 127.5, 1e-8, 65504, 70000, -3e9, 1.0009765625, 1.00048828125001};
  const std::vector<DType> all{
      DType::f16, DType::bf16, DType::f32, DType::f64, DType::i32, DType::i64, DType::boolean, DType::dual};
  const Shape shape{2, 7};
  for (const DType from : all) {
    for (const DType to : all) {
      const Tensor x = raw::cast(Tensor::of(values, shape, DType::f64), from), y = raw::cast(raw::transpose(x), to);
      const auto in = read(raw::transpose(x)), out = read(y);
      CAPTURE(std::string(to_string(from)));
      CAPTURE(std::string(to_string(to)));
      for (std::size_t i = 0; i < in.size(); ++i) {
        double expected = in[i];
        if (to == DType::boolean) expected = in[i] != 0;
        if (to == DType::i32) expected = std::fmin(std::fmax(std::trunc(in[i]), -2147483648.0), 2147483647.0);
        if (to == DType::i64) expected = std::fmin(std::fmax(std::trunc(in[i]), -0x1p63), 0x1p63);
        if (from == DType::i64 && to == DType::i32 && expected != in[i]) continue;  // the bits of an integer wrap
        if (to == DType::f32) expected = static_cast<double>(static_cast<float>(in[i]));
        if (to == DType::f16 || to == DType::bf16) {
          expect_close(
              {out[i]}, {std::fabs(in[i]) > 65519 && to == DType::f16 ? std::copysign(INFINITY, in[i]) : in[i]}, to);
          continue;
        }
        CHECK(out[i] == expected);
      }
    }
  }
  // just above the tie between 1 and the next half: through a float it would be a tie and go to 1
  CHECK(raw::cast(Tensor::scalar(1 + 0x1p-11 + 0x1p-40, DType::f64), DType::f16).item() == 1 + 0x1p-10);
  CHECK(raw::cast(Tensor::scalar(1 + 0x1p-8 + 0x1p-40, DType::f64), DType::bf16).item() == 1 + 0x1p-7);
  CHECK(raw::cast(Tensor::scalar(NAN), DType::i32).item() == 0);
}

TEST_CASE("fill and copy reach any strides and nothing else") {
  const Guards guards;
  for (const DType dtype : {DType::boolean, DType::f16, DType::f32, DType::i64, DType::dual}) {
    const Tensor block = Tensor::zeros({6, 10}, dtype);
    kernels({}).fill(raw::slice(raw::slice(block, 0, 1, 5, 2), 1, 3, 9, 3), 1);
    const auto values = read(block);
    std::size_t i = 0;
    for (const auto& p : positions({6, 10}))
      CHECK(values[i++] == ((p[0] == 1 || p[0] == 3) && (p[1] == 3 || p[1] == 6) ? 1 : 0));
    CHECK(block.storage().guards_intact());
  }
  for (const Layout layout : layouts) {
    for (const DType dtype : floating_dtypes) {
      const Tensor x = random_tensor({3, 40, 50}, dtype, 9, layout), copy = raw::copy(raw::permute(x, {1, 2, 0}));
      CHECK(read(copy) == read(raw::permute(x, {1, 2, 0})));
      CHECK(read(copy, true) == read(raw::permute(x, {1, 2, 0}), true));
      CHECK(copy.storage().guards_intact());
    }
  }
}

TEST_CASE("keep puts a value where the mask is false") {
  for (const DType dtype : floating_dtypes) {
    for (const Layout layout : layouts) {
      for (const Shape& mask_shape : {Shape{2, 3, 4, 20}, Shape{1, 1, 4, 20}, Shape{2, 3, 4, 1}, Shape{20}, Shape{}}) {
        const Tensor x = random_tensor({2, 3, 4, 20}, dtype, 10, layout);
        const Tensor bits = Tensor::empty(mask_shape, DType::boolean);
        for (index_t i = 0; i < bits.numel(); ++i) bits.data<bool>()[i] = i % 3 != 1;
        const auto xs = read(x), saved = read(masked(x, bits, -7)), where = read(raw::expand(bits, x.shape()));
        bool right = true;
        for (std::size_t i = 0; i < xs.size(); ++i) right = right && saved[i] == (where[i] != 0 ? xs[i] : -7);
        CHECK_MESSAGE(right, to_string(dtype), " ", name_of(layout), " mask ", mask_shape);
      }
    }
  }
}

TEST_CASE("scatter_add_rows adds in order") {
  for (const DType dtype : floating_dtypes) {
    for (const index_t rows : {1, 5, 40}) {
      for (const index_t width : {1, 6, 300}) {
        const index_t count = 33;
        const Tensor from = random_tensor({count, width}, dtype, 11), into = random_tensor({rows, width}, dtype, 12);
        const Tensor index = Tensor::empty({count}, width == 6 ? DType::i32 : DType::i64);
        auto expected = read(into);
        const auto values = read(from);
        for (index_t i = 0; i < count; ++i) {
          const index_t row = i * i % rows;
          visit_index("test", index.dtype(), [&]<class I>(Type<I>) { index.data<I>()[i] = static_cast<I>(row); });
          for (index_t k = 0; k < width; ++k)
            expected[static_cast<std::size_t>(row * width + k)] += values[static_cast<std::size_t>(i * width + k)];
        }
        kernels({}).scatter_add_rows(index, from, into);
        expect_close(read(into), expected, dtype, count);
      }
    }
  }
}

TEST_CASE("adam takes the published step") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const AdamStep base{0.01, 0.9, 0.95, 1e-8, 0, 0, 1, 1};
    for (const auto [decoupled, coupled, scale] :
        {std::array{0.0, 0.0, 1.0}, std::array{0.1, 0.0, 0.5}, std::array{0.0, 0.2, 1.0}}) {
      const Tensor w = random_tensor({50}, dtype, 13), m = Tensor::zeros({50}, dtype), v = Tensor::zeros({50}, dtype);
      auto expected = read(w);
      std::vector<double> first(50), second(50);
      for (index_t t = 1; t <= 5; ++t) {
        const Tensor g = random_tensor({50}, dtype, 20 + static_cast<std::uint64_t>(t));
        AdamStep step = base;
        step.decoupled_decay = decoupled, step.coupled_decay = coupled, step.gradient_scale = scale, step.step = t;
        const auto gradient = read(g);
        for (std::size_t i = 0; i < 50; ++i) {
          const double d = gradient[i] * scale + coupled * expected[i];
          expected[i] -= step.learning_rate * decoupled * expected[i];
          first[i] = step.beta1 * first[i] + (1 - step.beta1) * d;
          second[i] = step.beta2 * second[i] + (1 - step.beta2) * d * d;
          const double m_hat = first[i] / (1 - std::pow(step.beta1, t)),
                       v_hat = second[i] / (1 - std::pow(step.beta2, t));
          expected[i] -= step.learning_rate * m_hat / (std::sqrt(v_hat) + step.epsilon);
        }
        adam(step, g, w, m, v);
      }
      expect_close(read(w), expected, dtype, 5);
      expect_close(read(m), first, dtype, 5);
      expect_close(read(v), second, dtype, 5);
    }
  }
}

TEST_CASE("elementwise kernels give the same bits for any number of threads") {
  const Tensor x = random_tensor({5, 40001}, DType::f32, 14), y = random_tensor({5, 40001}, DType::f32, 15);
  expect_thread_independent("unary", [&] { return raw::unary(functions::Gelu{}, x); });
  expect_thread_independent("unary_backward", [&] { return derivative(functions::Gelu{}, x, y); });
  expect_thread_independent("binary", [&] { return raw::add(x, raw::select(y, 0, 1)); });
  expect_thread_independent("copy", [&] { return raw::copy(raw::transpose(x)); });
  expect_thread_independent("cast", [&] { return raw::cast(x, DType::f16); });
  const Tensor index = Tensor::empty({40001}, DType::i64);
  for (index_t i = 0; i < 40001; ++i) index.data<index_t>()[i] = i * 7919 % 37;
  const Tensor rows = raw::contiguous(raw::transpose(x));
  expect_thread_independent("scatter_add_rows", [&] {
    const Tensor into = Tensor::zeros({37, 5});
    kernels({}).scatter_add_rows(index, rows, into);
    return into;
  });
  expect_thread_independent("adam", [&] {
    const Tensor w = plain_copy(x), m = Tensor::zeros(x.shape()), v = Tensor::zeros(x.shape());
    adam({0.1, 0.9, 0.99, 1e-8, 0.1, 0, 1, 3}, y, w, m, v);
    return w;
  });
}
