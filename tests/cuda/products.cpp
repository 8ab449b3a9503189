// Products whose extents a GPU rounds up (tensor/device/product_layout.h): the CPU's numbers, and the same bits twice.
#include "tensor/convolution.h"
#include "tensor/device/device_runtime.h"
#include "tensor/device/product_layout.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;

namespace {

Tensor turned(const Tensor& x) { return raw::transpose(raw::copy(raw::transpose(x))); }

ProductCount unaligned() { return runtime_of(Device::cuda(0)).traffic().unaligned; }

struct Problem {
  Shape a, b;
};

}  // namespace

TEST_CASE("cuda products: extents are rounded up to whole packs where that pays") {
  CHECK(aligned_extent(50257, DType::bf16) == 50304);
  CHECK(aligned_extent(65, DType::f16) == 72);
  CHECK(aligned_extent(65, DType::f32) == 68);
  CHECK(aligned_extent(65, DType::f64) == 65);
  CHECK(aligned_extent(50260, DType::f32) == 50260);
  const auto extents = [](const Tensor& a, const Tensor& b) {
    const auto made = aligned_extents(a, b, Tensor::like(a, {a.size(-2), b.size(-1)}));
    return made ? Shape{made->m, made->n, made->k} : Shape{};
  };
  const auto matrix = [](index_t rows, index_t columns) { return Tensor::empty({rows, columns}, DType::bf16); };
  CHECK(extents(matrix(4096, 768), matrix(768, 65)) == Shape{4096, 72, 768});
  CHECK(extents(raw::transpose(matrix(4096, 65)), matrix(4096, 768)) == Shape{72, 768, 4096});
  CHECK(extents(matrix(4095, 768), matrix(768, 64)) == Shape{});  // no numbers are adjacent along m
  CHECK(extents(matrix(4096, 768), matrix(768, 5)) == Shape{});   // would be mostly zeros
  CHECK(extents(matrix(64, 768), matrix(768, 65)) == Shape{});    // small
}

TEST_CASE("cuda products: with extents that are rounded up a product has the CPU's numbers") {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const Problem& each : {Problem{{517, 301}, {301, 451}}, Problem{{3, 389, 70}, {70, 901}},
             Problem{{2, 3, 301, 129}, {2, 3, 129, 301}}, Problem{{2, 1, 301, 129}, {1, 3, 129, 301}}}) {
      for (const bool of_a : {false, true})
        for (const bool of_b : {false, true}) {
          INFO(each.a, ", of_a ", of_a, ", of_b ", of_b);
          const auto laid = [](const Tensor& x, bool is_turned) { return is_turned ? turned(x) : x; };
          const Tensor a = random_contiguous(each.a, dtype, 1), b = random_contiguous(each.b, dtype, 2),
                       bias = random_contiguous({each.b[-1]}, dtype, 3);
          const std::vector<double> expected = raw::matmul(laid(a, of_a), laid(b, of_b), 0.5, &bias).to_vector();
          const Tensor left = laid(on_gpu(a), of_a), right = laid(on_gpu(b), of_b), shift = on_gpu(bias);
          const ProductCount before = unaligned();
          const Tensor y = raw::matmul(left, right, 0.5, &shift);
          if (of_a && of_b) CHECK((unaligned() - before).products == 0);
          CHECK(y.is_contiguous());
          expect_close(y.to_vector(), expected, dtype, each.a[-1]);
          CHECK(raw::matmul(left, right, 0.5, &shift).to_vector() == y.to_vector());
        }
    }
  }
}

