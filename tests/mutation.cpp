// Can the checks fail? Feeds gradcheck wrong backwards and demands that each is caught, and that the right one passes.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <functional>

#include "autograd/backward.h"
#include "autograd/gradcheck.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using Tensors = std::vector<Tensor>;
using Forward = std::function<Tensor(const Tensors&)>;
using Backward = std::function<Tensors(const Tensors& inputs, const Tensor& y, const Tensor& dy)>;

// An op of up to three inputs whose backward is handed in.
struct Handmade {
  static constexpr const char* name = "handmade";
  Forward value;
  Backward derivative;
  struct Saved {
    SavedTensor a, b, c, y;
  };
  Tensor forward(Saved& saved, const Tensor& a, const Tensor& b, const Tensor& c) const {
    saved.a = a;
    saved.b = b;
    saved.c = c;
    const Tensor y = value({a, b, c});
    saved.y.output(y);
    return y;
  }
  Grads<3> backward(const Saved& saved, const Tensor& dy, Needs<3>) const {
    Tensors found = derivative({saved.a.get(), saved.b.get(), saved.c.get()}, saved.y.get(), dy);
    found.resize(3);
    return {found[0], found[1], found[2]};
  }
};

struct Mutation {
  std::string name;
  Forward forward;
  Backward right, wrong;
  Tensors inputs;  // floating ones are differentiated by
};

Tensor normal(const Shape& shape, const char* purpose) {
  return Tensor::normal(shape, 0, 1, Stream(11, purpose), DType::f64);
}
Tensor uniform(const Shape& shape, double low, double high) {
  return Tensor::uniform(shape, low, high, Stream(11, "uniform"), DType::f64);
}
Tensor row_sum(const Tensor& x) { return sum(x, {-1}, true); }
Tensor row_mean(const Tensor& x) { return mean(x, {-1}, true); }

GradcheckReport check(const Mutation& mutation, const Backward& backward) {
  Tensors in = mutation.inputs;
  in.resize(3);
  std::vector<Named> named;
  for (std::size_t k = 0; k < in.size(); ++k) {
    if (in[k].defined() && is_floating(in[k].dtype())) named.push_back({to_text("input ", k), in[k]});
  }
  return gradcheck(
      [&] {
        return apply(Handmade{mutation.forward, backward}, Site::current(), in[0], in[1], in[2]);
      },
      named);
}

Tensor softmax_gradient(const Tensor& y, const Tensor& dy) {
  return multiply(y, subtract(dy, row_sum(multiply(y, dy))));
}

std::vector<Mutation> softmax_mutations() {
  const Forward forward = [](const Tensors& in) { return softmax(in[0]); };
  const Backward right = [](const Tensors&, const Tensor& y, const Tensor& dy) {
    return Tensors{softmax_gradient(y, dy)};
  };
  const auto wrong = [&](const char* name, const std::function<Tensor(const Tensor&, const Tensor&)>& gradient) {
    return Mutation{name, forward, right,
        [=](const Tensors&, const Tensor& y, const Tensor& dy) { return Tensors{gradient(y, dy)}; },
        {normal({3, 5}, "softmax")}};
  };
  return {wrong("softmax, factor y dropped",
              [](const Tensor& y, const Tensor& dy) { return subtract(dy, row_sum(multiply(y, dy))); }),
      wrong(
          "softmax, doubled", [](const Tensor& y, const Tensor& dy) { return affine(softmax_gradient(y, dy), 2, 0); }),
      wrong("softmax, sign flipped",
          [](const Tensor& y, const Tensor& dy) { return affine(softmax_gradient(y, dy), -1, 0); })};
}

std::vector<Mutation> layout_mutations() {
  return {{"permute, not inverted",
              [](const Tensors& in) {
                return permute(in[0], {1, 2, 0});
              },
              [](const Tensors&, const Tensor&, const Tensor& dy) {
                return Tensors{permute(dy, {2, 0, 1})};
              },
              [](const Tensors&, const Tensor&, const Tensor& dy) {
                return Tensors{permute(dy, {1, 2, 0})};
              },
              {normal({3, 3, 3}, "permute")}},
      {"scan, wrong direction", [](const Tensors& in) { return cumulative_sum(in[0]); },
          [](const Tensors&, const Tensor&, const Tensor& dy) { return Tensors{reverse_cumulative_sum(dy)}; },
          [](const Tensors&, const Tensor&, const Tensor& dy) { return Tensors{cumulative_sum(dy)}; },
          {normal({2, 6}, "scan")}},
      {"broadcast sum missing", [](const Tensors& in) { return add(in[0], in[1]); },
          [](const Tensors&, const Tensor&, const Tensor& dy) {
            return Tensors{dy, sum_to(dy, {4})};
          },
          [](const Tensors&, const Tensor&, const Tensor& dy) {
            return Tensors{dy, select(dy, 0, 0)};
          },
          {normal({3, 4}, "a"), normal({4}, "b")}},
      {"mask forgotten", [](const Tensors& in) { return masked(in[0], in[1]); },
          [](const Tensors& in, const Tensor&, const Tensor& dy) { return Tensors{masked(dy, in[1])}; },
          [](const Tensors&, const Tensor&, const Tensor& dy) { return Tensors{dy}; },
          {normal({2, 3}, "x"), Tensor::of({1, 0, 1, 1, 1, 1}, {2, 3}, DType::boolean)}}};
}

