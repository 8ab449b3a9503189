// The CUDA backend. Without CUDA, or without a GPU: the texts that say so. With CUDA: the kernels' bodies, run on the CPU, against the
// CPU's own kernels. With a GPU: every checked op, forward and backward, on the GPU against the CPU.
#include "autograd/backward.h"
#include "autograd/check.h"
#include "cuda/backend.h"
#include "tensor/raw.h"
#include "tests/reference.h"

using namespace whence;
using namespace whence::test;

namespace {

const std::vector<Unary> unary_functions_to_check{Unary::affine,     Unary::abs,  Unary::exp,        Unary::log,     Unary::sqrt,
                                                  Unary::square,     Unary::sin,  Unary::tanh,       Unary::relu,    Unary::gelu,
                                                  Unary::gelu_erf,   Unary::cos,  Unary::leaky_relu, Unary::sigmoid, Unary::clamp,
                                                  Unary::reciprocal, Unary::silu, Unary::softplus,   Unary::log1p};
const std::vector<Binary> binary_functions_to_check{Binary::add,     Binary::subtract, Binary::multiply,     Binary::divide,
                                                    Binary::maximum, Binary::minimum,  Binary::greater_equal};

// Empty when cuda:0 can be used.
std::string refusal() {
  return error_text([] { (void)kernels(Device::cuda(0)); });
}

// Says in the output what did not run, and why.
bool has_bodies() {
  if (!cuda_bodies()) MESSAGE("skipped: this build has no CUDA");
  return cuda_bodies() != nullptr;
}
bool has_gpu() {
  const std::string reason = refusal();
  if (!reason.empty()) MESSAGE("skipped: " << reason);
  return reason.empty();
}

// What `run` writes to fresh outputs of the given shapes: with the CPU's kernels and with the bodies of CUDA's.
using Outputs = std::vector<Tensor>;
void expect_same(const std::string& name, DType dtype, const std::vector<Shape>& shapes, index_t terms,
                 const std::function<void(Kernels&, const Outputs&)>& run) {
  CAPTURE(name);
  CAPTURE(std::string(to_string(dtype)));
  const Guards guards;
  Outputs expected, got;
  for (const Shape& shape : shapes) expected.push_back(Tensor::zeros(shape, dtype)), got.push_back(Tensor::zeros(shape, dtype));
  run(cpu_kernels(), expected);
  run(*cuda_bodies(), got);
  for (std::size_t k = 0; k < shapes.size(); ++k) {
    expect_close(read(got[k]), read(expected[k]), dtype, terms);
    expect_close(read(got[k], true), read(expected[k], true), dtype, terms);
    CHECK(got[k].storage().guards_intact());
  }
}

Tensor mask_of(const Shape& shape, Layout layout) {
  const Tensor mask = Tensor::empty(shape, DType::boolean);
  cpu_kernels().copy(raw::binary("mask", Binary::greater_equal, random_tensor(shape, DType::f32, 9, layout), Tensor::zeros(shape)), mask);
  return mask;
}

// One op's sample in one dtype on one device: the result, the cotangent and the gradient of every floating input.
std::vector<Tensor> run_sample(const CheckedSample& sample, DType dtype, Device device) {
  std::vector<Tensor> inputs, leaves;
  for (const Tensor& x : sample.inputs) {
    inputs.push_back(x);
    if (!x.defined()) continue;  // left out, as linear's bias may be
    const bool floating = is_floating(x.dtype());
    const Tensor moved = raw::to_device(raw::copy(raw::cast(x, floating ? dtype : x.dtype())), device);
    inputs.back() = floating ? requires_grad(moved) : moved;
    if (floating) leaves.push_back(inputs.back());
  }
  const Tensor y = sample.run(inputs);
  std::vector<Tensor> results{y};
  if (!is_floating(y.dtype()) || leaves.empty()) return results;
  results.push_back(raw::to_device(random_contiguous(y.shape(), y.dtype(), 5), device));
  for (const Tensor& gradient : grad(y, results[1], leaves, {.allow_unused = true})) results.push_back(gradient);
  return results;
}

// All numbers of a sample together: what is left after cancelling is judged by the size of what cancelled.
std::vector<double> all_numbers(const std::vector<Tensor>& results) {
  std::vector<double> numbers;
  for (const Tensor& result : results) {
    if (!result.defined()) continue;
    for (const double value : result.to_vector()) numbers.push_back(value);
  }
  return numbers;
}

void check_on_gpu(const CheckedOp& op, DType dtype) {
  for (const CheckedSample& sample : op.samples()) {
    CAPTURE(op.name);
    CAPTURE(sample.name);
    CAPTURE(std::string(to_string(dtype)));
    const auto expected = run_sample(sample, dtype, Device::cpu()), got = run_sample(sample, dtype, Device::cuda(0));
    REQUIRE(got.size() == expected.size());
    for (std::size_t k = 0; k < got.size(); ++k) {
      REQUIRE(got[k].defined() == expected[k].defined());
      if (!got[k].defined()) continue;
      CHECK(got[k].device() == Device::cuda(0));
      CHECK(got[k].dtype() == expected[k].dtype());
      CHECK(got[k].shape() == expected[k].shape());
    }
    index_t terms = 1;
    for (const Tensor& x : sample.inputs) terms = std::max(terms, x.defined() ? x.numel() : 1);
    expect_close(all_numbers(got), all_numbers(expected), dtype, terms);
  }
}

}  // namespace

