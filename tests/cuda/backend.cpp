// The CUDA backend, on a GPU or on the emulated one: every kernel and every checked op, forward and backward, against
// the CPU; on the emulated one in several orders of threads.
#include "tensor/device/backend.h"
#include "autograd/backward.h"
#include "autograd/check/samples.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;

namespace {

using Run = std::function<void(Kernels&, const Mover&, const Outputs&)>;

// What `run` writes to fresh outputs of the given shapes.
void expect_same(
    const std::string& name, DType dtype, const std::vector<Shape>& shapes, index_t terms, const Run& run) {
  Outputs outputs;
  for (const Shape& shape : shapes) outputs.push_back(Tensor::zeros(shape, dtype));
  expect_same_on_gpu(name, dtype, outputs, terms, run);
}

Tensor mask_of(const Shape& shape, Layout layout) {
  const Tensor mask = Tensor::empty(shape, DType::boolean);
  cpu_kernels().copy(
      raw::binary("mask", functions::GreaterEqual{}, random_tensor(shape, DType::f32, 9, layout), Tensor::zeros(shape)),
      mask);
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

TEST_CASE("functions have their known values, at infinities and kinks too, and let NaN through, on every device") {
  std::vector<Device> devices{Device::cpu()};
  if (has_cuda()) devices.push_back(Device::cuda(0));
  for (const Unary f : Unary::all()) {
    const UnaryFacts& facts = facts_of(f);
    const UnaryAttributes p = facts.samples.attributes;
    CAPTURE(std::string(facts.name));
    const Tensor x = Tensor::of({facts.known[0].x, facts.known[1].x, facts.known[2].x, NAN}, {4}, DType::f64);
    for (const Device& device : devices) {
      for (const DType dtype : {DType::f32, DType::f64}) {
        const Tensor rows = raw::expand(raw::to_device(raw::cast(x, dtype), device), {9, 4});
        for (const Tensor& each : {rows, raw::copy(rows)}) {  // one by one, and in blocks or packs
          const std::vector<double> y = raw::unary(f, each, p).to_vector();
          for (std::size_t i = 0; i < y.size(); ++i) {
            const double known = i % 4 < 3 ? facts.known[i % 4].y : NAN;
            const bool right = y[i] == known || (std::isnan(y[i]) && std::isnan(known)) ||
                               std::fabs(y[i] - known) <= 16 * epsilon_of(dtype) * std::fabs(known);
            CHECK_MESSAGE(right, "f(", each.to_vector()[i], ") is ", y[i], "; ", known, " required");
          }
        }
      }
    }
    for (const auto& kink : facts.samples.kinks) {
      if (std::isnan(kink.x)) continue;
      visit(f, [&]<class F>(F) {
        const double saved = F::facts.saves == Saves::output ? F::value(kink.x, p) : kink.x;
        CHECK(F::derivative(saved, p) == kink.derivative);
      });
    }
  }
  for (const Binary f : Binary::all())
    for (const auto& known : facts_of(f).known)
      visit(f, [&]<class F>(F) { CHECK_MESSAGE(F::value(known.a, known.b) == known.y, F::facts.name); });
  CHECK(raw::unary(functions::LeakyRelu{}, Tensor::scalar(-INFINITY), {0, 0}).item() == 0);
}

TEST_CASE("cuda kernels: functions of one number and two") {
  if (!has_cuda()) return;
  const Shape shape{3, 5, 4};
  for (const DType dtype : floating_dtypes) {
    for (const Layout layout : layouts) {
      const Tensor x = random_tensor(shape, dtype, 1, layout), g = random_tensor(shape, dtype, 2),
                   z = random_tensor(shape, dtype, 3, layout);
      const auto expect = [&](const char* name, const Run& run) { expect_same(name, dtype, {shape}, 1, run); };
      for (const Unary f : Unary::all()) {
        const UnaryAttributes p = facts_of(f).samples.attributes;
        expect("unary", [&](Kernels& k, const Mover& at, const Outputs& y) { k.unary(f, p, at(x), y[0]); });
        expect("unary_backward",
            [&](Kernels& k, const Mover& at, const Outputs& y) { k.unary_backward(f, p, at(x), at(g), y[0]); });
        if (dtype == DType::dual) continue;
        expect("unary_second",
            [&](Kernels& k, const Mover& at, const Outputs& y) { k.unary_second(f, p, at(x), at(g), y[0]); });
      }
      for (const Binary f : Binary::all())
        expect("binary", [&](Kernels& k, const Mover& at, const Outputs& y) { k.binary(f, at(x), at(z), y[0]); });
      const Tensor mask = mask_of(shape, layout);
      expect("masked", [&](Kernels& k, const Mover& at, const Outputs& y) { k.masked(at(x), at(mask), -2, y[0]); });
    }
  }
  const Tensor dual = Tensor::zeros({1}, DType::dual, Device::cuda(0));
  CHECK_THROWS_AS(kernels(Device::cuda(0)).unary_second(functions::Exp{}, {}, dual, dual, dual), Error);
}

TEST_CASE("cuda kernels: fill and copy, every dtype into every other") {
  if (!has_cuda()) return;
  const Shape shape{4, 3, 5};
  const std::vector<DType> dtypes{
      DType::f16, DType::bf16, DType::f32, DType::f64, DType::i32, DType::i64, DType::boolean, DType::dual};
  for (const DType to : dtypes) {
    for (const DType from : dtypes) {
      for (const Layout layout : layouts) {
        const Tensor x = random_tensor(shape, from, 1, layout),
                     expected = random_tensor(shape, to, 2, Layout::permuted), got = on_gpu(expected);
        cpu_kernels().copy(x, expected);
        kernels(Device::cuda(0)).copy(on_gpu(x), got);
        CHECK(read(on_cpu(got)) == read(expected));
        CHECK(read(on_cpu(got), true) == read(expected, true));
      }
    }
    const Tensor sliced = on_gpu(random_tensor(shape, to, 3, Layout::sliced)), expected = Tensor::full(shape, 1, to);
    kernels(Device::cuda(0)).fill(sliced, 1);
    CHECK(read(on_cpu(sliced)) == read(expected));
  }
}

TEST_CASE("cuda kernels: random numbers") {
  if (!has_cuda()) return;
  const Stream stream(7, "cuda", 3);
  for (const DType dtype : floating_dtypes) {
    expect_same("uniform", dtype, {{101}}, 1,
        [&](Kernels& k, const Mover&, const Outputs& y) { k.random_uniform(y[0], stream, -1, 3); });
    expect_same("normal", dtype, {{101}}, 1,
        [&](Kernels& k, const Mover&, const Outputs& y) { k.random_normal(y[0], stream, 0.5, 2); });
  }
}

TEST_CASE("cuda kernels: products of duals") {
  if (!has_cuda()) return;
  const Tensor bias = random_tensor({5}, DType::dual, 3);
  for (const Layout layout : layouts) {
    const Tensor a = random_tensor({2, 3, 4}, DType::dual, 1, layout),
                 b = random_tensor({2, 4, 5}, DType::dual, 2, layout);
    for (const bool shifted : {false, true}) {
      expect_same("matmul", DType::dual, {{2, 3, 5}}, 4, [&](Kernels& k, const Mover& at, const Outputs& y) {
        const Tensor shift = at(bias);
        k.matmul(at(a), at(b), shifted ? &shift : nullptr, 0.5, y[0]);
      });
    }
  }
  const Tensor left = Tensor::zeros({3, 0}), right = Tensor::zeros({0, 2});
  expect_same("an empty sum", DType::f32, {{3, 2}}, 1, [&](Kernels& k, const Mover& at, const Outputs& y) {
    k.fill(y[0], 7);
    k.matmul(at(left), at(right), nullptr, 1, y[0]);
  });
}

TEST_CASE("cuda: every checked op on the GPU agrees with the CPU, forward and backward") {
  if (!has_cuda()) return;
  REQUIRE_FALSE(checked_ops().empty());
  in_every_order([] {
    for (const CheckedOp& op : checked_ops())
      for (const DType dtype : {DType::f32, DType::f64})
        if (!op.on_cpu_alone) check_on_gpu(op, dtype);
  });
}

TEST_CASE("cuda: products of every dtype and layout on the GPU") {
  if (!has_cuda()) return;
  for (const DType dtype : floating_dtypes) {
    for (const Layout layout : layouts) {
      const Tensor a = random_tensor({2, 3, 17, 9}, dtype, 1, layout),
                   b = random_tensor({2, 3, 9, 6}, dtype, 2, layout);
      const Tensor one = random_tensor({9, 6}, dtype, 3, layout), bias = random_tensor({6}, dtype, 4);
      const Tensor gpu_bias = on_gpu(bias);
      for (const Tensor& other : {b, one}) {
        const Tensor expected = raw::matmul(a, other, 0.5, &bias),
                     got = raw::matmul(on_gpu(a), on_gpu(other), 0.5, &gpu_bias);
        expect_close(got.to_vector(), expected.to_vector(), dtype, 9);
      }
    }
  }
}
