// Whole error texts, place included, and that nothing was changed before the throw.
#include <doctest/doctest.h>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

template <class Call> std::string text_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) { return error.what(); }
  return "nothing was thrown";
}

// The text that an error raised on line `line` of this file must have.
std::string here(int line, const std::string& rest) { return to_text("errors.cpp:", line, ": ", rest); }

}  // namespace

// The line is taken from a statement of its own: compilers disagree about __LINE__ inside a macro's arguments.
TEST_CASE("an error names the caller's line, the op, what was given and what to do") {
  const Tensor a = Tensor::zeros({2, 3, 4}), b = Tensor::zeros({2, 5, 4}), wide = Tensor::zeros({4}, DType::f64);
  const Tensor whole = Tensor::zeros({2}, DType::i64), weight = Tensor::zeros({7, 3});
  const Tensor table = Tensor::zeros({3, 2}), rows = Tensor::of({0, 1, 3}, {3}, DType::i64);
  int line = 0;
  std::string text;
  line = __LINE__ + 1;
  text = text_of([&] { (void)matmul(a, b); });
  CHECK(text ==
        here(line,
            "matmul: a is [2,3,4], b is [2,5,4]; inner extents 4 and 5 differ; equal ones are required; transpose b"));
  line = __LINE__ + 1;
  text = text_of([&] { (void)add(a, b); });
  CHECK(text == here(line,
                    "add: a is [2,3,4], b is [2,5,4]; extents 3 and 5 of axis -2 differ and neither is 1; reshape or "
                    "expand one of them"));
  line = __LINE__ + 1;
  text = text_of([&] { (void)multiply(a, wide); });
  CHECK(text == here(line, "multiply: a is f32, b is f64; equal dtypes required; convert with cast"));
  line = __LINE__ + 1;
  text = text_of([&] { (void)sigmoid(whole); });
  CHECK(text == here(line, "sigmoid: x is i64; a floating dtype is required; convert with cast"));
  line = __LINE__ + 1;
  text = text_of([&] { (void)linear(a, weight, {}); });
  CHECK(text == here(line, "linear: x is [2,3,4], weight is [7,3]; x [... in] and weight [out,in] required"));
  line = __LINE__ + 1;
  text = text_of([&] { (void)concat_along(0, {a, b}); });
  CHECK(
      text == here(line, "concat_along: part 0 is [2,3,4], part 1 is [2,5,4]; equal extents outside axis 0 required"));
  line = __LINE__ + 1;
  text = text_of([&] { (void)take_rows(table, rows); });
  CHECK(text == here(line, "take_rows: index at [2] is 3; a value in [0, 3) required"));
  line = __LINE__ + 1;
  text = text_of([&] { (void)dropout(a, 1.5, Stream()); });
  CHECK(text == here(line, "dropout: probability 1.5 given; a number in [0, 1) required"));
}

TEST_CASE("operators name the operation") {
  const std::string text = text_of([&] { (void)(Tensor::zeros({2}) + Tensor::zeros({3})); });
  CHECK(text.find("add: a is [2], b is [3]; extents 2 and 3 of axis -1 differ") != std::string::npos);
}

TEST_CASE("a function made of several ops names its caller's line too") {
  const Tensor empty = Tensor::zeros({2, 0}), x = Tensor::zeros({2, 3});
  int line = 0;
  std::string text;
  line = __LINE__ + 1;
  text = text_of([&] { (void)maximum_along(empty, 1); });
  CHECK(text == here(line, "maximum_along: x is [2,0]; at least one element along axis 1 required"));
  line = __LINE__ + 1;
  text = text_of([&] { (void)cumulative_sum(x, 5); });
  CHECK(text == here(line, "cumulative_sum: axis 5 given for 2 axes; an axis in [-2, 2) is required"));
}

TEST_CASE("an undefined tensor is an error with a place") {
  const Tensor nothing, x = Tensor::zeros({2});
  const int line = __LINE__ + 1;
  const std::string text = text_of([&] { (void)add(nothing, x); });
  CHECK(
      text ==
      here(line,
          "tensor: an undefined tensor given; a tensor with a value required; was it moved from, or never assigned?"));
}

TEST_CASE("backward names the line that recorded the op") {
  const Tensor x = requires_grad(Tensor::ones({2}));
  const int line = __LINE__ + 1;
  const Tensor y = square(x);
  raw::copy_into(Tensor::zeros({2}), x);
  const std::string text = text_of([&] { (void)grad(y, Tensor::ones({2}), {x}); });
  CHECK(text.find(to_text("square recorded at errors.cpp:", line, " saved a f32 [2] that was overwritten at ")) !=
        std::string::npos);
  CHECK(text.find("write to a copy, or write after backward") != std::string::npos);
}

TEST_CASE("a released graph and a missing seed are refused") {
  const Tensor x = requires_grad(Tensor::ones({2}));
  const int line = __LINE__ + 1;
  const Tensor y = square(x);
  const int seedless = __LINE__ + 1;
  const std::string no_seed = text_of([&] { backward(y); });
  CHECK(no_seed == here(seedless, "backward: y is [2] and no seed given; a scalar, or a seed of y's shape, required"));
  backward(y, Tensor::ones({2}));
  const std::string text = text_of([&] { backward(y, Tensor::ones({2})); });
  CHECK(text.find(to_text("backward: square recorded at errors.cpp:", line, " has released what it saved")) !=
        std::string::npos);
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