TEST_CASE("cuda: a GPU that cannot be used is refused with the cause") {
  const std::string text = error_text([] { (void)Tensor::zeros({2}, DType::f32, Device::cuda(0)); });
  if (!cuda_bodies()) {
    CHECK(text == "device: cuda:0 given; this build has no CUDA; configure with -DWHENCE_CUDA=ON, or use cpu");
  } else if (!text.empty()) {
    CHECK(text.starts_with("device: cuda:0 given; no CUDA device is usable (cudaGetDeviceCount: "));
    CHECK(text.ends_with("); use cpu"));
    CHECK(error_text([] { (void)raw::to_device(Tensor::ones({2}), Device::cuda(0)); }) == text);
  } else {
    CHECK(Tensor::ones({2}, DType::f32, Device::cuda(0)).to_vector() == std::vector<double>{1, 1});
  }
}

TEST_CASE("cuda bodies: functions of one number and two") {
  if (!has_bodies()) return;
  const UnaryAttributes p{0.5, 0.75};
  const Shape shape{3, 5, 4};
  for (const DType dtype : floating_dtypes) {
    for (const Layout layout : layouts) {
      const Tensor x = random_tensor(shape, dtype, 1, layout), g = random_tensor(shape, dtype, 2),
                   z = random_tensor(shape, dtype, 3, layout);
      for (const Unary f : unary_functions_to_check) {
        expect_same("unary", dtype, {shape}, 1, [&](Kernels& k, const Outputs& y) { k.unary(f, p, x, y[0]); });
        expect_same("unary_backward", dtype, {shape}, 1, [&](Kernels& k, const Outputs& y) { k.unary_backward(f, p, x, g, y[0]); });
        if (dtype == DType::dual) continue;
        expect_same("unary_second", dtype, {shape}, 1, [&](Kernels& k, const Outputs& y) { k.unary_second(f, p, x, g, y[0]); });
      }
      for (const Binary f : binary_functions_to_check) {
        expect_same("binary", dtype, {shape}, 1, [&](Kernels& k, const Outputs& y) { k.binary(f, x, z, y[0]); });
      }
      const Tensor mask = mask_of(shape, layout);
      expect_same("keep", dtype, {shape}, 1, [&](Kernels& k, const Outputs& y) { k.keep(x, mask, -2, y[0]); });
    }
  }
  CHECK_THROWS_AS(cuda_bodies()->unary_second(Unary::exp, {}, Tensor::zeros({1}, DType::dual), Tensor::zeros({1}, DType::dual),
                                              Tensor::zeros({1}, DType::dual)),
                  Error);
}

TEST_CASE("cuda bodies: fill and copy, every dtype into every other") {
  if (!has_bodies()) return;
  const Shape shape{4, 3, 5};
  for (const DType to : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i32, DType::i64, DType::boolean, DType::dual}) {
    for (const DType from : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i32, DType::i64, DType::boolean, DType::dual}) {
      for (const Layout layout : layouts) {
        const Tensor x = random_tensor(shape, from, 1, layout), expected = random_tensor(shape, to, 2, Layout::permuted);
        const Tensor got = random_tensor(shape, to, 2, Layout::permuted);
        cpu_kernels().copy(x, expected);
        cuda_bodies()->copy(x, got);
        CHECK(read(got) == read(expected));
        CHECK(read(got, true) == read(expected, true));
      }
    }
    const Tensor sliced = random_tensor(shape, to, 3, Layout::sliced), expected = Tensor::full(shape, 1, to);
    cuda_bodies()->fill(sliced, 1);
    CHECK(read(sliced) == read(expected));
  }
}

