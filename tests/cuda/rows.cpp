// The kernels that work on rows (softmax, norms, cross-entropy, reductions, running sums) on the device, or under the
// emulator, against the CPU's: every width at which they change their way, every dtype, rows that begin anywhere. Each
// runs twice and must give the same bits.
#include <array>
#include <limits>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "tensor/joined_kernels.h"
#include "tensor/raw.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

// Up to 32 and 1024: a warp with few numbers per lane and with many; 8192 in f32:
// a block that holds its row; beyond: a row read again.
const std::vector<index_t> widths{1, 2, 31, 32, 33, 255, 256, 1000, 1024, 1025, 5000, 9000};
const Device device = Device::cuda(0);

bool has_device() {
  const std::string reason = error_text([] { (void)kernels(device); });
  if (!reason.empty()) MESSAGE("skipped: " << reason);
  return reason.empty();
}

// x on the device with its strides, `lead` elements into its memory: with 1, nothing is aligned to 16 bytes.
Tensor upload(const Tensor& x, index_t lead) {
  if (!x.defined()) return x;
  index_t extent = x.numel() > 0 ? 1 : 0;
  for (int axis = 0; axis < x.rank() && extent > 0; ++axis) extent += (x.shape()[axis] - 1) * x.strides()[axis];
  const Tensor flat = raw::to_device(raw::copy(x.view({extent}, {1})), device),
               memory = Tensor::zeros({extent + lead}, x.dtype(), device);
  const Tensor there = memory.view({extent}, {1}, lead);
  kernels(device).copy(flat, there);
  return there.view(x.shape(), x.strides());
}

using Tensors = std::vector<Tensor>;
using Run = std::function<void(JoinedKernels&, const Tensors& inputs, const Tensors& outputs)>;
struct Output {
  Shape shape;
  DType dtype;
};

Tensors run_on_device(const Tensors& inputs, const std::vector<Output>& outputs, index_t lead, const Run& run) {
  Tensors there, results, back;
  for (const Tensor& x : inputs) there.push_back(upload(x, lead));
  for (const auto& [shape, dtype] : outputs) results.push_back(upload(Tensor::zeros(shape, dtype), lead));
  run(joined_kernels(device), there, results);
  for (const Tensor& y : results) back.push_back(raw::to_device(y, Device::cpu()));
  return back;
}

// All numbers that one run writes: what is left after cancelling is judged by the size of what cancelled.
std::vector<double> numbers_of(const Tensors& all, DType dtype, bool tangents) {
  std::vector<double> numbers;
  for (const Tensor& x : all) {
    if (x.dtype() != dtype) continue;
    for (const double value : read(x, tangents)) numbers.push_back(value);
  }
  return numbers;
}

// cancelled: numbers of the size of what cancels, where nothing but rounding is written.
void expect_same(const std::string& name, const Tensors& inputs, const std::vector<Output>& outputs, index_t terms,
    const Run& run, const Tensor& cancelled = {}) {
  CAPTURE(name);
  CAPTURE(inputs.at(0).shape());
  CAPTURE(std::string(to_string(inputs.at(0).dtype())));
  Tensors expected;
  for (const auto& [shape, dtype] : outputs) expected.push_back(Tensor::zeros(shape, dtype));
  run(cpu_kernels(), inputs, expected);
  for (const index_t lead : {0, 1}) {
    CAPTURE(lead);
    Tensors got = run_on_device(inputs, outputs, lead, run), again = run_on_device(inputs, outputs, lead, run);
    for (std::size_t k = 0; k < got.size(); ++k) CHECK(same_bits(got[k], again[k]));
    Tensors wanted = expected;
    if (cancelled.defined()) got.push_back(cancelled), wanted.push_back(cancelled);
    for (const DType dtype : floating_dtypes) {
      expect_close(numbers_of(got, dtype, false), numbers_of(wanted, dtype, false), dtype, terms);
      expect_close(numbers_of(got, dtype, true), numbers_of(wanted, dtype, true), dtype, terms);
    }
  }
}

