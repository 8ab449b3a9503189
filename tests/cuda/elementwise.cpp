// Kernels that move numbers or work on them one by one, on the GPU or the emulated one, against the CPU's: packs and
// their tails, strides, turned axes, unaligned views, tables read and added to by index.
#include <algorithm>
#include <array>
#include <cstddef>

#include "autograd/backward.h"
#include "autograd/check/gradcheck.h"
#include "autograd/check/samples.h"
#include "autograd/ops.h"
#include "cuda/library/blas.h"
#include "tensor/convolution.h"
#include "tensor/index_check.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;

namespace {

const std::vector<DType> all_dtypes{
    DType::f16, DType::bf16, DType::f32, DType::f64, DType::i32, DType::i64, DType::boolean, DType::dual};
const std::vector<index_t> lengths{0, 1, 7, 8, 31, 257, 4096, 8193};

// [count] that begins `shift` elements into its storage.
Tensor shifted(index_t count, index_t shift, DType dtype, std::uint64_t seed) {
  return random_contiguous({count + shift}, dtype, seed).view({count}, {1}, shift);
}

Tensor rows_of(index_t count, const std::function<index_t(index_t)>& row, DType dtype = DType::i64) {
  std::vector<double> rows;
  for (index_t i = 0; i < count; ++i) rows.push_back(static_cast<double>(row(i)));
  return Tensor::of(rows, {count}, dtype);
}

void check_scatter(DType dtype, index_t count, index_t rows, index_t width, const Tensor& index) {
  const Tensor from = random_tensor({count, width}, dtype, 1), start = random_tensor({rows, width}, dtype, 2);
  CAPTURE(count);
  CAPTURE(width);
  expect_same_on_gpu("scatter_add_rows", dtype, {start}, count,
      [&](Kernels& k, const Mover& at, const Outputs& y) { k.scatter_add_rows(at(index), at(from), y[0]); });
}

Convolution convolution_of(index_t batch, index_t channels, index_t rows, index_t keys, index_t outputs, index_t taps,
    index_t left, index_t right) {
  return {batch, channels, rows, keys, outputs, keys + left + right - (taps - 1), taps, left};
}

// A sample's result and the gradients of its floating inputs.
std::vector<Tensor> run_on(Device device, const CheckedSample& sample, DType dtype) {
  std::vector<Tensor> inputs, leaves;
  for (const Tensor& x : sample.inputs) {
    const bool floating = x.defined() && is_floating(x.dtype());
    inputs.push_back(floating ? requires_grad(on_device(raw::cast(x, dtype), device)) : on_device(x, device));
    if (floating) leaves.push_back(inputs.back());
  }
  const Tensor y = sample.run(inputs), dy = on_device(random_contiguous(y.shape(), y.dtype(), 5), device);
  std::vector<Tensor> results = grad(y, dy, leaves, {.allow_unused = true});
  results.push_back(y);
  return results;
}
void check_sample(const std::string& op, const CheckedSample& sample, DType dtype) {
  CAPTURE(op);
  CAPTURE(sample.name);
  const std::vector<Tensor> expected = run_on(Device::cpu(), sample, dtype);
  in_every_order([&] {
    const std::vector<Tensor> got = run_on(Device::cuda(0), sample, dtype);
    for (std::size_t k = 0; k < got.size(); ++k) {
      REQUIRE(got[k].defined() == expected[k].defined());
      if (got[k].defined()) expect_close(got[k].to_vector(), expected[k].to_vector(), dtype, 16);
    }
  });
}

}  // namespace

TEST_CASE("cuda memory: fill, copy and cast of any length and alignment") {
  if (!has_cuda()) return;
  for (const DType to : all_dtypes) {
    for (const index_t length : lengths) {
      for (const index_t shift : {0, 1, 4}) {
        const Tensor out = shifted(length, shift, to, 5);
        expect_same_on_gpu("fill", to, {out}, 1, [&](Kernels& k, const Mover&, const Outputs& y) { k.fill(y[0], 1); });
        for (const DType from : all_dtypes) {
          if (length > 300 && !(is_floating(from) && is_floating(to))) continue;
          const Tensor x = shifted(length, shift == 4 ? 1 : shift, from, 3);
          expect_same_on_gpu(
              "copy", to, {out}, 1, [&](Kernels& k, const Mover& at, const Outputs& y) { k.copy(at(x), y[0]); });
        }
      }
    }
  }
}

