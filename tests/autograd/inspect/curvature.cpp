// Losses whose Hessian is known.
#include "autograd/inspect/curvature.h"

#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

TEST_CASE("a Hessian times vectors: of a quadratic form, and across two inputs") {
  const Tensor a = Tensor::of({4, 1, 0, 1, -9, 2, 0, 2, 3}, {3, 3}, DType::f64);
  const Tensor x = leaf({1, -2, 0.5}, {3}), y = leaf({2, 0, 1}, {3});
  const Tensor row = unsqueeze(x, 0);
  const Tensor loss = sum(row * matmul(row, a)) * 0.5 + sum(square(x) * y);
  const Hessian hessian(loss, {x, y});
  const auto product = hessian.times({Tensor::of({1, 0, 2}, {3}, DType::f64), Tensor::of({0, 1, 0}, {3}, DType::f64)});
  // H_xx = a + 2 diag(y), H_xy = 2 diag(x), H_yy = 0
  CHECK(product[0].to_vector() == std::vector<double>{4 + 4, 1 + 4 - 4, 6 + 4});
  CHECK(product[1].to_vector() == std::vector<double>{2, 0, 2});
  CHECK(has(message([&] { (void)hessian.times({x}); }), "1 tensors given; 2"));
}

TEST_CASE("the eigenvalue of largest size has its sign, and its vector") {
  const Tensor x = leaf({0.1, 0.2, 0.3, 0.4}, {4}), weights = Tensor::of({1, -8, 3, 5}, {4}, DType::f64);
  const Hessian::Eigenvalue found = Hessian(sum(square(x) * weights), {x}).largest(1e-9);
  CHECK(std::abs(found.value + 16) < 1e-9);
  CHECK(std::abs(std::abs(found.vector[0].at({1})) - 1) < 1e-6);
  CHECK(found.residual < 1e-9);
  const Tensor two = leaf({1, 1}, {2});  // of eigenvalues 4 and -4 the iteration finds neither
  const Tensor vector =
      Hessian(sum(square(two) * Tensor::of({2, -2}, {2}, DType::f64)), {two}).largest(1e-9, 5).vector[0];
  CHECK(std::abs(sum(square(vector)).item() - 1) < 1e-12);
  const Hessian::Eigenvalue flat = Hessian(sum(x * weights), {x}).largest();
  CHECK(flat.value == 0);
  CHECK(flat.iterations == 1);
}
