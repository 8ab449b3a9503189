// Ops where samples do not say everything: ties, strips of a larger tensor, values and gradients of different tensors,
// one index for many.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "tensor/parallel.h"
#include "tensor/random.h"
#include "tensor/raw.h"
#include "tests/support/with.h"

using namespace whence;

namespace {

Tensor normal(const Shape& shape, const char* purpose, DType dtype = DType::f64) {
  return Tensor::normal(shape, 0, 1, Stream(5, purpose), dtype);
}
Tensor whole_numbers(const Shape& shape, std::uint32_t count) {
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = Stream(5, "index").below(i, count);
  return Tensor::of(values, shape, DType::i64);
}

bool same(const Tensor& a, const Tensor& b) { return a.shape() == b.shape() && a.to_vector() == b.to_vector(); }

double distance(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    largest = std::abs(x[i] - y[i]) <= largest ? largest : std::abs(x[i] - y[i]);
  return largest;
}

}  // namespace

TEST_CASE("ops: where both are equal, maximum and minimum give each half of the gradient") {
  const Tensor a = requires_grad(Tensor::of({1, 2, 3, 1e300}, {4}, DType::f64));
  const Tensor b = requires_grad(Tensor::of({1, 5, 0, 1e300}, {4}, DType::f64)),
               v = Tensor::of({2, 4, 6, 8}, {4}, DType::f64);
  const Tensor larger = maximum(a, b), smaller = minimum(a, b);
  CHECK(larger.to_vector() == std::vector<double>{1, 5, 3, 1e300});
  CHECK(smaller.to_vector() == std::vector<double>{1, 2, 0, 1e300});
  const auto of_larger = grad(larger, v, {a, b}), of_smaller = grad(smaller, v, {a, b});
  CHECK(of_larger[0].to_vector() == std::vector<double>{1, 0, 6, 4});
  CHECK(of_larger[1].to_vector() == std::vector<double>{1, 4, 0, 4});
  CHECK(of_smaller[0].to_vector() == std::vector<double>{1, 4, 0, 4});
  CHECK(of_smaller[1].to_vector() == std::vector<double>{1, 0, 6, 4});
}

TEST_CASE("ops: softplus and silu far from 0, and log sigmoid(x) = -softplus(-x)") {
  const double far = INFINITY;
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = Tensor::of({-far, -1000, -30, -1, 0, 1, 30, 1000, far}, {9}, dtype);
    const std::vector<double> y = softplus(x).to_vector();
    CHECK(y[0] == 0);
    CHECK(y[1] == 0);
    CHECK(y[2] == doctest::Approx(std::exp(-30.0)).epsilon(1e-6));
    CHECK(y[4] == doctest::Approx(std::log(2.0)).epsilon(1e-6));
    CHECK(y[7] == 1000);
    CHECK(y[8] == far);
    for (std::size_t i = 2; i < 7; ++i)
      CHECK(-softplus(-x).to_vector()[i] == doctest::Approx(-std::log1p(std::exp(-x.to_vector()[i]))).epsilon(1e-6));
    CHECK(std::isnan(softplus(Tensor::of({NAN}, {1}, dtype)).item()));
    CHECK(silu(x).to_vector()[7] == 1000);
    CHECK(silu(x).to_vector()[1] == 0);
  }
}

TEST_CASE("ops: dropout of a strip, of some rows and columns, drops what dropout of the whole drops there") {
  for (const Shape& shape : {Shape{2, 3, 11, 7}, Shape{2, 8, 4}, Shape{9, 5}, Shape{3, 6, 1}}) {
    const Tensor x = normal(shape, "dropout", DType::f32);
    const Stream stream(7, "drop", 2);
    const Tensor all = dropout(x, 0.4, stream);
    const index_t total = x.size(-2), columns = x.size(-1);
    CHECK(same(dropout(x, 0.4, stream, {0, total, columns}), all));
    for (index_t begin = 0; begin < total; ++begin) {
      for (const index_t end : {begin, begin + 1, (begin + 1 + total) / 2, total}) {
        for (const index_t first : {(columns + 1) / 2, columns}) {
          const auto part = [&](const Tensor& of) { return raw::slice(raw::slice(of, -2, begin, end), -1, 0, first); };
          const Tensor strip = requires_grad(raw::copy(part(x)));
          const Tensor y = dropout(strip, 0.4, stream, {begin, total, columns});
          CHECK(same(y, part(all)));
          // the gradient passes where the value did
          const Tensor kept = grad(y, Tensor::ones(y.shape()), {strip})[0];
          CHECK(same(kept, part(dropout(Tensor::ones(shape), 0.4, stream))));
        }
      }
    }
  }
}