TEST_CASE("cuda memory: copies with turned axes, rows, broadcast and slices") {
  if (!has_cuda()) return;
  for (const DType dtype : all_dtypes) {
    for (const Shape& shape : {Shape{33, 65}, Shape{3, 31, 40}, Shape{2, 3, 16, 8}, Shape{2, 1, 5}, Shape{64, 32}}) {
      for (const Layout from : layouts) {
        for (const Layout to : {Layout::contiguous, Layout::permuted, Layout::sliced}) {
          const Tensor x = random_tensor(shape, dtype, 1, from);
          expect_same_on_gpu("copy, " + name_of(from) + " to " + name_of(to), dtype,
              {random_tensor(shape, dtype, 2, to)}, 1,
              [&](Kernels& k, const Mover& at, const Outputs& y) { k.copy(at(x), y[0]); });
        }
      }
    }
    const Tensor heads = raw::permute(random_tensor({2, 5, 4, 16}, dtype, 4), {0, 2, 1, 3});  // [b t h d] as [b h t d]
    expect_same_on_gpu("heads", dtype, {Tensor::zeros(heads.shape(), dtype)}, 1,
        [&](Kernels& k, const Mover& at, const Outputs& y) { k.copy(at(heads), y[0]); });
  }
}

TEST_CASE("cuda memory: functions of one number and two, any length and alignment") {
  if (!has_cuda()) return;
  const UnaryAttributes p{0.5, 0.75};
  for (const DType dtype : floating_dtypes) {
    for (const index_t length : {index_t{0}, index_t{1}, index_t{257}, index_t{8197}}) {
      for (const index_t shift : {0, 1}) {
        const Tensor x = shifted(length, shift, dtype, 1), z = shifted(length, shift, dtype, 2),
                     out = shifted(length, shift, dtype, 3);
        for (const Unary f : std::initializer_list<Unary>{functions::Affine{}, functions::Gelu{}, functions::Sigmoid{},
                 functions::Tanh{}, functions::Relu{}, functions::Softplus{}, functions::GeluErf{}}) {
          expect_same_on_gpu("unary", dtype, {out}, 1,
              [&](Kernels& k, const Mover& at, const Outputs& y) { k.unary(f, p, at(x), y[0]); });
          expect_same_on_gpu("unary_backward", dtype, {out}, 1,
              [&](Kernels& k, const Mover& at, const Outputs& y) { k.unary_backward(f, p, at(x), at(z), y[0]); });
        }
        for (const Binary f : std::initializer_list<Binary>{
                 functions::Add{}, functions::Multiply{}, functions::Maximum{}, functions::GreaterEqual{}}) {
          expect_same_on_gpu("binary", dtype, {out}, 1,
              [&](Kernels& k, const Mover& at, const Outputs& y) { k.binary(f, at(x), at(z), y[0]); });
        }
      }
    }
  }
}