// Random, with one row that is masked altogether.
Tensor mask_of(const Shape& shape, std::uint64_t seed) {
  const Tensor values = random_contiguous(shape, DType::f32, seed), mask = Tensor::empty(shape, DType::boolean);
  for (index_t i = 0; i < mask.numel(); ++i) mask.data<bool>()[i] = i >= shape[-1] && values.data<float>()[i] > 0;
  return mask;
}

// Contiguous; one row for all; every second entry of a larger mask; stored column by column.
Tensors masks_of(index_t rows, index_t width) {
  const Shape shape{rows, width};
  const Tensor larger = mask_of({rows, 2 * width}, 2), turned = mask_of({width, rows}, 3);
  return {mask_of(shape, 1), raw::expand(raw::slice(mask_of({2, width}, 4), 0, 1, 2), shape),
      larger.view(shape, {2 * width, 2}), turned.view(shape, {1, rows})};
}

}  // namespace

TEST_CASE("cuda rows: softmax, masked in every way") {
  if (!has_device()) return;
  for (const DType dtype : floating_dtypes) {
    for (const index_t width : widths) {
      const index_t rows = width > 1000 ? 2 : 6;
      const Tensor x = random_tensor({rows, width}, dtype, 1), dy = random_tensor({rows, width}, dtype, 2);
      const std::vector<Output> like_x{{x.shape(), dtype}};
      const Run softmax = [](Kernels& k, const Tensors& in, const Tensors& out) { k.softmax(in[0], in[1], out[0]); };
      expect_same("softmax", {x, Tensor()}, like_x, width, softmax);
      for (const Tensor& mask : masks_of(rows, width))
        expect_same("softmax, masked", {x, mask}, like_x, width, softmax);
      const Tensor y = whence::softmax(x);
      expect_same("softmax_backward", {y, dy}, like_x, width,
          [](Kernels& k, const Tensors& in, const Tensors& out) { k.softmax_backward(in[0], in[1], out[0]); });
    }
  }
}

TEST_CASE("cuda rows: softmax by the causal fact, behind other tokens and of more keys than are seen") {
  if (!has_device()) return;
  int turn = 0;  // each width at another place
  for (const DType dtype : floating_dtypes) {
    for (const index_t width : widths) {
      const Shape shape{2, width > 1000 ? 2 : 5, width};
      const index_t first_row = std::array{index_t{0}, width / 2, width - 1}[static_cast<std::size_t>(turn++ % 3)];
      const Tensor x = random_tensor(shape, dtype, 1), dy = random_tensor(shape, dtype, 2);
      expect_same("causal_softmax", {x}, {{shape, dtype}}, width,
          [first_row](
              JoinedKernels& k, const Tensors& in, const Tensors& out) { k.causal_softmax(in[0], first_row, out[0]); });
      const Tensor y = whence::causal_softmax(x, first_row);
      expect_same("causal_softmax_backward", {y, dy}, {{shape, dtype}}, width,
          [first_row](JoinedKernels& k, const Tensors& in, const Tensors& out) {
            k.causal_softmax_backward(in[0], in[1], first_row, out[0]);
          });
    }
  }
}

TEST_CASE("cuda rows: softmax of masks in several axes, of rows without any entry, of what is not finite") {
  if (!has_device()) return;
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = random_tensor({2, 3, 4, 40}, DType::f32, 1), mask = mask_of({3, 1, 40}, 2);
  const Run softmax = [](Kernels& k, const Tensors& in, const Tensors& out) { k.softmax(in[0], in[1], out[0]); };
  expect_same("broadcast mask", {x, raw::expand(mask, x.shape())}, {{x.shape(), DType::f32}}, 40,
      [](Kernels& k, const Tensors& in, const Tensors& out) { k.softmax(in[0], in[1], out[0]); });
  for (const index_t width : {3, 1500, 9000}) {
    const Tensor odd = random_tensor({4, width}, DType::f32, 3), none = Tensor::zeros({4, width}, DType::boolean);
    const float values[] = {static_cast<float>(nan), static_cast<float>(infinity), static_cast<float>(-infinity)};
    for (index_t row = 0; row < 3; ++row) odd.data<float>()[row * width + width / 2] = values[row];
    expect_same("not finite", {odd, Tensor()}, {{odd.shape(), DType::f32}}, width, softmax);
    const Tensors zero = run_on_device({odd, none}, {{odd.shape(), DType::f32}}, 0, softmax);
    CHECK(same_bits(zero[0], Tensor::zeros(odd.shape())));
  }
}