TEST_CASE("ops: lerp_at reads row 0 where a position is NaN, with derivative 0: an index stays inside its table") {
  const Tensor table = requires_grad(Tensor::of({4, 5, 7}, {1, 3}, DType::f64)),
               position = requires_grad(Tensor::of({NAN, 0.5, NAN}, {1, 3}, DType::f64));
  const Tensor y = lerp_at(table, position);
  CHECK(y.to_vector() == std::vector<double>{4, 4.5, 4});
  const auto gradients = grad(y, Tensor::ones(y.shape(), DType::f64), {table, position});
  CHECK(gradients[0].to_vector() == std::vector<double>{2.5, 0.5, 0});
  CHECK(gradients[1].to_vector() == std::vector<double>{0, 1, 0});
}

TEST_CASE("ops: straight_through has the one's value and the other's gradient") {
  const Tensor soft = requires_grad(normal({3, 4}, "soft")), hard = requires_grad(normal({3, 4}, "hard")),
               v = normal({3, 4}, "v");
  const Tensor y = straight_through(hard, soft);
  CHECK(same(y, hard));
  const auto gradients = grad(y, v, {soft});
  CHECK(same(gradients[0], v));
  CHECK_FALSE(grad(y, v, {hard}, {.allow_unused = true})[0].defined());
}

TEST_CASE("ops: one index for all batches and heads is the index repeated, in gather and in its adjoint") {
  const Tensor x = requires_grad(normal({2, 3, 5, 40}, "x")), one = whole_numbers({1, 1, 5, 37}, 40);
  const Tensor many = raw::copy(raw::expand(one, {2, 3, 5, 37})), v = normal({2, 3, 5, 37}, "v");
  const Tensor y = gather(x, -1, one), expected = gather(x, -1, many);
  CHECK(same(y, expected));
  CHECK(same(grad(y, v, {x})[0], grad(expected, v, {x})[0]));
  const Tensor sums = sum_by_index(v, one, 40);
  CHECK(same(sums, sum_by_index(v, many, 40)));
  CHECK(same(sums, grad(y, v, {x})[0]));
  // i32 serves as well
  CHECK(same(sum_by_index(v, raw::cast(one, DType::i32), 40), sums));
}

TEST_CASE("ops: convolve_keys of width 1 is a linear layer over the heads, at sizes with several tiles and chunks") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const double tolerance = dtype == DType::f64 ? 1e-12 : 2e-4;
    const Tensor x = requires_grad(normal({2, 6, 9, 300}, "x", dtype)),
                 weight = requires_grad(normal({7, 6, 1, 1}, "weight", dtype));
    const Tensor bias = requires_grad(normal({7}, "bias", dtype)), v = normal({2, 7, 9, 300}, "v", dtype);
    const Tensor by_heads = permute(linear(permute(x, {0, 2, 3, 1}), reshape(weight, {7, 6}), bias), {0, 3, 1, 2});
    const Tensor y = convolve_keys(x, weight, bias, 0, 0);
    CHECK(distance(y, by_heads) < tolerance);
    const auto got = grad(y, v, {x, weight, bias}), expected = grad(by_heads, v, {x, weight, bias});
    for (std::size_t k = 0; k < 3; ++k) CHECK(distance(got[k], expected[k]) < tolerance * (k == 0 ? 1 : 20));
  }
}