TEST_CASE("cuda memory: broadcast operands and masks") {
  if (!has_cuda()) return;
  const Shape shape{3, 5, 16};
  for (const DType dtype : floating_dtypes) {
    const Tensor x = random_tensor(shape, dtype, 1);
    for (const Shape& smaller :
        {Shape{}, Shape{1}, Shape{16}, Shape{5, 1}, Shape{3, 1, 1}, Shape{3, 1, 16}, Shape{5, 16}}) {
      const Tensor z = raw::expand(random_tensor(smaller, dtype, 2), shape);
      for (const Binary f : std::initializer_list<Binary>{
               functions::Add{}, functions::Subtract{}, functions::Divide{}, functions::Minimum{}}) {
        expect_same_on_gpu("binary", dtype, {Tensor::zeros(shape, dtype)}, 1,
            [&](Kernels& k, const Mover& at, const Outputs& y) { k.binary(f, at(x), at(z), y[0]); });
        expect_same_on_gpu("binary", dtype, {Tensor::zeros(shape, dtype)}, 1,
            [&](Kernels& k, const Mover& at, const Outputs& y) { k.binary(f, at(z), at(x), y[0]); });
      }
      const Tensor mask = raw::expand(raw::cast(random_tensor(smaller, DType::i32, 7), DType::boolean), shape);
      expect_same_on_gpu("masked", dtype, {Tensor::zeros(shape, dtype)}, 1,
          [&](Kernels& k, const Mover& at, const Outputs& y) { k.masked(at(x), at(mask), -2, y[0]); });
    }
    expect_same_on_gpu("in place", dtype, {x}, 1,
        [&](Kernels& k, const Mover&, const Outputs& y) { k.binary(functions::Add{}, y[0], y[0], y[0]); });
  }
}

TEST_CASE("cuda memory: rows scattered, few and many, all to one row or each to its own") {
  if (!has_cuda()) return;
  const Stream stream(3, "rows");
  for (const index_t count : {1, 2, 33, 1000, 5000}) {
    for (const index_t width : {1, 3, 40}) {
      if (count * width > 50000) continue;
      check_scatter(DType::f32, count, 5, width, rows_of(count, [](index_t) { return 3; }));
      check_scatter(DType::f32, count, count, width, rows_of(count, [&](index_t i) { return count - 1 - i; }));
      check_scatter(DType::f32, count, 37, width,
          rows_of(count, [&](index_t i) { return stream.below(static_cast<std::uint64_t>(i), 37); }));
    }
  }
  for (const DType dtype : floating_dtypes) {
    for (const DType index_dtype : {DType::i32, DType::i64}) {
      check_scatter(dtype, 333, 9, 7,
          rows_of(
              333, [&](index_t i) { return stream.below(static_cast<std::uint64_t>(i), 9); }, index_dtype));
    }
    check_scatter(dtype, 0, 4, 3, rows_of(0, [](index_t) { return 0; }));
  }
}

TEST_CASE("cuda memory: scattered rows have the same bits again") {
  if (!has_cuda()) return;
  const Stream stream(4, "rows");
  const Tensor index =
      on_gpu(rows_of(3000, [&](index_t i) { return stream.below(static_cast<std::uint64_t>(i), 11); }));
  const Tensor from = on_gpu(random_tensor({3000, 5}, DType::f32, 1));
  const auto run = [&] {
    const Tensor into = Tensor::zeros({11, 5}, DType::f32, Device::cuda(0));
    kernels(Device::cuda(0)).scatter_add_rows(index, from, into);
    return on_cpu(into);
  };
  CHECK(same_bits(run(), run()));
}

TEST_CASE("cuda memory: picking and adding by index") {
  if (!has_cuda()) return;
  struct Case {
    Shape x, index;
    int axis;
  };
  for (const DType dtype : floating_dtypes) {
    for (const Case& each : {Case{{3, 5}, {3, 70}, 1}, Case{{4, 2, 3}, {6, 2, 3}, 0},
             Case{{2, 3, 4, 500}, {1, 1, 4, 33}, 3}, Case{{2, 3, 5}, {2, 1, 9}, 2}, Case{{7, 4000}, {7, 40}, 1},
             Case{{2, 30000}, {2, 10}, 1}, Case{{2, 3}, {2, 0}, 1}}) {
      const index_t rows = each.x[each.axis];
      const Stream stream(5, "index");
      const Tensor drawn = rows_of(numel(each.index),
          [&](index_t i) { return stream.below(static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(rows)); });
      const Tensor index = raw::reshape(drawn, each.index);
      Shape picked = each.x;
      picked[each.axis] = each.index[each.axis];
      const Tensor x = random_tensor(each.x, dtype, 1), g = random_tensor(picked, dtype, 2);
      expect_same_on_gpu("gather", dtype, {Tensor::zeros(picked, dtype)}, 1,
          [&](Kernels& k, const Mover& at, const Outputs& y) { k.gather(at(x), at(index), each.axis, y[0]); });
      expect_same_on_gpu("sum_by_index", dtype, {random_tensor(each.x, dtype, 3)}, picked[each.axis],
          [&](Kernels& k, const Mover& at, const Outputs& y) { k.sum_by_index(at(g), at(index), each.axis, y[0]); });
    }
  }
}