TEST_CASE("cuda bodies: reductions") {
  if (!has_bodies()) return;
  for (const DType dtype : floating_dtypes) {
    for (const Reduction f : {Reduction::sum, Reduction::maximum}) {
      for (const Layout layout : layouts) {
        const Tensor x = random_tensor({3, 4, 5, 6}, dtype, 1, layout);
        for (const Shape& shape : {Shape{1, 1, 1, 1}, Shape{3, 1, 5, 1}, Shape{1, 4, 1, 6}, Shape{3, 4, 5, 6}, Shape{3, 1, 1, 6}}) {
          expect_same("reduce", dtype, {shape}, x.numel() / numel(shape), [&](Kernels& k, const Outputs& y) { k.reduce(f, x, y[0]); });
        }
      }
      const Tensor chunks = random_tensor({2, 3, 1100 * 1024 / 2}, dtype == DType::dual ? dtype : DType::f32, 2);  // more than one level
      expect_same("reduce", chunks.dtype(), {{1, 3, 1}}, 1100 * 1024, [&](Kernels& k, const Outputs& y) { k.reduce(f, chunks, y[0]); });
      expect_same("reduce nothing", dtype, {{2, 1}}, 1, [&](Kernels& k, const Outputs& y) {
        k.reduce(f, Tensor::zeros({2, 0}, dtype), y[0]);
      });
    }
    const Tensor x = random_tensor({7, 33}, dtype, 3), expected = Tensor::zeros({7}, DType::i64), got = Tensor::zeros({7}, DType::i64);
    cpu_kernels().argmax(x, expected);
    cuda_bodies()->argmax(x, got);
    CHECK(same_bits(got, expected));
  }
}

TEST_CASE("cuda bodies: rows") {
  if (!has_bodies()) return;
  const Shape shape{2, 3, 37};
  for (const DType dtype : floating_dtypes) {
    const Tensor x = random_tensor(shape, dtype, 1), g = random_tensor(shape, dtype, 2);
    expect_same("softmax", dtype, {shape}, 37, [&](Kernels& k, const Outputs& y) { k.softmax(x, {}, y[0]); });
    expect_same("softmax_backward", dtype, {shape}, 37, [&](Kernels& k, const Outputs& y) { k.softmax_backward(x, g, y[0]); });
    for (const Tensor& mask : {mask_of(shape, Layout::contiguous), raw::expand(mask_of({3, 1}, Layout::contiguous), shape)}) {
      expect_same("softmax, masked", dtype, {shape}, 37, [&](Kernels& k, const Outputs& y) { k.softmax(x, mask, y[0]); });
    }
    for (const bool reverse : {false, true}) {
      expect_same("cumulative_sum", dtype, {shape}, 37, [&](Kernels& k, const Outputs& y) { k.cumulative_sum(x, reverse, y[0]); });
    }
  }
}

TEST_CASE("cuda bodies: layer norm") {
  if (!has_bodies()) return;
  const index_t width = 13;
  const Shape shape{700, width}, rows{700};  // more than one chunk of rows
  for (const DType dtype : floating_dtypes) {
    const Tensor x = random_tensor(shape, dtype, 1), g = random_tensor(shape, dtype, 2);
    const DType wide = dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype;
    for (const bool plain : {false, true}) {
      const Tensor w = plain ? Tensor() : random_tensor({width}, dtype, 3), b = plain ? Tensor() : random_tensor({width}, dtype, 4);
      const Tensor mean = Tensor::zeros(rows, wide), rstd = Tensor::zeros(rows, wide);
      cpu_kernels().layer_norm(x, w, b, 1e-5, Tensor::empty(shape, dtype), mean, rstd);
      expect_same("layer_norm", dtype, {shape, rows, rows}, width,
                  [&](Kernels& k, const Outputs& y) { k.layer_norm(x, w, b, 1e-5, y[0], y[1], y[2]); });
      expect_same("layer_norm_backward", dtype, {shape, {width}, {width}}, 700,
                  [&](Kernels& k, const Outputs& y) { k.layer_norm_backward(x, w, mean, rstd, g, y[0], y[1], y[2]); });
      expect_same("layer_norm_backward, dx alone", dtype, {shape}, width,
                  [&](Kernels& k, const Outputs& y) { k.layer_norm_backward(x, w, mean, rstd, g, y[0], {}, {}); });
    }
  }
}