TEST_CASE("cuda products: few rows times matrices side by side are one kernel, with the CPU's numbers") {
  const auto launches = [] { return runtime_of(Device::cuda(0)).traffic().launches; };
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
    for (const index_t rows : {1, 3, 4, 5})
      for (const index_t depth : {8, 264, 1032, 12}) {
        INFO(dtype, ", rows ", rows, ", depth ", depth);
        const Tensor a = random_contiguous({rows, 2 * depth}, dtype, 1);
        const auto first = [&](const Tensor& x) { return raw::slice(x, 1, 0, depth); };  // rows that are not contiguous
        std::vector<Tensor> matrices, biases, columns;
        for (const index_t width : {21, 7, 126}) {
          const auto seed = static_cast<std::uint64_t>(width);
          matrices.push_back(random_contiguous({width, depth}, dtype, 2 + seed));
          biases.push_back(random_contiguous({width}, dtype, 3 + seed));
          columns.push_back(raw::matmul(first(a), raw::transpose(matrices.back()), 1, &biases.back()));
        }
        const bool taken = rows <= 4 && (dtype == DType::f32 || depth != 12);
        std::vector<Tensor> factors, shifts;
        for (std::size_t k = 0; k < matrices.size(); ++k)
          factors.push_back(raw::transpose(on_gpu(matrices[k]))), shifts.push_back(on_gpu(biases[k]));
        const Tensor left = first(on_gpu(a));
        // Heads of 7: all tokens of one sequence, of two, or the third of five tokens of each sequence.
        const index_t pair = rows % 2 == 0 ? 2 : 1;
        for (const auto& [sequences, kept] :
            {std::pair{index_t(1), false}, std::pair{pair, false}, std::pair{rows, true}}) {
          std::vector<Tensor> made, rows_made;
          for (const Tensor& each : columns) {
            const Shape shape{sequences, kept ? 5 : rows / sequences, each.size(1) / 7, 7};
            const Tensor all = Tensor::zeros(shape, dtype, left.device());
            made.push_back(raw::permute(all, {0, 2, 1, 3}));
            rows_made.push_back(kept ? raw::slice(all, 1, 2, 3) : all);
          }
          const Tensor third = on_gpu(Tensor::of({2}, {1}, DType::i64));
          const std::uint64_t before = launches();
          CHECK(kernels(left).matmul_beside(left, factors, shifts, made, kept ? third : Tensor()) == taken);
          CHECK(launches() - before == (taken ? 1 : 0));
          for (std::size_t k = 0; taken && k < columns.size(); ++k) {
            const std::vector<double> own = rows_made[k].to_vector();
            expect_close(own, columns[k].to_vector(), dtype, depth);
            const auto is_set = [](double number) { return number != 0; };
            CHECK(std::ranges::count_if(made[k].to_vector(), is_set) == std::ranges::count_if(own, is_set));
          }
        }
        const Tensor one = raw::matmul(left, factors[2], 0.5, &shifts[2]);
        expect_close(one.to_vector(), raw::matmul(first(a), raw::transpose(matrices[2]), 0.5, &biases[2]).to_vector(),
            dtype, depth);
        const Tensor sums = Tensor::like(one), y = Tensor::like(one);
        kernels(left).matmul_gelu(left, factors[2], &shifts[2], sums, y);
        expect_close(sums.to_vector(), columns[2].to_vector(), dtype, depth);
        expect_close(y.to_vector(), raw::unary(functions::Gelu{}, columns[2]).to_vector(), dtype, depth);
      }
}

TEST_CASE("cuda products: those of a graph count whenever it is replayed") {
  const Tensor a = on_gpu(random_contiguous({5, 7}, DType::f32, 1)),
               b = on_gpu(random_contiguous({7, 8}, DType::f32, 2));
  const auto traffic = [] { return runtime_of(Device::cuda(0)).traffic(); };
  (void)raw::matmul(a, b);
  Tensor y;
  const DeviceTraffic before = traffic();
  const auto recorded = runtime_of(Device::cuda(0)).record([&] { y = raw::matmul(a, b); });
  CHECK((traffic().products - before.products).products == 0);
  for (int replay = 0; replay < 3; ++replay) recorded->replay();
  CHECK((traffic().products - before.products).products == 3);
  CHECK((traffic().unaligned - before.unaligned).multiplications == 3 * 5 * 7 * 8);
}

TEST_CASE("cuda products: a convolution of more sequences than are laid out at once") {
  const Convolution at{3, 8, 256, 512, 8, 512, 3, 1};
  REQUIRE(at.sequences_at_once(sizeof(double)) == 2);
  const Tensor x = random_contiguous({3, 8, 256, 512}, DType::f64, 1), dy = random_contiguous(x.shape(), DType::f64, 2),
               weight = random_contiguous({8, 8, 1, 3}, DType::f64, 3);
  const auto on = [&](Device device) {
    const Tensor y = Tensor::like(on_device(x, device)), dweight = Tensor::like(on_device(weight, device));
    kernels(device).convolve_keys(at, on_device(x, device), on_device(weight, device), false, {}, y);
    kernels(device).convolve_keys_weight(at, on_device(x, device), on_device(dy, device), dweight);
    return std::pair{y.to_vector(), dweight.to_vector()};
  };
  const auto expected = on(Device::cpu()), got = on(Device::cuda(0));
  expect_close(got.first, expected.first, DType::f64, at.terms());
  expect_close(got.second, expected.second, DType::f64, 3 * 256 * 512);
}

TEST_CASE("cuda products: numbers next to a slice are not its padding, and are not read") {
  const auto beside_nan = [](const Shape& shape, std::uint64_t seed) {
    const Tensor memory = Tensor::full({shape[0], shape[1] + 23}, std::nan(""), DType::bf16);
    const Tensor inside = raw::slice(memory, 1, 0, shape[1]);
    raw::copy_into(random_contiguous(shape, DType::bf16, seed), inside);
    return std::pair{inside, raw::slice(on_gpu(memory), 1, 0, shape[1])};
  };
  const auto a = beside_nan({517, 301}, 1), b = beside_nan({301, 451}, 2);
  REQUIRE(aligned_extents(a.first, b.first, Tensor::like(a.first, {517, 451})));
  expect_close(
      raw::matmul(a.second, b.second).to_vector(), raw::matmul(a.first, b.first).to_vector(), DType::bf16, 301);
}
