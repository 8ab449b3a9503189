// Matrix products against three plain loops in long double:
// layouts, broadcast batches, bias, every dtype, and the bits on several threads.
#include "tensor/products.h"
#include "tensor/raw.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

struct Problem {
  Shape a, b;
};

std::vector<double> reference(
    const Tensor& a, const Tensor& b, double alpha, const std::vector<double>& bias, const Shape& out) {
  Shape batch_a = out, batch_b = out;
  batch_a[-1] = a.size(-1), batch_b[-2] = b.size(-2);
  const auto as = read(raw::expand(a, batch_a)), bs = read(raw::expand(b, batch_b));
  const std::size_t m = static_cast<std::size_t>(out[-2]), n = static_cast<std::size_t>(out[-1]),
                    k = static_cast<std::size_t>(a.size(-1));
  std::vector<double> result(static_cast<std::size_t>(numel(out)));
  for (std::size_t at = 0; at < result.size(); ++at) {
    const std::size_t matrix = at / (m * n), i = at / n % m, j = at % n;
    long double total = 0;
    for (std::size_t l = 0; l < k; ++l)
      total += static_cast<long double>(as[(matrix * m + i) * k + l]) * bs[(matrix * k + l) * n + j];
    result[at] = static_cast<double>(alpha * total + (bias.empty() ? 0 : bias[j]));
  }
  return result;
}

void check(const Problem& problem, DType dtype, Layout layout_a, Layout layout_b) {
  const Guards guards;
  CAPTURE(std::string(to_string(dtype)));
  CAPTURE(problem.a);
  CAPTURE(problem.b);
  CAPTURE(name_of(layout_a));
  CAPTURE(name_of(layout_b));
  const Tensor a = random_tensor(problem.a, dtype, 1, layout_a), b = random_tensor(problem.b, dtype, 2, layout_b);
  const Tensor bias = random_tensor({problem.b[-1]}, dtype, 3, Layout::sliced);
  const Tensor plain = raw::matmul(a, b), full = raw::matmul(a, b, -0.5, &bias);
  expect_close(read(plain), reference(a, b, 1, {}, plain.shape()), dtype, problem.a[-1]);
  expect_close(read(full), reference(a, b, -0.5, read(bias), full.shape()), dtype, problem.a[-1]);
  CHECK(plain.storage().guards_intact());
  CHECK(full.storage().guards_intact());
}

}  // namespace

TEST_CASE("products of every dtype and layout") {
  const std::vector<Problem> problems{{{3, 4}, {4, 5}}, {{1, 1}, {1, 1}}, {{1, 7}, {7, 1}}, {{5, 1}, {1, 6}},
      {{2, 3, 4}, {2, 4, 5}}, {{2, 3, 4}, {4, 5}}, {{3, 4}, {2, 4, 5}}, {{2, 1, 3, 4}, {3, 4, 2}}, {{20, 17}, {17, 33}},
      {{3, 20, 17}, {3, 17, 33}}, {{2, 20, 40}, {1, 40, 30}}, {{2, 2, 16, 30}, {30, 24}}};
  for (const DType dtype : floating_dtypes) {
    for (const Layout layout_a : layouts) {
      for (const Layout layout_b : layouts)
        for (const Problem& problem : problems) check(problem, dtype, layout_a, layout_b);
    }
  }
}

TEST_CASE("products large enough for several tiles, with ragged edges") {
  for (const Problem& problem :
      {Problem{{300, 70}, {70, 530}}, Problem{{70, 700}, {700, 90}}, Problem{{3, 257, 65}, {3, 65, 129}}}) {
    for (const Layout layout : {Layout::contiguous, Layout::permuted}) check(problem, DType::f32, layout, layout);
    check(problem, DType::f64, Layout::contiguous, Layout::permuted);
  }
}

TEST_CASE("heads read through permuted views, without copies and with the right numbers") {
  const Tensor q = raw::permute(random_tensor({2, 10, 3, 8}, DType::f32, 4), {0, 2, 1, 3});  // [b,t,h,d] -> [b,h,t,d]
  const Tensor k = raw::permute(random_tensor({2, 10, 3, 8}, DType::f32, 5), {0, 2, 1, 3});
  const Tensor scores = raw::matmul(q, raw::transpose(k), 0.25);
  CHECK(scores.shape() == Shape{2, 3, 10, 10});
  expect_close(read(scores), reference(q, raw::transpose(k), 0.25, {}, scores.shape()), DType::f32, 8);
}

