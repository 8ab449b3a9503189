// Properties of ops that samples do not cover: strips of a larger tensor, values and gradients of different tensors, one
// index for many.
#include <cmath>

#include "autograd/check/gradcheck.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

TEST_CASE("ops: numbers of the program on either side of an operator") {
  const Tensor x = requires_grad(raw::copy(Tensor::uniform({3, 4}, 0.5, 2, Stream(1, "x"), DType::f64)));
  const std::vector<std::function<Tensor()>> all{[&] { return 1.0 - x; }, [&] { return 3 + x; },
      [&] { return x / 7.0; }, [&] { return 7.0 / x; }, [&] { return 1 - 2 / (1.5 - x * x / 3); }};
  for (const auto& f : all) {
    const GradcheckReport report = gradcheck(f, {{"x", x}}), twice = gradgradcheck(f, {{"x", x}});
    CHECK_MESSAGE(report.ok(), report.text());
    CHECK_MESSAGE(twice.ok(), twice.text());
  }
  // Quotients are rounded once, as those of tensors are: 49 (1 / 49) is not 1.
  std::vector<double> numbers;
  for (int i = 1; i <= 300; ++i) numbers.push_back(i);
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const Tensor n = Tensor::of(numbers, {300}, dtype);
    for (const double by : {49.0, 0.1, -3.0}) {
      CHECK(same_bits(n / by, n / Tensor::full({300}, by, dtype)));
      CHECK(same_bits(by / n, Tensor::full({300}, by, dtype) / n));
      if (size_of(dtype) > 2) CHECK(same_bits(by - n, Tensor::full({300}, by, dtype) - n));
      CHECK(same_bits(by + n, n + by));
    }
    CHECK((Tensor::full({}, 49, dtype) / 49).item() == 1);
  }
  CHECK((1.0 - Tensor::of({INFINITY, NAN}, {2})).to_vector()[0] == -INFINITY);
  CHECK((1.0 / Tensor::of({0}, {1})).item() == INFINITY);
  CHECK((Tensor::zeros({0, 3}) / 2).shape() == Shape{0, 3});
  std::string text = error_text([&] { (void)(2.0 / Tensor::zeros({3}, DType::i64)); });
  CHECK(text.starts_with(above() + ": divide: a is i64"));
  text = error_text([&] { (void)(Tensor() / 2.0); });
  CHECK(text.starts_with(above() + ": tensor: "));
}