TEST_CASE("cuda memory: tables read at real positions") {
  if (!has_cuda()) return;
  for (const DType dtype : floating_dtypes) {
    for (const index_t rows : {1, 5, 64, 1000, 30000}) {
      const Shape tables{3, 2, rows}, places{3, 2, 71};
      const Tensor table = random_tensor(tables, dtype, 1), g = random_tensor(places, dtype, 2);
      const double end = static_cast<double>(std::min<index_t>(rows, 100));
      const Tensor position =
          raw::unary(functions::Affine{}, random_tensor(places, dtype, 3), {end / 4, end / 2});  // some lie outside
      expect_same_on_gpu("lerp_at", dtype, {Tensor::zeros(places, dtype)}, 4,
          [&](Kernels& k, const Mover& at, const Outputs& y) { k.lerp_at(at(table), at(position), y[0]); });
      expect_same_on_gpu("lerp_at_backward", dtype, {random_tensor(tables, dtype, 4), Tensor::zeros(places, dtype)}, 71,
          [&](Kernels& k, const Mover& at, const Outputs& y) {
            k.lerp_at_backward(at(table), at(position), at(g), y[0], y[1]);
          });
    }
  }
}

TEST_CASE("cuda memory: rows convolved along their keys") {
  if (!has_cuda()) return;
  const std::vector<Convolution> cases{convolution_of(2, 3, 4, 7, 5, 3, 1, 1),
      convolution_of(1, 24, 2, 150, 33, 3, 1, 1), convolution_of(2, 2, 2, 4, 2, 2, 3, 4),
      convolution_of(1, 2, 2, 6, 2, 3, -1, 0), convolution_of(1, 2, 3, 0, 2, 3, 1, 1),
      convolution_of(0, 2, 3, 4, 2, 3, 1, 1), convolution_of(1, 300, 1, 5, 300, 1, 0, 0),
      convolution_of(1, 2, 2100, 3, 2, 1, 0, 0)};
  for (const DType dtype : floating_dtypes) {
    for (const Convolution& c : cases) {
      if (dtype != DType::f32 && (c.channels > 100 || c.rows > 100)) continue;  // no tile fits; more tiles than blocks
      const Tensor x = random_tensor({c.batch, c.channels, c.rows, c.keys}, dtype, 1),
                   bias = random_tensor({c.outputs}, dtype, 3);
      const Tensor weight = random_tensor({c.outputs, c.channels, 1, c.taps}, dtype, 2);
      const Shape out{c.batch, c.outputs, c.rows, c.keys_out};
      for (const Tensor& shift : {bias, Tensor()}) {
        expect_same_on_gpu("convolve_keys", dtype, {Tensor::zeros(out, dtype)}, c.terms(),
            [&](Kernels& k, const Mover& at, const Outputs& y) {
              k.convolve_keys(c, at(x), at(weight), false, at(shift), y[0]);
            });
      }
      const Tensor g = random_tensor(out, dtype, 4);
      expect_same_on_gpu("convolve_keys_weight", dtype, {random_tensor(weight.shape(), dtype, 5)},
          c.batch * c.rows * c.keys_out,
          [&](Kernels& k, const Mover& at, const Outputs& y) { k.convolve_keys_weight(c, at(x), at(g), y[0]); });
    }
  }
}

