// Whole error texts, place included, and that nothing was changed before the throw.
#include <doctest/doctest.h>

#include "autograd/backward.h"
#include "autograd/mode.h"
#include "autograd/ops.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

template <class Call>
std::string text_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) { return error.what(); }
  return "nothing was thrown";
}

// The text that an error raised on line `line` of this file must have.
std::string here(int line, const std::string& rest) { return concat("errors.cpp:", line, ": ", rest); }

}  // namespace

TEST_CASE("an error names the caller's line, the op, what was given and what to do") {
  const Tensor a = Tensor::zeros({2, 3, 4}), b = Tensor::zeros({2, 5, 4});
  CHECK(text_of([&] { (void)matmul(a, b); }) ==
        here(__LINE__ - 1, "matmul: a is [2,3,4], b is [2,5,4]; inner extents 4 and 5 differ; equal ones are required; transpose b"));
  CHECK(text_of([&] { (void)add(a, b); }) ==
        here(__LINE__ - 1,
             "add: a is [2,3,4], b is [2,5,4]; extents 3 and 5 of axis -2 differ and neither is 1; reshape or expand one of them"));
  CHECK(text_of([&] { (void)multiply(a, Tensor::zeros({4}, DType::f64)); }) ==
        here(__LINE__ - 1, "multiply: a is f32, b is f64; equal dtypes required; convert with cast"));
  CHECK(text_of([&] { (void)sigmoid(Tensor::zeros({2}, DType::i64)); }) ==
        here(__LINE__ - 1, "unary: x is i64; a floating dtype is required; convert with cast"));
  CHECK(text_of([&] {
          (void)linear(a, Tensor::zeros({7, 3}), {});
        }) == here(__LINE__ - 1, "linear: x is [2,3,4], weight is [7,3]; x [... in] and weight [out,in] required"));
  CHECK(text_of([&] {
          (void)concat_along(0, {a, b});
        }) == here(__LINE__ - 1, "concat_along: part 0 is [2,3,4], part 1 is [2,5,4]; equal extents outside axis 0 required"));
  CHECK(text_of([&] {
          (void)take_rows(Tensor::zeros({3, 2}), Tensor::of({0, 1, 3}, {3}, DType::i64));
        }) == here(__LINE__ - 1, "take_rows: index at [2] is 3; a value in [0, 3) required"));
  CHECK(text_of([&] { (void)dropout(a, 1.5, Stream()); }) == here(__LINE__, "dropout: probability 1.5 given; a number in [0, 1) required"));
}

TEST_CASE("operators name the operation") {
  const std::string text = text_of([&] { (void)(Tensor::zeros({2}) + Tensor::zeros({3})); });
  CHECK(text.find("add: a is [2], b is [3]; extents 2 and 3 of axis -1 differ") != std::string::npos);
}

TEST_CASE("a function made of several ops names its caller's line too") {
  CHECK(text_of([&] {
          (void)maximum_along(Tensor::zeros({2, 0}), 1);
        }) == here(__LINE__ - 1, "maximum_along: x is [2,0]; at least one element along axis 1 required"));
  CHECK(text_of([&] {
          (void)cumulative_sum(Tensor::zeros({2, 3}), 5);
        }) == here(__LINE__ - 1, "cumulative_sum: axis 5 given for 2 axes; an axis in [-2, 2) is required"));
}

TEST_CASE("an undefined tensor is an error with a place") {
  CHECK(text_of([&] { (void)add(Tensor(), Tensor::zeros({2})); }) ==
        here(__LINE__ - 1, "tensor: an undefined tensor given; a tensor with a value required; was it moved from, or never assigned?"));
}

TEST_CASE("backward names the line that recorded the op") {
  const Tensor x = requires_grad(Tensor::ones({2}));
  const int line = __LINE__ + 1;
  const Tensor y = square(x);
  raw::copy_into(Tensor::zeros({2}), x);
  const std::string text = text_of([&] { (void)grad(y, Tensor::ones({2}), {x}); });
  CHECK(text.find(concat("unary recorded at errors.cpp:", line, " saved a f32 [2] that was overwritten at ")) != std::string::npos);
  CHECK(text.find("write to a copy, or write after backward") != std::string::npos);
}

TEST_CASE("a released graph and a missing seed are refused") {
  const Tensor x = requires_grad(Tensor::ones({2}));
  const int line = __LINE__ + 1;
  const Tensor y = square(x);
  CHECK(text_of([&] { backward(y); }) ==
        here(__LINE__ - 1, "backward: y is [2] and no seed given; a scalar, or a seed of y's shape, required"));
  backward(y, Tensor::ones({2}));
  const std::string text = text_of([&] { backward(y, Tensor::ones({2})); });
  CHECK(text.find(concat("backward: unary recorded at errors.cpp:", line, " has released what it saved")) != std::string::npos);
}

TEST_CASE("nothing was changed before the throw") {
  const Tensor x = requires_grad(Tensor::of({1, 2}, {2})), table = requires_grad(Tensor::ones({3, 2}));
  const auto version = x.storage().version();
  const GraphLink* link = x.link();
  CHECK_THROWS_AS((void)add(x, Tensor::zeros({3})), Error);
  CHECK_THROWS_AS((void)take_rows(table, Tensor::of({5}, {1}, DType::i64)), Error);
  CHECK_THROWS_AS(raw::copy_into(Tensor::zeros({3}), x), Error);
  CHECK(x.storage().version() == version);
  CHECK(x.link() == link);
  CHECK(x.to_vector() == std::vector<double>{1, 2});
  CHECK(recording());
  backward(sum(square(x)));
  CHECK(gradient(x).to_vector() == std::vector<double>{2, 4});
  CHECK_FALSE(gradient(table).defined());
}

}  // namespace whence