TEST_CASE("empty products") {
  const Tensor bias = Tensor::of({1, 2, 3}, {3});
  CHECK(read(raw::matmul(Tensor::zeros({2, 0}), Tensor::zeros({0, 3}))) == std::vector<double>(6, 0));
  CHECK(read(raw::matmul(Tensor::zeros({2, 0}), Tensor::zeros({0, 3}), 1, &bias)) ==
        std::vector<double>{1, 2, 3, 1, 2, 3});
  CHECK(raw::matmul(Tensor::zeros({0, 4}), Tensor::zeros({4, 3})).shape() == Shape{0, 3});
  CHECK(raw::matmul(Tensor::zeros({5, 2, 4}), Tensor::zeros({5, 4, 0})).shape() == Shape{5, 2, 0});
  CHECK(raw::matmul(Tensor::zeros({0, 2, 4}), Tensor::zeros({4, 3})).shape() == Shape{0, 2, 3});
}

TEST_CASE("a dual product has tangent a' b + a b'") {
  const Tensor a = random_tensor({4, 6}, DType::dual, 6), b = random_tensor({6, 5}, DType::dual, 7, Layout::permuted);
  const auto split = [](const Tensor& x, bool tangents) {
    return Tensor::of(read(x, tangents), x.shape(), DType::f64);
  };
  const auto one = reference(split(a, true), split(b, false), 1, {}, {4, 5}),
             two = reference(split(a, false), split(b, true), 1, {}, {4, 5});
  std::vector<double> expected;
  for (std::size_t i = 0; i < one.size(); ++i) expected.push_back(one[i] + two[i]);
  expect_close(read(raw::matmul(a, b), true), expected, DType::f64, 12);
}

TEST_CASE("a batch of single rows, however they lie") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = random_tensor({64, 16, 2}, dtype, 1), b = random_tensor({64, 32}, dtype, 2);
    const Tensor across = raw::slice(raw::permute(x, {1, 2, 0}), 1, 0, 1);  // [16 1 64], strides 2, 1, 32
    expect_close(read(raw::matmul(across, b)), reference(across, b, 1, {}, {16, 1, 32}), dtype, 64);
    const Tensor same = raw::expand(random_tensor({1, 1, 64}, dtype, 3), {16, 1, 64});
    expect_close(read(raw::matmul(same, b)), reference(same, b, 1, {}, {16, 1, 32}), dtype, 64);
  }
}

TEST_CASE("NaN and infinity pass through") {
  const Tensor a = Tensor::of({NAN, 1, 0, 1}, {2, 2}), b = Tensor::of({1, 2, INFINITY, 3}, {2, 2});
  const auto y = read(raw::matmul(a, b));
  CHECK(std::isnan(y[0]));
  CHECK(y[2] == INFINITY);
  CHECK(y[3] == 3);
}

TEST_CASE("products of a few rows, which read the other operand once") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
    for (const Layout layout_a : {Layout::contiguous, Layout::permuted})
      for (const Layout layout_b : {Layout::contiguous, Layout::permuted})
        for (const Problem& problem : {Problem{{1, 300}, {300, 705}}, Problem{{7, 65}, {65, 1030}},
                 Problem{{3, 2, 1, 70}, {3, 2, 70, 64}}, Problem{{4, 1, 90}, {90, 70}}, Problem{{5, 1}, {1, 4096}}})
          check(problem, dtype, layout_a, layout_b);
}