TEST_CASE("cuda memory: a product's bias may begin anywhere; the library is given those alone that it can load") {
  alignas(16) const std::array<std::byte, 32> memory{};
  for (const std::size_t offset : {0u, 2u, 4u, 8u, 16u}) {
    const bool wide = offset % 16 == 0;
    std::byte* const at = const_cast<std::byte*>(memory.data()) + offset;
    CHECK(fits_epilogue({.bias = at}, 5) == wide);
    CHECK(fits_epilogue({.gelu = true, .before_gelu = at}, 8) == wide);
    CHECK(fits_epilogue({.gelu_at = at}, 8) == wide);
    CHECK(fits_epilogue({.gelu_at = memory.data(), .column_sums = at}, 8) == wide);
    CHECK(fits_epilogue({.row_sums = at}, 5) == wide);
  }
  CHECK_FALSE(fits_epilogue({.gelu = true, .before_gelu = const_cast<std::byte*>(memory.data())}, 12));
  CHECK_FALSE(fits_epilogue({.gelu_at = memory.data()}, 12));
  if (!has_cuda()) return;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (index_t shift = 0; shift < 9; ++shift) {
      CAPTURE(shift);
      const Tensor x = random_contiguous({5, 16}, dtype, 1), w = random_contiguous({24, 16}, dtype, 2);
      const Tensor bias = shifted(24, shift, dtype, 3);
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

TEST_CASE("cuda memory: an index out of range is told when numbers are read, with the line that gave it") {
  if (!has_cuda()) return;
  const Tensor table = on_gpu(random_tensor({5, 3}, DType::f32, 1));
  const Tensor good = on_gpu(Tensor::of({0, 4, 2}, {3}, DType::i64)),
               bad = on_gpu(Tensor::of({0, 4, 5}, {3}, DType::i32));
  CHECK(take_rows(table, good).to_vector().size() == 9);
  const unsigned line = __LINE__ + 1;
  const Tensor y = take_rows(table, bad);  // nothing waits
  const std::string text = error_text([&] { (void)y.to_vector(); });
  CHECK(
      text == "cuda_memory.cpp:" + std::to_string(line) + ": take_rows: index at [2] is 5; a value in [0, 5) required");
  CHECK(y.to_vector().size() == 9);  // told once
  const Tensor targets = on_gpu(Tensor::of({1, -1, 7}, {3}, DType::i64));
  const Tensor checked = kernels(Device::cuda(0)).checked_index({"cross_entropy", "target", 3, -1}, targets);
  const std::string of_target = error_text([&] { (void)checked.to_vector(); });
  CHECK(of_target.find("cross_entropy: target at [2] is 7; a value in [0, 3) required, or -1 to ignore it") !=
        std::string::npos);
  CHECK(checked.to_vector() == std::vector<double>{1, -1, 0});
}

TEST_CASE("cuda memory: gradcheck of tensors on the GPU, whatever their strides") {
  if (!has_cuda()) return;
  const Tensor table = requires_grad(on_gpu(random_tensor({3, 6}, DType::f64, 1, Layout::permuted)));
  const Tensor position = requires_grad(on_gpu(Tensor::of({0.3, 1.7, 4.4, 2.5, 0.1, 3.3}, {3, 2}, DType::f64)));
  const GradcheckReport report =
      gradcheck([&] { return sigmoid(lerp_at(table, position)); }, {{"table", table}, {"position", position}});
  CHECK_MESSAGE(report.ok(), report.text());
}

TEST_CASE("cuda memory: ops that read and add by index have the CPU's numbers in 16 bits too, forward and backward") {
  if (!has_cuda()) return;
  const std::vector<std::string> names{"rotary", "take_rows", "scatter_rows", "gather", "sum_by_index", "lerp_at",
      "dropout", "masked", "concat_along", "convolve_keys", "straight_through"};
  int found = 0;
  for (const CheckedOp& op : checked_ops()) {
    if (std::find(names.begin(), names.end(), op.name) == names.end()) continue;
    ++found;
    for (const CheckedSample& sample : op.samples())
      for (const DType dtype : {DType::f16, DType::bf16}) check_sample(op.name, sample, dtype);
  }
  CHECK(found == static_cast<int>(names.size()));
}
