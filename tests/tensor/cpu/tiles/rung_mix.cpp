// The first rung of the head mix (tests/tensor/cpu/tiles/rung_mix.h) against the reference executor, and the tiles against it.
#include "tests/tensor/cpu/tiles/rung_mix.h"

#include "autograd/tiled/tiled_ops.h"
#include "examples/whence/verify/bare_attention.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

struct MixCase {
  index_t heads, tokens, dim, width, kernel, left;
};
// One token; one tap; taps on both sides, on the left alone, more than tokens; beyond a block of queries and a segment
// of keys.
const std::vector<MixCase> mix_cases{{2, 1, 2, 3, 3, 1}, {3, 6, 3, 4, 1, 0}, {2, 7, 3, 3, 3, 1}, {2, 6, 2, 3, 2, 1},
    {1, 3, 2, 2, 7, 3}, {2, 131, 3, 2, 5, 2}};

enum Operand : std::size_t { q, k, v, base, w1, u, w2, operand_count };

struct Mix {
  std::vector<Tensor> operands, gradients;  // as in MixRow
  Tensor cotangent, output;
};

template <class T> void run_rung(const MixCase& c, Mix& mix) {
  const auto pointers = [](const std::vector<Tensor>& x) {
    const auto at = [&](std::size_t n) { return x[n].data<T>(); };
    return std::array<T*, operand_count>{at(q), at(k), at(v), at(base), at(w1), at(u), at(w2)};
  };
  mix.output = Tensor::empty(mix.operands[q].shape(), mix.operands[q].dtype());
  mix.gradients.clear();
  for (const Tensor& x : mix.operands) mix.gradients.push_back(Tensor::zeros(x.shape(), x.dtype()));
  const auto x = pointers(mix.operands), d = pointers(mix.gradients);
  for (index_t i = 0; i < c.tokens; ++i) {
    const tiles::MixRow<T> rung{{x[q], x[k], x[v], x[base], x[w1], x[u], x[w2]}, i, c.heads, c.tokens, c.dim, c.width,
        c.kernel, c.left, static_cast<T>(1 / std::sqrt(static_cast<double>(c.dim))), static_cast<T>(0.01)};
    rung.forward(mix.output.data<T>());
    rung.backward(mix.cotangent.data<T>(), {d[q], d[k], d[v], d[base], d[w1], d[u], d[w2]});
  }
}

Mix drawn(const MixCase& c, DType dtype) {
  const Shape rows{1, c.heads, c.tokens, c.dim}, table{c.left + 1, c.width, c.tokens + c.kernel - 1 - c.left};
  const Shape shapes[] = {
      rows, rows, rows, {c.heads, c.tokens}, {c.width, c.heads, c.kernel}, table, {c.heads, c.width, c.kernel}};
  Mix mix{{}, {}, normal(rows, 9, dtype), {}};
  for (const Shape& shape : shapes) mix.operands.push_back(normal(shape, 1 + mix.operands.size(), dtype));
  return mix;
}

double apart(const Tensor& a, const Tensor& b) { return distance(a, b) / std::max(1.0, largest(a)); }

}  // namespace

TEST_CASE("rung of the mix: the reference executor's output and gradients") {
  for (const MixCase& c : mix_cases) {
    CAPTURE(c.tokens);
    CAPTURE(c.kernel);
    const char* const pad = c.left == c.kernel / 2 && c.kernel % 2 == 1 ? "" : ", pad=left";
    const BareAttention scheme(
        to_text("cdape(none, width=", c.width, ", kernel=", c.kernel, pad, ")"), {c.heads * c.dim, c.heads, c.tokens});
    draw_parameters(scheme.root(), 3);
    const auto of = [&](const char* name) { return parameter(scheme.root(), name); };
    Mix mix = drawn(c, DType::f64);
    std::vector<Tensor> leaves{of("hidden.weight"), of("hidden.bias"), of("output.weight"), of("output.bias")};
    // Without a base every column reads b1, at every distance, and every logit b2.
    const Tensor reads[] = {reshape(leaves[0], mix.operands[w1].shape()),
        expand(reshape(leaves[1], {1, c.width, 1}), mix.operands[u].shape()),
        reshape(leaves[2], mix.operands[w2].shape()),
        expand(reshape(leaves[3], {c.heads, 1}), mix.operands[base].shape())};
    const std::size_t which[] = {w1, u, w2, base};
    for (std::size_t n = 0; n < 4; ++n) mix.operands[which[n]] = raw::contiguous(reads[n].detach());
    run_rung<double>(c, mix);

    std::vector<Tensor> found;
    for (std::size_t n = 0; n < 4; ++n) found.push_back(grad(reads[n], mix.gradients[which[n]], {leaves[n]})[0]);
    for (const std::size_t n : {q, k, v})
      leaves.push_back(requires_grad(mix.operands[n])), found.push_back(mix.gradients[n]);
    const Tensor output =
        attend({{}, leaves[4], leaves[5], leaves[6], Sequence::run(c.tokens)}, scheme.stages(), Executor::reference);
    CHECK(apart(output, mix.output) < 1e-13);
    const std::vector<Tensor> expected = grad(output, mix.cotangent, leaves);
    for (std::size_t n = 0; n < leaves.size(); ++n) {
      CAPTURE(n);
      CHECK(apart(expected[n], found[n]) < 1e-12);
    }
  }
}

TEST_CASE("rung of the mix: the tiles compute what it computes, in f64 and f32") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const MixCase& c : mix_cases) {
      CAPTURE(to_string(dtype));
      CAPTURE(c.tokens);
      CAPTURE(c.kernel);
      Mix mix = drawn(c, dtype);
      dtype == DType::f64 ? run_rung<double>(c, mix) : run_rung<float>(c, mix);
      std::vector<Tensor> leaves;
      for (const Tensor& x : mix.operands) leaves.push_back(requires_grad(x));
      TiledCall at;
      at.scale = 1 / std::sqrt(static_cast<double>(c.dim));
      at.left = c.left, at.right = c.kernel - 1 - c.left, at.table_lowest = -at.right;
      TiledCall::Operands operands;
      const TiledCall::Operand names[] = {TiledCall::query, TiledCall::key, TiledCall::value, TiledCall::distance_table,
          TiledCall::mix_input, TiledCall::mix_table, TiledCall::mix_output};
      for (std::size_t n = 0; n < operand_count; ++n) operands[names[n]] = leaves[n];
      const Tensor output = tiled_mix(at, operands);
      const double allowed = dtype == DType::f64 ? 1e-13 : 1e-4;
      CHECK(apart(mix.output, output) < allowed);
      const std::vector<Tensor> found = grad(output, mix.cotangent, leaves);
      for (std::size_t n = 0; n < leaves.size(); ++n) {
        CAPTURE(n);
        CHECK(apart(mix.gradients[n], found[n]) < 10 * allowed);
      }
    }
  }
}