TEST_CASE("products give the same bits for any number of threads") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor token = random_tensor({3, 800}, dtype, 18), weight = random_tensor({800, 3000}, dtype, 19);
    expect_thread_independent("a few rows", [&] { return raw::matmul(token, weight, 0.3); });
    expect_thread_independent("a few rows of a layer",
        [&] { return raw::matmul(token, raw::transpose(raw::contiguous(raw::transpose(weight)))); });
    const Tensor a = random_tensor({520, 300}, dtype, 8), b = random_tensor({300, 310}, dtype, 9),
                 bias = random_tensor({310}, dtype, 10);
    expect_thread_independent("matmul", [&] { return raw::matmul(a, b, 1, &bias); });
    expect_thread_independent("scaled matmul", [&] { return raw::matmul(a, b, 0.3, &bias); });
    const Tensor tall = random_tensor({2100, 90}, dtype, 14);
    expect_thread_independent("slabs", [&] { return raw::matmul(raw::transpose(tall), tall, 0.3); });
    expect_thread_independent("a long inner axis", [&] { return raw::matmul(raw::transpose(b), b); });
    for (const index_t columns : {300, 304}) {  // the last panels of columns are of other widths in other tiles
      const Tensor wide = random_tensor({800, columns}, dtype, 15), left = random_tensor({520, 800}, dtype, 16),
                   term = random_tensor({columns}, dtype, 17);
      expect_thread_independent("columns", [&] { return raw::matmul(left, wide, 0.3, &term); });
    }
    const Tensor heads = random_tensor({6, 100, 40}, dtype, 11);
    expect_thread_independent("batched matmul", [&] { return raw::matmul(heads, raw::transpose(heads)); });
    const Tensor small = random_tensor({60, 9, 9}, dtype, 12);
    expect_thread_independent("small batched matmul", [&] { return raw::matmul(small, small); });
    const Tensor one = random_tensor({60, 90}, dtype, 13);
    expect_thread_independent("one tile", [&] { return raw::matmul(one, raw::transpose(one)); });
  }
}

TEST_CASE("products in bf16 keep the error that is stated, and the same bits for any number of threads") {
  CHECK_THROWS_WITH(set_product_numbers(DType::f16), "set_product_numbers: f16 given; f32 or bf16 required");
  if (!can_multiply_bf16()) {
    CHECK_THROWS_WITH(set_product_numbers(DType::bf16),
        "set_product_numbers: bf16 given; this processor or build lacks AVX512_BF16, which multiplies it; use f32");
    return;
  }
  struct InBf16 {
    InBf16() { set_product_numbers(DType::bf16); }
    ~InBf16() { set_product_numbers(DType::f32); }
  };
  const auto magnitudes = [](const Tensor& x) {
    auto numbers = read(x);
    for (double& number : numbers) number = std::abs(number);
    return Tensor::of(numbers, x.shape(), DType::f64);
  };
  for (const Problem& problem : {Problem{{8, 1}, {1, 8}}, Problem{{9, 33}, {33, 70}}, Problem{{131, 70}, {70, 131}},
           Problem{{70, 801}, {801, 90}}, Problem{{33, 2105}, {2105, 49}}, Problem{{3, 57, 65}, {3, 65, 129}}}) {
    CAPTURE(problem.a);
    CAPTURE(problem.b);
    for (const Layout layout_a : {Layout::contiguous, Layout::permuted}) {
      for (const Layout layout_b : {Layout::contiguous, Layout::permuted}) {
        const Guards guards;
        const Tensor a = random_tensor(problem.a, DType::f32, 1, layout_a),
                     b = random_tensor(problem.b, DType::f32, 2, layout_b),
                     bias = random_tensor({problem.b[-1]}, DType::f32, 3);
        const InBf16 in_bf16;
        const Tensor y = raw::matmul(a, b, -0.5, &bias);
        CHECK(y.storage().guards_intact());
        const auto found = read(y), wanted = reference(a, b, -0.5, read(bias), y.shape()),
                   sizes = read(raw::matmul(magnitudes(a), magnitudes(b)));
        double worst = 0;
        for (std::size_t i = 0; i < found.size(); ++i)
          worst = std::max(worst, std::abs(found[i] - wanted[i]) / (0.5 * sizes[i] + 1e-3));
        CHECK(worst < 0x1.02p-8);
        if (y.numel() * problem.a[-1] >= 4096) CHECK(worst > 1e-5);  // bf16 was used at all
        expect_thread_independent("bf16", [&] { return raw::matmul(a, b, -0.5, &bias); });
      }
    }
  }
}