// Backward goes over chunks of 16 rows or more, each of which a thread keeps two sums of for every column that it has.
std::vector<index_t> widths_of_norms() {
  std::vector<index_t> all = widths;
  all.push_back(360);  // by a warp with many numbers per lane, as packs and one by one
  return all;
}
index_t rows_of_norm(index_t width, DType dtype) {  // in one chunk, or in several
  return width == 33 ? 300 : width >= 5000 && dtype == DType::f32 ? 18 : 5;
}

Tensors zeros_of(const std::vector<Output>& outputs) {
  Tensors made;
  for (const auto& [shape, dtype] : outputs) made.push_back(Tensor::zeros(shape, dtype));
  return made;
}

TEST_CASE("cuda rows: layer norm and root mean square norm") {
  if (!has_device()) return;
  for (const DType dtype : floating_dtypes) {
    for (const index_t width : widths_of_norms()) {
      const index_t rows = rows_of_norm(width, dtype);
      // In rows this narrow nearly everything cancels; a large one leaves something.
      const double epsilon = width <= 2 ? 1 : 1e-3;
      const DType wide = compute_dtype(dtype);
      const Shape shape{rows, width};
      const Tensor x = random_tensor(shape, dtype, 1), dy = random_tensor(shape, dtype, 2),
                   w = random_tensor({width}, dtype, 3);
      const Tensor b = random_tensor({width}, dtype, 4);
      for (const bool centered : {true, false}) {  // layer norm, with a bias and a mean; or root mean square norm
        CAPTURE(centered);
        std::vector<Output> outputs{{shape, dtype}, {{rows}, wide}};  // y, rstd, and the mean
        if (centered) outputs.push_back({{rows}, wide});
        const Run forward = [=](Kernels& k, const Tensors& in, const Tensors& out) {
          k.norm(
              in[0], {}, in[1], centered ? in[2] : Tensor(), epsilon, {}, out[0], centered ? out[2] : Tensor(), out[1]);
        };
        expect_same("norm", {x, w, b}, outputs, width, forward);
        const Tensors made = zeros_of(outputs);
        forward(cpu_kernels(), {x, w, b}, made);
        const Tensor mean = centered ? made[2] : Tensor();
        for (const int asked : {7, 1, 2, 4}) {  // bits: dx, dweight, dbias
          if (!centered && asked == 4) continue;
          CAPTURE(asked);
          outputs.clear();
          if (asked & 1) outputs.push_back({shape, dtype});
          if (asked & 2) outputs.push_back({{width}, dtype});
          if (centered && (asked & 4)) outputs.push_back({{width}, dtype});
          expect_same(
              "norm_backward", {x, w, mean, made[1], dy}, outputs, std::max(rows, width),
              [=](Kernels& k, const Tensors& in, const Tensors& out) {
                std::size_t next = 0;
                const auto take = [&](bool is_asked) { return is_asked ? out[next++] : Tensor(); };
                const Tensor dx = take(asked & 1), dweight = take(asked & 2), dbias = take(centered && (asked & 4));
                k.norm_backward(in[0], in[1], in[2], in[3], {}, in[4], dx, dweight, dbias);
              },
              width == 1 && asked == 1 ? dy : Tensor());
        }
      }
    }
  }
}