TEST_CASE("cuda bodies: scattered rows, random numbers, Adam") {
  if (!has_bodies()) return;
  const Tensor index = Tensor::of({4, 0, 4, 2, 4, 0, 6}, {7}, DType::i64);
  const Stream stream(7, "cuda", 3);
  for (const DType dtype : floating_dtypes) {
    const Tensor from = random_tensor({7, 3}, dtype, 1), start = random_tensor({8, 3}, dtype, 2);
    for (const DType index_dtype : {DType::i32, DType::i64}) {
      const Tensor rows = raw::cast(index, index_dtype);
      expect_same("scatter_add_rows", dtype, {{8, 3}}, 3, [&](Kernels& k, const Outputs& y) {
        cpu_kernels().copy(start, y[0]);
        k.scatter_add_rows(rows, from, y[0]);
      });
    }
    expect_same("uniform", dtype, {{101}}, 1, [&](Kernels& k, const Outputs& y) { k.random_uniform(y[0], stream, -1, 3); });
    expect_same("normal", dtype, {{101}}, 1, [&](Kernels& k, const Outputs& y) { k.random_normal(y[0], stream, 0.5, 2); });
  }
  for (const DType dtype : {DType::f32, DType::f64}) {
    const AdamStep step{1e-2, 0.9, 0.99, 1e-8, 0.1, 0.01, 0.5, 3};
    expect_same("adam", dtype, {{50}, {50}, {50}}, 1, [&](Kernels& k, const Outputs& y) {
      for (std::size_t i = 0; i < 3; ++i) cpu_kernels().copy(random_tensor({50}, dtype, i), y[i]);
      cpu_kernels().unary(Unary::square, {}, y[2], y[2]);  // a second moment is not negative
      k.adam(step, random_tensor({50}, dtype, 4), y[0], y[1], y[2]);
    });
  }
  CHECK_THROWS_AS(cuda_bodies()->adam({}, Tensor::zeros({1}, DType::f16), Tensor::zeros({1}, DType::f16), {}, {}), Error);
}

TEST_CASE("cuda bodies: products of duals") {
  if (!has_bodies()) return;
  const Tensor bias = random_tensor({5}, DType::dual, 3);
  for (const Layout layout : layouts) {
    const Tensor a = random_tensor({2, 3, 4}, DType::dual, 1, layout), b = random_tensor({2, 4, 5}, DType::dual, 2, layout);
    for (const Tensor* shift : {static_cast<const Tensor*>(nullptr), &bias}) {
      expect_same("matmul", DType::dual, {{2, 3, 5}}, 4, [&](Kernels& k, const Outputs& y) { k.matmul(a, b, shift, 0.5, y[0]); });
    }
  }
  const Tensor left = Tensor::zeros({3, 0}), right = Tensor::zeros({0, 2});
  expect_same("an empty sum", DType::f32, {{3, 2}}, 1, [&](Kernels& k, const Outputs& y) {
    k.fill(y[0], 7);
    k.matmul(left, right, nullptr, 1, y[0]);
  });
}

TEST_CASE("cuda: every checked op on the GPU agrees with the CPU, forward and backward") {
  if (!has_gpu()) return;
  REQUIRE_FALSE(checked_ops().empty());
  for (const CheckedOp& op : checked_ops()) {
    for (const DType dtype : {DType::f32, DType::f64}) check_on_gpu(op, dtype);
  }
}

TEST_CASE("cuda: products of every dtype and layout on the GPU") {
  if (!has_gpu()) return;
  for (const DType dtype : floating_dtypes) {
    for (const Layout layout : layouts) {
      const Tensor a = random_tensor({2, 3, 17, 9}, dtype, 1, layout), b = random_tensor({2, 3, 9, 6}, dtype, 2, layout);
      const Tensor one = random_tensor({9, 6}, dtype, 3, layout), bias = random_tensor({6}, dtype, 4);
      const auto on_gpu = [](const Tensor& x) { return raw::to_device(x, Device::cuda(0)); };
      const Tensor gpu_bias = on_gpu(bias);
      for (const Tensor& other : {b, one}) {
        const Tensor expected = raw::matmul(a, other, 0.5, &bias), got = raw::matmul(on_gpu(a), on_gpu(other), 0.5, &gpu_bias);
        expect_close(got.to_vector(), expected.to_vector(), dtype, 9);
      }
    }
  }
}