// dtable of take_rows with every index moved by `shift` rows.
Tensor scattered(const Tensors& in, const Tensor& dy, index_t shift) {
  const Tensor out = Tensor::zeros(in[0].shape(), dy.dtype());
  Tensor moved = Tensor::empty(in[1].shape(), DType::i64);
  for (index_t i = 0; i < moved.numel(); ++i)
    moved.data<index_t>()[i] = (in[1].data<index_t>()[i] + shift) % in[0].size(0);
  kernels(dy.device()).scatter_add_rows(moved, raw::contiguous(dy), out);
  return out;
}

// lerp_at's gradients from plain loops for one row, with the two weights of a position in either order and the rows
// moved.
Tensors interpolated(const Tensors& in, const Tensor& dy, bool swapped, index_t shift) {
  const std::vector<double> t = in[0].to_vector(), p = in[1].to_vector(), g = dy.to_vector();
  std::vector<double> dt(t.size()), dp(p.size());
  for (std::size_t j = 0; j < p.size(); ++j) {
    const std::size_t below = static_cast<std::size_t>(p[j]);
    const double w = p[j] - std::floor(p[j]);
    dt[(below + static_cast<std::size_t>(shift)) % t.size()] += (swapped ? w : 1 - w) * g[j];
    dt[(below + 1 + static_cast<std::size_t>(shift)) % t.size()] += (swapped ? 1 - w : w) * g[j];
    dp[j] = (t[below + 1] - t[below]) * g[j];
  }
  return {Tensor::of(dt, in[0].shape(), DType::f64), Tensor::of(dp, in[1].shape(), DType::f64)};
}

std::vector<Mutation> index_mutations() {
  const Forward lerp = [](const Tensors& in) { return lerp_at(in[0], in[1]); };
  const auto lerp_gradient = [](bool swapped, index_t shift) -> Backward {
    return [=](const Tensors& in, const Tensor&, const Tensor& dy) { return interpolated(in, dy, swapped, shift); };
  };
  const Tensors lerp_inputs{normal({6}, "table"), uniform({9}, 0, 5)};
  return {{"take_rows, off by one row", [](const Tensors& in) { return take_rows(in[0], in[1]); },
              [](const Tensors& in, const Tensor&, const Tensor& dy) { return Tensors{scattered(in, dy, 0)}; },
              [](const Tensors& in, const Tensor&, const Tensor& dy) { return Tensors{scattered(in, dy, 1)}; },
              {normal({5, 3}, "rows"), Tensor::of({0, 3, 3, 1}, {4}, DType::i64)}},
      {"lerp_at, off by one row", lerp, lerp_gradient(false, 0), lerp_gradient(false, 1), lerp_inputs},
      {"lerp_at, weights swapped (CoPE Eq. 5)", lerp, lerp_gradient(false, 0), lerp_gradient(true, 0), lerp_inputs}};
}

std::vector<Mutation> product_mutations() {
  const Forward product = [](const Tensors& in) { return multiply(in[0], in[1]); };
  const Backward right = [](const Tensors& in, const Tensor&, const Tensor& dy) {
    return Tensors{multiply(dy, in[1]), multiply(dy, in[0])};
  };
  const Tensors pair{normal({3, 4}, "a"), normal({3, 4}, "b")};
  const auto matmul_gradient = [](double scale) -> Backward {
    return [=](const Tensors& in, const Tensor&, const Tensor& dy) {
      return Tensors{matmul(dy, transpose(in[1]), scale), matmul(transpose(in[0]), dy, 0.25)};
    };
  };
  return {{"relative error of 1e-7", product, right,
              [](const Tensors& in, const Tensor&, const Tensor& dy) {
                return Tensors{affine(multiply(dy, in[1]), 1 + 1e-7, 0), multiply(dy, in[0])};
              },
              pair},
      {"gradient of the other input", product, right,
          [](const Tensors& in, const Tensor&, const Tensor& dy) {
            return Tensors{multiply(dy, in[0]), multiply(dy, in[1])};
          },
          pair},
      {"matmul, scale forgotten", [](const Tensors& in) { return matmul(in[0], in[1], 0.25); }, matmul_gradient(0.25),
          matmul_gradient(1), {normal({3, 4}, "a"), normal({4, 2}, "b")}}};
}

