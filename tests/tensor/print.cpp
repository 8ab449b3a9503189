// Printed tensors, letter by letter.
#include "tensor/raw.h"
#include "tests/support/tensors.h"

using namespace whence;

TEST_CASE("scalars stand on one line") {
  CHECK(to_string(Tensor::scalar(2.5)) == "tensor f32 [] cpu 2.5");
  CHECK(to_string(Tensor::scalar(3, DType::i64)) == "tensor i64 [] cpu 3");
  CHECK(to_string(Tensor::scalar(1, DType::boolean)) == "tensor bool [] cpu true");
  CHECK(to_string(Tensor()) == "tensor undefined");
}

TEST_CASE("rows are nested and aligned") {
  CHECK(to_string(Tensor::of({1, -2.5, 1000000, 0.1, 3, 1e-7}, {2, 3})) ==
        "tensor f32 [2,3] cpu\n"
        "[[    1,  -2.5, 1e+06],\n"
        " [  0.1,     3, 1e-07]]");
  CHECK(to_string(Tensor::of({1, 2, 3, 4, 5, 6, 7, 8}, {2, 2, 2}, DType::i32)) ==
        "tensor i32 [2,2,2] cpu\n"
        "[[[1, 2],\n"
        "  [3, 4]],\n"
        " [[5, 6],\n"
        "  [7, 8]]]");
}

TEST_CASE("views print what they show") {
  CHECK(to_string(raw::transpose(Tensor::of({1, 2, 3, 4, 5, 6}, {2, 3}))) ==
        "tensor f32 [3,2] cpu\n"
        "[[1, 4],\n"
        " [2, 5],\n"
        " [3, 6]]");
}

TEST_CASE("NaN, infinities, negative zero, bools, duals and empty tensors") {
  CHECK(to_string(Tensor::of({NAN, INFINITY, -INFINITY, -0.0}, {4})) == "tensor f32 [4] cpu\n[ nan,  inf, -inf,   -0]");
  CHECK(to_string(Tensor::of({1, 0}, {2}, DType::boolean)) == "tensor bool [2] cpu\n[ true, false]");
  CHECK(to_string(Tensor::zeros({2, 0})) == "tensor f32 [2,0] cpu\n[[],\n []]");
  CHECK(to_string(Tensor::zeros({0})) == "tensor f32 [0] cpu\n[]");
  const Tensor dual = Tensor::scalar(2, DType::dual);
  dual.data<Dual>()->tangent = -0.5;
  CHECK(to_string(dual) == "tensor dual [] cpu 2-0.5e");
}

TEST_CASE("long axes show both ends") {
  CHECK(to_string(Tensor::arange(9)) == "tensor i64 [9] cpu\n[0, 1, 2, ..., 6, 7, 8]");
  CHECK(to_string(Tensor::arange(8)) == "tensor i64 [8] cpu\n[0, 1, 2, 3, 4, 5, 6, 7]");
  CHECK(to_string(raw::reshape(Tensor::arange(18), {9, 2})) ==
        "tensor i64 [9,2] cpu\n"
        "[[ 0,  1],\n"
        " [ 2,  3],\n"
        " [ 4,  5],\n"
        " ...,\n"
        " [12, 13],\n"
        " [14, 15],\n"
        " [16, 17]]");
  const Tensor huge = raw::expand(Tensor::scalar(1), {1000000, 1000000});  // printing reads only what it shows
  CHECK(to_text(huge).size() < 300);
}
