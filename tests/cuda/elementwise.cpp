// The table of kernel calls on a GPU or on the emulated one, except kernels along axes (rows.cpp); and properties of a
// GPU alone: the alignment of a product's operands, an index that is reported later.
#include <array>
#include <cstddef>

#include "cuda/library/blas.h"
#include "tests/cuda/walk.h"

using namespace whence;
using namespace whence::test;

TEST_CASE("cuda: kernels that move numbers or work on them one by one") { walk_on_gpu(elementwise_cases()); }

TEST_CASE("cuda: kernels that read and add at indices, at positions, by distances and along keys") {
  walk_on_gpu(lookup_cases());
}
TEST_CASE("cuda: products, steps of an optimiser, random numbers") {
  walk_on_gpu(product_cases());
  walk_on_gpu(step_cases());
}

TEST_CASE("cuda: a second derivative of duals is refused") {
  const Tensor dual = Tensor::zeros({1}, DType::dual, Device::cuda(0));
  CHECK_THROWS_WITH_AS(
      kernels(Device::cuda(0)).unary_second(functions::Exp{}, {}, dual, dual, dual), doctest::Contains("dual"), Error);
}

TEST_CASE("cuda: a product's bias may begin anywhere; the library is given those alone that it can load") {
  alignas(16) const std::array<std::byte, 32> memory{};
  for (const std::size_t offset : {0u, 2u, 4u, 8u, 16u}) {
    const bool wide = offset % 16 == 0;
    std::byte* const at = const_cast<std::byte*>(memory.data()) + offset;
    CHECK(fits_epilogue({.bias = at}, 5) == wide);
    CHECK(fits_epilogue({.gelu = true, .before_gelu = at}, 8) == wide);
    CHECK(fits_epilogue({.row_sums = at}, 5) == wide);
  }
  CHECK_FALSE(fits_epilogue({.gelu = true, .before_gelu = const_cast<std::byte*>(memory.data())}, 12));
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (index_t shift = 0; shift < 9; ++shift) {
      CAPTURE(shift);
      const Tensor x = random_contiguous({5, 16}, dtype, 1), w = random_contiguous({24, 16}, dtype, 2);
      const Tensor bias = random_contiguous({24 + shift}, dtype, 3).view({24}, {1}, shift);
      const auto check = [&](const auto& product) {
        const std::vector<double> expected = product(x, w, bias).to_vector();
        expect_close(product(on_gpu(x), on_gpu(w), on_gpu(bias)).to_vector(), expected, dtype, 16);
      };
      check([](const Tensor& a, const Tensor& b, const Tensor& c) { return linear(a, b, c); });
      check([](const Tensor& a, const Tensor& b, const Tensor& c) {
        return linear_gelu_linear(a, b, c, Tensor::ones({3, 24}, a.dtype(), a.device()), {});
      });
    }
}

TEST_CASE("cuda: an index out of range is reported when numbers are read, with its line") {
  const Tensor table = on_gpu(random_tensor({5, 3}, DType::f32, 1));
  const Tensor good = on_gpu(Tensor::of({0, 4, 2}, {3}, DType::i64)),
               bad = on_gpu(Tensor::of({0, 4, 5}, {3}, DType::i32));
  CHECK(take_rows(table, good).to_vector().size() == 9);
  const unsigned line = __LINE__ + 1;
  const Tensor y = take_rows(table, bad);  // nothing waits
  const std::string text = error_text([&] { (void)y.to_vector(); });
  CHECK(
      text == "elementwise.cpp:" + std::to_string(line) + ": take_rows: index at [2] is 5; a value in [0, 5) required");
  CHECK(y.to_vector().size() == 9);  // reported once
  const Tensor targets = on_gpu(Tensor::of({1, -1, 7}, {3}, DType::i64));
  const Tensor checked = kernels(Device::cuda(0)).checked_index({"cross_entropy", "target", 3, -1}, targets);
  const std::string of_target = error_text([&] { (void)checked.to_vector(); });
  CHECK(of_target.find("cross_entropy: target at [2] is 7; a value in [0, 3) required, or -1 to ignore it") !=
        std::string::npos);
  CHECK(checked.to_vector() == std::vector<double>{1, -1, 0});
}