TEST_CASE("cuda rows: a sum and its norm, and their gradient, with that of the sum and without") {
  if (!has_device()) return;
  for (const DType dtype : floating_dtypes) {
    for (const index_t width : {2, 33, 256, 360, 1025, 9000}) {
      const index_t rows = rows_of_norm(width, dtype);
      const double epsilon = width <= 2 ? 1 : 1e-3;
      const DType wide = compute_dtype(dtype);
      const Shape shape{rows, width};
      const Tensor x = random_tensor(shape, dtype, 1), added = random_tensor(shape, dtype, 2),
                   w = random_tensor({width}, dtype, 3), b = random_tensor({width}, dtype, 4),
                   dsum = random_tensor(shape, dtype, 5), dy = random_tensor(shape, dtype, 6);
      // The last output is the mean, where there is one.
      for (const bool centered : {true, false}) {
        CAPTURE(centered);
        const auto bias = [centered](const Tensor& given) { return centered ? given : Tensor(); };
        std::vector<Output> outputs{{shape, dtype}, {shape, dtype}, {{rows}, wide}};
        if (centered) outputs.push_back({{rows}, wide});
        const Run forward = [=](Kernels& k, const Tensors& in, const Tensors& out) {
          k.norm(in[0], in[1], in[2], bias(in[3]), epsilon, out[0], out[1], centered ? out[3] : Tensor(), out[2]);
        };
        expect_same("norm of a sum", {x, added, w, b}, outputs, width, forward);
        const Tensors made = zeros_of(outputs);
        forward(cpu_kernels(), {x, added, w, b}, made);
        const Tensor mean = centered ? made[3] : Tensor();
        outputs = {{shape, dtype}, {{width}, dtype}};
        if (centered) outputs.push_back({{width}, dtype});
        for (const Tensor& given : {dsum, Tensor()})
          expect_same("norm_backward of a sum", {made[0], w, mean, made[2], given, dy}, outputs, std::max(rows, width),
              [](Kernels& k, const Tensors& in, const Tensors& out) {
                k.norm_backward(
                    in[0], in[1], in[2], in[3], in[4], in[5], out[0], out[1], out.size() > 2 ? out[2] : Tensor());
              });
      }
    }
  }
}

TEST_CASE("cuda rows: gradients by the sum, by its norm and by both") {
  if (!has_device()) return;
  const Shape shape{3, 40, 24}, row{24};
  for (const bool centered : {true, false}) {
    for (const bool by_sum : {true, false}) {
      for (const bool by_norm : {true, false}) {
        if (!by_sum && !by_norm) continue;
        CAPTURE(centered);
        CAPTURE(by_sum);
        CAPTURE(by_norm);
        const auto run = [&](Device on) {
          const auto made = [&](const Shape& of, std::uint64_t seed) {
            return raw::to_device(random_tensor(of, DType::f32, seed), on);
          };
          Tensors leaves{made(shape, 1), made(shape, 2), made(row, 3)};
          if (centered) leaves.push_back(made(row, 4));
          for (const Tensor& x : leaves) requires_grad(x);
          const SumAndNorm y = add_norm(leaves[0], leaves[1], leaves[2], centered ? leaves[3] : Tensor(), 1e-5);
          const Tensor first = y.sum * made(shape, 5), second = y.normed * made(shape, 6);
          const Tensor all = by_sum && by_norm ? first + second : by_sum ? first : second;
          return grad(all, Tensor::ones(shape, DType::f32, on), leaves);
        };
        const Tensors got = run(device), expected = run(Device::cpu());
        for (std::size_t k = 0; k < got.size(); ++k)
          expect_close(got[k].to_vector(), expected[k].to_vector(), DType::f32, 120);
      }
    }
  }
}

// Forward adds, rounds and norms in one kernel, and backward reads the sum that was stored: their numbers are those of
// the kernels that add and norm one after the other, to the bit.
TEST_CASE("cuda rows: a sum and its norm have the bits of the sum and then the norm") {
  if (!has_device()) return;
  Kernels& k = kernels(device);
  for (const DType dtype : floating_dtypes) {
    for (const index_t width : {3, 64, 1024, 9000}) {
      const Shape shape{3, width};
      const auto on = [&](const Shape& of, std::uint64_t seed) { return upload(random_tensor(of, dtype, seed), 0); };
      const Tensor x = on(shape, 1), added = on(shape, 2), w = on({width}, 3), b = on({width}, 4);
      const auto made = [&](const Shape& of, DType type) { return Tensor::zeros(of, type, device); };
      const DType wide = compute_dtype(dtype);
      const Tensors one{made(shape, dtype), made(shape, dtype), made({3}, wide), made({3}, wide)},
          two{made(shape, dtype), made(shape, dtype), made({3}, wide), made({3}, wide)};
      k.norm(x, added, w, b, 1e-5, one[0], one[1], one[2], one[3]);
      k.binary(functions::Add{}, x, added, two[0]);
      k.norm(two[0], {}, w, b, 1e-5, {}, two[1], two[2], two[3]);
      for (std::size_t n = 0; n < one.size(); ++n)
        CHECK(same_bits(raw::to_device(one[n], Device::cpu()), raw::to_device(two[n], Device::cpu())));
    }
  }
}

