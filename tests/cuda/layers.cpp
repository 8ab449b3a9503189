// Layers on the GPU, or on the emulated one, against the CPU's: what a GPU fuses, and rows of 16-bit logits that begin at
// the alignment of wide loads. Their products: tests/tensor/kernels/products.cpp.
#include <cstdint>

#include "nn/attention/attention.h"
#include "nn/layers/layers.h"
#include "tensor/device/product_layout.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;

namespace {

const std::vector<DType> dtypes_of_layers{DType::f16, DType::bf16, DType::f32, DType::f64};

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

void expect_the_cpus(const std::vector<Tensor>& inputs, index_t terms, const Function& f) {
  const DType dtype = inputs[0].dtype();
  CAPTURE(std::string(to_string(dtype)));
  const std::vector<Tensor> expected = results_on(Device::cpu(), inputs, f);
  in_every_order([&] {
    const std::vector<Tensor> got = results_on(Device::cuda(0), inputs, f);
    for (std::size_t k = 0; k < got.size(); ++k) {
      CAPTURE(k);
      REQUIRE(got[k].shape() == expected[k].shape());
      expect_close(got[k].to_vector(), expected[k].to_vector(), dtype, terms);
    }
  });
}

Tensor scaled(const Shape& shape, DType dtype, std::uint64_t seed) {  // so that a sum over the last axis is about 1
  const Tensor x = random_contiguous(shape, dtype, seed);
  return raw::unary(functions::Affine{}, x, {1 / std::sqrt(static_cast<double>(shape[-1])), 0});
}

// True if rows are whole packs of 16 bytes apart, with zeros after each.
bool begins_apart(const Tensor& x) {
  const Tensor rows = raw::reshape(x, {-1, x.size(-1)});
  const index_t apart = rows.strides()[0], behind = apart - rows.size(1);
  if (behind == 0 || apart % product_pack(x.dtype()) != 0 || !raw::has_zeros_between_rows(rows)) return false;
  for (const double number : rows.view({rows.size(0), behind}, {apart, 1}, rows.size(1)).to_vector())
    if (number != 0) return false;
  return true;
}

}  // namespace

TEST_CASE("cuda layers: what a GPU fuses is the plain form that the CPU runs") {
  for (const DType dtype : dtypes_of_layers) {
    const Tensor x = scaled({2, 5, 24}, dtype, 1), added = scaled({2, 5, 24}, dtype, 2);
    const auto placed = [dtype](Module& module, const Tensor& beside) {
      module.to(dtype);
      module.to(beside.device());
    };
    for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
      Norm norm(24, kind);
      norm.initialise(1);
      expect_the_cpus({x, added}, 24, [&](const std::vector<Tensor>& in) {
        placed(norm, in[0]);
        const SumAndNorm y = norm.of_sum({in[0], in[1]});
        return concat_along(-1, {y.sum, y.normed});
      });
    }
    Attention attention({.dim = 24, .heads = 3}, {});
    attention.initialise(1);
    expect_the_cpus({x}, 24, [&](const std::vector<Tensor>& in) {
      placed(attention, in[0]);
      const auto [query, key, value] = attention.project(in[0]);
      return concat_along(-1, {query, key, value});
    });
    for (const Activation activation : {Activation::gelu, Activation::relu}) {
      MLP mlp({.dim = 24, .hidden = 32, .activation = activation});
      mlp.initialise(1);
      expect_the_cpus({x}, 32, [&](const std::vector<Tensor>& in) {
        placed(mlp, in[0]);
        return mlp(in[0]);
      });
    }
  }
}

TEST_CASE("cuda layers: the gradient of a transposed operand has the layout of the viewed tensor") {
  for (const DType dtype : dtypes_of_layers) {
    const Tensor query = random_contiguous({2, 3, 5, 8}, dtype, 1), key = random_contiguous({2, 3, 7, 8}, dtype, 2);
    const Function scores = [](const std::vector<Tensor>& in) { return matmul(in[0], transpose(in[1]), 0.25); };
    expect_the_cpus({query, key}, 8, scores);
    CHECK(results_on(Device::cuda(0), {query, key}, scores)[3].is_contiguous());
    // One table for all tokens, and a cotangent that comes from heads inside tokens.
    expect_the_cpus({query, random_contiguous({6, 8}, dtype, 3)}, 60, scores);
    expect_the_cpus({query, random_contiguous({2, 3, 8, 4}, dtype, 4)}, 8, [](const std::vector<Tensor>& in) {
      return reshape(permute(matmul(in[0], in[1]), {0, 2, 1, 3}), {2, 5, 12});
    });
  }
}