// dx = r (g - mean(g) - n mean(g n)); `with_mean` false forgets mean(g).
Tensors layer_norm_gradient(const Tensors& in, const Tensor& dy, bool with_mean, bool with_bias) {
  const Tensor centered = subtract(in[0], row_mean(in[0]));
  const Tensor r = reciprocal(sqrt(affine(row_mean(square(centered)), 1, 1e-5))), n = multiply(centered, r),
               g = multiply(dy, in[1]);
  const Tensor inner = subtract(g, multiply(n, row_mean(multiply(g, n))));
  return {multiply(r, with_mean ? subtract(inner, row_mean(g)) : inner), sum(multiply(dy, n), {0}),
      with_bias ? sum(dy, {0}) : Tensor::zeros(in[2].shape(), dy.dtype())};
}

std::vector<Mutation> layer_norm_mutations() {
  const auto gradient = [](bool with_mean, bool with_bias) -> Backward {
    return [=](const Tensors& in, const Tensor&, const Tensor& dy) {
      return layer_norm_gradient(in, dy, with_mean, with_bias);
    };
  };
  const Forward forward = [](const Tensors& in) { return layer_norm(in[0], in[1], in[2]); };
  const Tensors inputs{normal({3, 5}, "x"), normal({5}, "weight"), normal({5}, "bias")};
  return {{"layer_norm, mean of the gradient missing", forward, gradient(true, true), gradient(false, true), inputs},
      {"layer_norm, bias gradient missing", forward, gradient(true, true), gradient(true, false), inputs}};
}

std::vector<Mutation> all_mutations() {
  std::vector<Mutation> all;
  for (const auto& family :
      {softmax_mutations(), layout_mutations(), index_mutations(), product_mutations(), layer_norm_mutations()}) {
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

}  // namespace

TEST_CASE("wrong backwards are caught, right ones pass") {
  for (const Mutation& mutation : all_mutations()) {
    CAPTURE(mutation.name);
    const GradcheckReport right = check(mutation, mutation.right), wrong = check(mutation, mutation.wrong);
    CHECK_MESSAGE(right.ok(), right.text());
    CHECK_FALSE(wrong.ok());
    double by_duals = 0, by_differences = 0;
    for (const GradcheckInput& input : wrong.inputs) {
      by_duals = std::max(by_duals, input.duals.relative);
      by_differences = std::max(by_differences, input.differences.relative);
    }
    CHECK(by_duals > 1e-9);
    std::printf(
        "mutation: caught %s (by duals %.1g, by differences %.1g)\n", mutation.name.c_str(), by_duals, by_differences);
  }
}

TEST_CASE("differences alone do not see a relative error of 1e-7, duals do") {
  for (const Mutation& mutation : product_mutations()) {
    if (mutation.name != "relative error of 1e-7") continue;
    const GradcheckReport report = check(mutation, mutation.wrong);
    CHECK(report.inputs[0].duals.relative > 1e-8);
    CHECK(report.inputs[0].differences.relative < 1e-6);
  }
}

// Why a loss of .sum() is no test: with a cotangent of ones every softmax gradient is 0, whatever its factor or sign,
// and a permutation's is 1 everywhere, inverted or not.
TEST_CASE("a cotangent of ones would let the softmax and permute mutants pass") {
  std::vector<Mutation> blind = softmax_mutations();
  blind.push_back(layout_mutations()[0]);
  for (const Mutation& mutation : blind) {
    CAPTURE(mutation.name);
    const auto gradient_of_sum = [&](const Backward& backward) {
      const Tensor x = requires_grad(mutation.inputs[0].detach());
      const Tensor y = apply(Handmade{mutation.forward, backward}, Site::current(), x, Tensor(), Tensor());
      return grad(y, Tensor::ones(y.shape(), DType::f64), {x})[0].to_vector();
    };
    const std::vector<double> right = gradient_of_sum(mutation.right), wrong = gradient_of_sum(mutation.wrong);
    for (std::size_t i = 0; i < right.size(); ++i) CHECK(std::abs(right[i] - wrong[i]) < 1e-14);
  }
}

}  // namespace whence