TEST_CASE("cuda rows: cross-entropy, with rows that are ignored") {
  if (!has_device()) return;
  for (const DType dtype : floating_dtypes) {
    for (const index_t width : widths) {
      const index_t rows = width > 1000 ? 3 : 9;
      const DType wide = compute_dtype(dtype);
      const Tensor logits = random_tensor({rows, width}, dtype, 1), target = Tensor::empty({rows}, DType::i64),
                   dy = Tensor::full({}, 1.5, wide);
      for (index_t row = 0; row < rows; ++row)
        target.data<index_t>()[row] = row == 1 ? -7 : (row * 977 + width - 1) % width;
      expect_same("cross_entropy", {logits, target}, {{{rows}, wide}, {{rows}, wide}}, width,
          [](Kernels& k, const Tensors& in, const Tensors& out) { k.cross_entropy(in[0], in[1], -7, out[0], out[1]); });
      const Tensor norm = Tensor::zeros({rows}, wide), loss = Tensor::zeros({rows}, wide);
      cpu_kernels().cross_entropy(logits, target, -7, norm, loss);
      expect_same("cross_entropy_backward", {logits, target, norm, dy}, {{{rows, width}, dtype}}, width,
          [](Kernels& k, const Tensors& in, const Tensors& out) {
            k.cross_entropy_backward(in[0], in[1], -7, in[2], in[3], 0.125, out[0]);
          });
    }
  }
}

TEST_CASE("cuda rows: cross-entropy of rows that begin apart; what lies between them is neither read nor written") {
  if (!has_device()) return;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (const index_t width : {1, 7, 8, 130, 1023, 1027, 5003}) {
      for (const index_t apart : {(width + 127) / 128 * 128, width + 3}) {
        CAPTURE(std::string(to_string(dtype)));
        CAPTURE(width);
        CAPTURE(apart);
        const index_t rows = 3;
        const DType wide = compute_dtype(dtype);
        const Tensor logits = random_tensor({rows, width}, dtype, 1), target = Tensor::of({0, -1, 0}, {3}, DType::i64),
                     dy = Tensor::full({}, 1.5, wide);
        target.data<index_t>()[2] = width - 1;
        const Tensor norm = Tensor::zeros({rows}, wide), loss = Tensor::zeros({rows}, wide),
                     dx = Tensor::zeros({rows, width}, dtype);
        cpu_kernels().cross_entropy(logits, target, -1, norm, loss);
        cpu_kernels().cross_entropy_backward(logits, target, -1, norm, dy, 0.125, dx);
        // NaN between the rows: a sum that had one would be NaN.
        const Tensor memory = Tensor::full({rows, apart}, std::nan(""), dtype),
                     inside = raw::slice(memory, 1, 0, width);
        cpu_kernels().copy(logits, inside);
        const auto on = [](const Tensor& x) { return raw::to_device(x, device); };
        const Tensor there = on(memory), x = raw::slice(there, 1, 0, width);
        const Tensor norm_there = on(norm), loss_there = on(Tensor::zeros({rows}, wide));
        kernels(device).cross_entropy(x, on(target), -1, norm_there, loss_there);
        expect_close(norm_there.to_vector(), norm.to_vector(), wide, width);
        expect_close(loss_there.to_vector(), loss.to_vector(), wide, width);
        kernels(device).cross_entropy_backward(x, on(target), -1, norm_there, on(dy), 0.125, x);  // in place
        expect_close(x.to_vector(), dx.to_vector(), dtype, 4);
        const std::vector<double> between = raw::slice(there, 1, width, apart).to_vector();
        CHECK(std::all_of(between.begin(), between.end(), [](double v) { return std::isnan(v); }));
      }
    }
  }
}