TEST_CASE("cuda layers: logits of a vocabulary that no pack divides begin whole packs apart, zeros between") {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (const bool with_bias : {true, false}) {
      const Tensor x = scaled({2, 3, 24}, dtype, 1), weight = scaled({133, 24}, dtype, 2),
                   bias = with_bias ? scaled({133}, dtype, 3) : Tensor();
      const Tensor logits = linear(on_gpu(x), on_gpu(weight), on_gpu(bias)), expected = linear(x, weight, bias);
      CHECK(begins_apart(logits));
      CHECK(logits.strides()[-2] == 136);
      CHECK(expected.is_contiguous());
      expect_close(logits.to_vector(), expected.to_vector(), dtype, 24);
      // Reading them gives the numbers of a copy without gaps.
      const Tensor plain = contiguous(logits);
      CHECK(plain.is_contiguous());
      const auto same_as = [&](const Function& f) {
        CHECK(f({logits}).to_vector() == f({plain}).to_vector());
        CHECK(f({logits}).shape() == f({plain}).shape());
      };
      same_as([](const std::vector<Tensor>& t) { return raw::argmax(t[0]); });
      same_as([](const std::vector<Tensor>& t) { return softmax(t[0]); });
      same_as([](const std::vector<Tensor>& t) { return select(t[0], 1, 2); });
      same_as([](const std::vector<Tensor>& t) { return reshape(t[0], {3, 266}); });
      same_as([](const std::vector<Tensor>& t) { return raw::to_device(t[0], Device::cpu()); });
      same_as([](const std::vector<Tensor>& t) { return cast(t[0], DType::f32); });
      same_as([](const std::vector<Tensor>& t) { return maximum_along(t[0], -1); });
      same_as([](const std::vector<Tensor>& t) { return t[0] + t[0]; });
    }
  }
  const auto lies = [](DType dtype, index_t width) {
    return linear(on_gpu(scaled({3, 8}, dtype, 1)), on_gpu(scaled({width, 8}, dtype, 2)), {});
  };
  CHECK(begins_apart(lies(DType::bf16, 129)));
  CHECK(lies(DType::bf16, 127).is_contiguous());
  CHECK(lies(DType::bf16, 136).is_contiguous());
  CHECK(begins_apart(lies(DType::f32, 133)));
  CHECK(lies(DType::f64, 133).is_contiguous());
  CHECK(lies(DType::bf16, 1027).strides()[0] == 1152);  // whole tiles
}

TEST_CASE("cuda layers: cross-entropy of logits that begin apart, in value and gradient") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    CAPTURE(std::string(to_string(dtype)));
    for (const index_t width : {133, 1100}) {
      for (const Shape& shape : {Shape{2, 3}, Shape{3, 1}, Shape{1, 4}, Shape{5}, Shape{}}) {
        CAPTURE(shape);
        Shape of_x = shape;
        of_x.push_back(24);
        const Tensor x = scaled(of_x, dtype, 1), weight = random_contiguous({width, 24}, dtype, 2);
        const Tensor target = Tensor::empty(shape, DType::i64);
        for (index_t i = 0; i < target.numel(); ++i) target.data<index_t>()[i] = i == 1 ? -1 : width - 1 - 13 * i;
        for (const bool is_sum : {true, false}) {
          const auto loss_of = [&](Device device, bool plain) {
            const Tensor w = requires_grad(on_device(weight, device)), input = requires_grad(on_device(x, device));
            const auto loss = [&] {
              const Tensor logits = linear(input, w, {}), given = plain ? contiguous(logits) : logits;
              return is_sum ? cross_entropy_sum(given, on_device(target, device))
                            : cross_entropy(given, on_device(target, device));
            };
            const Tensor y = loss();
            std::vector<std::vector<double>> numbers{y.to_vector()};
            for (const Tensor& each : grad(y, {}, {input, w})) numbers.push_back(each.to_vector());
            // The last backward stores the gradient in the logits' memory.
            backward(loss());
            CHECK(gradient(input).to_vector() == numbers[1]);
            CHECK(gradient(w).to_vector() == numbers[2]);
            return numbers;
          };
          const auto expected = loss_of(Device::cpu(), false);
          for (const bool plain : {true, false}) {
            CAPTURE(plain);
            const auto got = loss_of(Device::cuda(0), plain);
            for (std::size_t k = 0; k < got.size(); ++k) expect_close(got[k], expected[k], dtype, 24);
          }
        }
      }
    }
  }
}