TEST_CASE("ops: convolve_keys of a strip of rows has the bits of the whole, for any number of threads") {
  const Tensor x = normal({2, 5, 70, 130}, "x", DType::f32), weight = normal({9, 5, 1, 3}, "weight", DType::f32);
  const Tensor whole = convolve_keys(x, weight, Tensor(), 1, 1);
  CHECK(same(convolve_keys(slice(x, 2, 31, 40), weight, Tensor(), 1, 1), slice(whole, 2, 31, 40)));
  const Tensor kernel = requires_grad(weight.detach());
  std::vector<Tensor> gradients;
  for (const int count : {1, 2, 3}) {
    const test::WithThreads chosen(count);
    const Tensor y = convolve_keys(x, kernel, Tensor(), 1, 1);
    CHECK(same(y, whole));
    gradients.push_back(grad(y, whole, {kernel})[0]);
  }
  CHECK(same(gradients[0], gradients[1]));
  CHECK(same(gradients[0], gradients[2]));
}

TEST_CASE("ops: what lies outside a row is no zero times infinity, and infinity stays in its row") {
  Tensor x = Tensor::zeros({1, 2, 2, 6});
  x.data<float>()[3] = INFINITY;  // head 0, row 0, key 3
  const std::vector<double> y = convolve_keys(x, Tensor::ones({3, 2, 1, 3}), Tensor(), 1, 1).to_vector();
  for (std::size_t o = 0; o < 3; ++o) {
    for (std::size_t j = 0; j < 6; ++j) {
      CHECK((y[o * 12 + j] == INFINITY) == (j >= 2 && j <= 4));
      CHECK(y[o * 12 + 6 + j] == 0);
    }
  }
}

TEST_CASE("ops: the gradients of a layer have the bits of one product each and of the sum over rows, on the CPU") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    CAPTURE(std::string(to_string(dtype)));
    const Tensor x = requires_grad(normal({5, 120, 24}, "x", dtype)),
                 weight = requires_grad(normal({33, 24}, "weight", dtype)),
                 bias = requires_grad(normal({33}, "bias", dtype));
    const Tensor dy = normal({5, 120, 33}, "dy", dtype), rows = raw::reshape(dy, {600, 33}),
                 x_rows = raw::reshape(x.detach(), {600, 24});
    const auto got = grad(linear(x, weight, bias), dy, {x, weight, bias});
    CHECK(same(got[0], raw::reshape(raw::matmul(rows, weight.detach()), x.shape())));
    CHECK(same(got[1], raw::matmul(raw::transpose(rows), x_rows)));
    CHECK(same(got[2], raw::reduce(Reduction::sum, rows, {0}, false)));
  }
}

TEST_CASE("ops: linear_gelu_linear has the bits of its parts on the CPU, in value and gradient") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    CAPTURE(std::string(to_string(dtype)));
    for (const bool of_in : {true, false}) {
      for (const bool of_out : {true, false}) {
        const Tensor x = requires_grad(normal({2, 7, 4}, "x", dtype)), in = requires_grad(normal({8, 4}, "in", dtype)),
                     out = requires_grad(normal({5, 8}, "out", dtype));
        const Tensor bias_in = of_in ? requires_grad(normal({8}, "bias in", dtype)) : Tensor(),
                     bias_out = of_out ? requires_grad(normal({5}, "bias out", dtype)) : Tensor();
        const Tensor seed = normal({2, 7, 5}, "seed", dtype);
        const Tensor joint = linear_gelu_linear(x, in, bias_in, out, bias_out),
                     composed = linear(gelu(linear(x, in, bias_in)), out, bias_out);
        CHECK(same(joint, composed));
        std::vector<Tensor> inputs{x, in, out};
        for (const Tensor& bias : {bias_in, bias_out})
          if (bias.defined()) inputs.push_back(bias);
        for (const std::vector<Tensor>& asked : {inputs, {x}, {in}, {out}, {inputs.back()}}) {
          const auto expected = grad(composed, seed, asked), got = grad(joint, seed, asked);
          for (std::size_t k = 0; k < asked.size(); ++k) CHECK(same(got[k], expected[k]));
        }
      }
    }
  }
}