TEST_CASE("cuda rows: running sums, from both ends") {
  if (!has_device()) return;
  for (const DType dtype : floating_dtypes) {
    for (const index_t width : widths) {
      const Tensor x = random_tensor({width > 1000 ? 2 : 5, width}, dtype, 1);
      for (const bool reverse : {false, true}) {
        expect_same("cumulative_sum", {x}, {{x.shape(), dtype}}, width,
            [reverse](Kernels& k, const Tensors& in, const Tensors& out) { k.cumulative_sum(in[0], reverse, out[0]); });
      }
    }
  }
}

TEST_CASE("cuda rows: sums and maxima over any axes") {
  if (!has_device()) return;
  const std::vector<std::pair<Shape, Shape>> cases{{{5, 1}, {5, 1}}, {{6, 7}, {6, 1}}, {{6, 700}, {6, 1}},
      {{3, 1025}, {3, 1}}, {{2, 70000}, {2, 1}}, {{700, 6}, {1, 6}}, {{2000, 40}, {1, 40}}, {{20, 300}, {1, 300}},
      {{300, 40}, {1, 1}}, {{3, 50, 40}, {3, 1, 40}}, {{4, 3, 9, 11}, {1, 3, 1, 1}}, {{4, 3, 40, 5}, {1, 3, 1, 5}},
      {{2, 3, 4, 5}, {1, 1, 1, 1}}, {{4, 50, 3}, {4, 1, 1}}, {{12, 8}, {12, 1}}};
  for (const DType dtype : floating_dtypes) {
    for (const Reduction f : {Reduction::sum, Reduction::maximum}) {
      const Run reduce = [f](Kernels& k, const Tensors& in, const Tensors& out) { k.reduce(f, in[0], out[0]); };
      for (const auto& [shape, to] : cases) {
        const index_t terms = numel(shape) / numel(to);
        for (const Layout layout : layouts) {
          if (layout != Layout::contiguous && numel(shape) > 20000) continue;
          CAPTURE(name_of(layout));
          expect_same("reduce", {random_tensor(shape, dtype, 1, layout)}, {{to, dtype}}, terms, reduce);
        }
      }
      expect_same("reduce nothing", {Tensor::zeros({2, 0}, dtype)}, {{{2, 1}, dtype}}, 1, reduce);
    }
  }
}

TEST_CASE("cuda rows: maxima of rows with NaN, and where they are") {
  if (!has_device()) return;
  const auto argmax = [](const Tensor& x) {
    const Tensor out = raw::to_device(Tensor::zeros({x.size(0)}, DType::i64), device);
    kernels(device).argmax(upload(x, 0), out);
    return raw::to_device(out, Device::cpu());
  };
  for (const DType dtype : floating_dtypes) {
    for (const index_t width : widths) {
      const Tensor x = raw::cast(raw::cast(random_tensor({5, width}, DType::f32, 1), DType::i32),
          dtype);  // small integers: many ties
      const auto set = [&](index_t row, index_t column, double value) {
        kernels(Device::cpu()).fill(raw::slice(raw::slice(x, 0, row, row + 1), 1, column, column + 1), value);
      };
      for (const index_t column : {width / 3, width - 1}) set(1, column, std::numeric_limits<double>::quiet_NaN());
      for (index_t j = 0; j < width; ++j) set(2, j, -std::numeric_limits<double>::infinity());
      set(3, width - 1, 9);
      const Tensor expected = Tensor::zeros({5}, DType::i64);
      cpu_kernels().argmax(x, expected);
      CAPTURE(width);
      CHECK(argmax(x).to_vector() == expected.to_vector());
      CHECK(expected.to_vector()[1] == static_cast<double>(width / 3));
      expect_same("maximum", {x}, {{{5, 1}, dtype}}, 1,
          [](Kernels& k, const Tensors& in, const Tensors& out) { k.reduce(Reduction::maximum, in[0], out[0]); });
      expect_same("maximum of columns", {x}, {{{1, width}, dtype}}, 1,
          [](Kernels& k, const Tensors& in, const Tensors& out) { k.reduce(Reduction::maximum, in[0], out[0]); });
    }
  }
}