TEST_CASE("ops: dropout of a strip, of some rows and columns, drops what dropout of the whole drops there") {
  for (const Shape& shape : {Shape{2, 3, 11, 7}, Shape{2, 8, 4}, Shape{9, 5}, Shape{3, 6, 1}}) {
    const Tensor x = normal(shape, 1, DType::f32);
    const Stream stream(7, "drop", 2);
    const Tensor all = dropout(x, 0.4, stream);
    const index_t total = x.size(-2), columns = x.size(-1);
    CHECK(same_bits(dropout(x, 0.4, stream, {0, total, columns}), all));
    for (index_t begin = 0; begin < total; ++begin) {
      for (const index_t end : {begin, begin + 1, (begin + 1 + total) / 2, total}) {
        for (const index_t first : {(columns + 1) / 2, columns}) {
          const auto part = [&](const Tensor& of) { return raw::slice(raw::slice(of, -2, begin, end), -1, 0, first); };
          const Tensor strip = requires_grad(raw::copy(part(x)));
          const Tensor y = dropout(strip, 0.4, stream, {begin, total, columns});
          CHECK(same_bits(y, part(all)));
          // the gradient passes where the value did
          const Tensor kept = grad(y, Tensor::ones(y.shape()), {strip})[0];
          CHECK(same_bits(kept, part(dropout(Tensor::ones(shape), 0.4, stream))));
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
  const Tensor soft = normal_leaf({3, 4}, 2), hard = normal_leaf({3, 4}, 3), v = normal({3, 4}, 4);
  const Tensor y = straight_through(hard, soft);
  CHECK(same_bits(y, hard));
  const auto gradients = grad(y, v, {soft});
  CHECK(same_bits(gradients[0], v));
  CHECK_FALSE(grad(y, v, {hard}, {.allow_unused = true})[0].defined());
}

TEST_CASE("ops: one index for all batches and heads is the index repeated, in gather and in its adjoint") {
  const Tensor x = normal_leaf({2, 3, 5, 40}, 5),
               one = raw::cast(Tensor::uniform({1, 1, 5, 37}, 0, 40, Stream(5, "index")), DType::i64);
  const Tensor many = raw::copy(raw::expand(one, {2, 3, 5, 37})), v = normal({2, 3, 5, 37}, 4);
  const Tensor y = gather(x, -1, one), expected = gather(x, -1, many);
  CHECK(same_bits(y, expected));
  CHECK(same_bits(grad(y, v, {x})[0], grad(expected, v, {x})[0]));
  const Tensor sums = sum_by_index(v, one, 40);
  CHECK(same_bits(sums, sum_by_index(v, many, 40)));
  CHECK(same_bits(sums, grad(y, v, {x})[0]));
  // i32 serves as well
  CHECK(same_bits(sum_by_index(v, raw::cast(one, DType::i32), 40), sums));
}

TEST_CASE("ops: numbers outside a row are not multiplied by 0, and infinity stays in its row") {
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

TEST_CASE("ops: nothing was changed before an error is thrown") {
  const Tensor x = leaf({1, 2}, {2}), table = normal_leaf({3, 2}, 1);
  const auto version = x.storage().version();
  const GraphLink* link = x.link();
  for (const auto& call : {std::function<void()>([&] { (void)add(x, Tensor::zeros({3}, DType::f64)); }),
           std::function<void()>([&] { (void)take_rows(table, Tensor::of({5}, {1}, DType::i64)); }),
           std::function<void()>([&] { raw::copy_into(Tensor::zeros({3}, DType::f64), x); })})
    CHECK(!error_text(call).empty());
  CHECK(x.storage().version() == version);
  CHECK(x.link() == link);
  CHECK(x.to_vector() == std::vector<double>{1, 2});
  CHECK(recording());
  backward(sum(square(x)));
  CHECK(gradient(x).to_vector() == std::vector<double>{2, 4});
  CHECK_FALSE(gradient(table).defined());
}

TEST_CASE("ops: sums of nothing are 0, softmax of nothing is nothing, its mean and maximum are refused by name") {
  const Tensor none = normal_leaf({3, 0}, 1);
  CHECK(sum(none, {1}).to_vector() == std::vector<double>{0, 0, 0});
  CHECK(softmax(none).shape() == Shape{3, 0});
  CHECK(mean(none, {0}).shape() == Shape{0});
  CHECK(grad(sum(none), {}, {none})[0].shape() == Shape{3, 0});
  CHECK(has(message([&] { (void)mean(none, {1}); }), "x is [3,0]"));
  CHECK(has(message([&] { (void)mean(none); }), "x is [3,0]"));
}

TEST_CASE("ops: f16 overflows to infinity, and sums of 16 bits are made in f32") {
  CHECK((Tensor::full({1}, 65504, DType::f16) * 2.0).item() == INFINITY);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    CHECK(sum(Tensor::ones({4096}, dtype)).item() == 4096);
    CHECK(matmul(Tensor::ones({1, 4096}, dtype), Tensor::ones({4096, 1}, dtype)).item() == 4096);
    CHECK(mean(Tensor::full({4096}, 60, dtype)).item() == 60);  // f16's sum would be infinite
  }
}

TEST_CASE("ops: gradients of a recorded backward are those of a plain one, at the edges of f16 and of a batch") {
  const auto same = [](const Tensor& y, const Tensor& seed, const Tensor& x) {
    const Tensor plain = grad(y, seed, {x})[0];
    return distance(plain, grad(y, seed, {x}, {.create_graph = true})[0]) <= 1e-3 * largest(plain);
  };
  const Tensor weight = requires_grad(Tensor::ones({2}, DType::f16));
  const Tensor y = rms_norm(Tensor::of({300, -300}, {1, 2}, DType::f16), weight);
  CHECK(same(y, Tensor::of({1, 2}, {1, 2}, DType::f16), weight));
  const Tensor logits = requires_grad(Tensor::of({INFINITY, 1, std::nan(""), 2}, {2, 2}));
  CHECK(same(cross_entropy(logits, Tensor::full({2}, -1, DType::i64), -1), Tensor::scalar(1), logits));
}

TEST_CASE("ops: cross_entropy keeps its digits at a common offset of the logits") {
  for (const double offset : {0.0, 30.0, 1e3, -1e5, 1e7}) {
    const Tensor x = requires_grad(Tensor::of({offset, offset}, {1, 2}));
    const Tensor loss = cross_entropy(x, Tensor::of({0}, {1}, DType::i64));
    CHECK(loss.item() == static_cast<float>(std::log(2.0)));
    CHECK(grad(loss, {}, {x})[0].to_vector() == std::vector<double>{-0.5, 0.5});
  }
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const double most = dtype == DType::f16 ? 6e4 : 3e38;
    const Tensor x = requires_grad(Tensor::of({most, most, 0}, {1, 3}, dtype));
    const Tensor loss = cross_entropy(x, Tensor::of({2}, {1}, DType::i64));
    CHECK(grad(loss, {}, {x})[0].to_vector() == std::vector<double>{0.5, 0.5, -1});
  }
}
