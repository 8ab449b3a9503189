// The first rung of tiled attention (tests/tensor/cpu/tiles/rung.h) against the reference executor, and the tiles against it.
#include "tests/tensor/cpu/tiles/rung.h"

#include "autograd/tiled/tiled_ops.h"
#include "examples/whence/verify/bare_attention.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

struct CopeCase {
  index_t heads, tokens, dim, p_max;
};
// One token; p_max never reached; reached at once; reached on the way, beyond a block of queries and a tile of keys.
const std::vector<CopeCase> cope_cases{{1, 1, 2, 3}, {2, 7, 3, 20}, {2, 9, 3, 1}, {1, 30, 4, 5}, {2, 131, 3, 12}};

// q, k, v [1 h t d], z [1 h t n], the cotangent of the output, and the results.
struct Attention {
  Tensor q, k, v, z, cotangent, output;
  std::vector<Tensor> gradients;  // of q, k, v, z
};

template <class T> void run_rung(Attention& a) {
  const index_t heads = a.q.size(1), tokens = a.q.size(2), dim = a.q.size(3), positions = a.z.size(3);
  a.output = Tensor::empty(a.q.shape(), a.q.dtype());
  a.gradients.clear();
  for (const Tensor& x : {a.q, a.k, a.v, a.z}) a.gradients.push_back(Tensor::zeros(x.shape(), x.dtype()));
  for (index_t h = 0; h < heads; ++h) {
    for (index_t i = 0; i < tokens; ++i) {
      const index_t head = h * tokens * dim, row = head + i * dim, position = (h * tokens + i) * positions;
      const auto at = [](const Tensor& x, index_t n) { return x.data<T>() + n; };
      const tiles::CopeRow<T> rung{at(a.q, row), at(a.k, head), at(a.v, head), at(a.z, position), i, dim, positions - 1,
          static_cast<T>(1 / std::sqrt(static_cast<double>(dim)))};
      T log_sum;
      rung.forward(at(a.output, row), log_sum);
      rung.backward(at(a.output, row), log_sum, at(a.cotangent, row), at(a.gradients[0], row), at(a.gradients[1], head),
          at(a.gradients[2], head), at(a.gradients[3], position));
    }
  }
}

Attention drawn(const CopeCase& c, DType dtype) {
  const Shape rows{1, c.heads, c.tokens, c.dim};
  return {normal(rows, 1, dtype), normal(rows, 2, dtype), normal(rows, 3, dtype),
      normal({1, c.heads, c.tokens, c.p_max + 1}, 4, dtype), normal(rows, 5, dtype), {}, {}};
}

double apart(const Tensor& a, const Tensor& b) { return distance(a, b) / std::max(1.0, largest(a)); }

}  // namespace

TEST_CASE("rung: the reference executor's output and gradients") {
  for (const CopeCase& c : cope_cases) {
    CAPTURE(c.tokens);
    const BareAttention scheme(to_text("cope(p_max=", c.p_max, ")"), {c.heads * c.dim, c.heads, c.tokens});
    draw_parameters(scheme.root(), 3);
    Attention rung = drawn(c, DType::f64);
    const Tensor table = parameter(scheme.root(), "table");
    const std::vector<Tensor> leaves{requires_grad(rung.q), requires_grad(rung.k), requires_grad(rung.v), table};
    const Tensor z = matmul(leaves[0], transpose(table));
    rung.z = z.detach();
    run_rung<double>(rung);
    // z is q e: its gradient goes on to both.
    const std::vector<Tensor> through_z = grad(z, rung.gradients[3], {leaves[0], table});
    const std::vector<Tensor> found{
        rung.gradients[0] + through_z[0], rung.gradients[1], rung.gradients[2], through_z[1]};

    const Tensor output =
        attend({{}, leaves[0], leaves[1], leaves[2], Sequence::run(c.tokens)}, scheme.stages(), Executor::reference);
    CHECK(apart(output, rung.output) < 1e-13);
    const std::vector<Tensor> expected = grad(output, rung.cotangent, leaves);
    for (std::size_t n = 0; n < leaves.size(); ++n) {
      CAPTURE(n);
      CHECK(apart(expected[n], found[n]) < 1e-12);
    }
  }
}

TEST_CASE("rung: the tiles compute what it computes, in f64 and f32") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const CopeCase& c : cope_cases) {
      CAPTURE(to_string(dtype));
      CAPTURE(c.tokens);
      Attention rung = drawn(c, dtype);
      dtype == DType::f64 ? run_rung<double>(rung) : run_rung<float>(rung);
      const std::vector<Tensor> leaves{
          requires_grad(rung.q), requires_grad(rung.k), requires_grad(rung.v), requires_grad(rung.z)};
      TiledCall facts;
      facts.scale = 1 / std::sqrt(static_cast<double>(c.dim));
      TiledCall::Operands operands;
      operands[TiledCall::query] = leaves[0], operands[TiledCall::key] = leaves[1];
      operands[TiledCall::value] = leaves[2], operands[TiledCall::position_logits] = leaves[3];
      const Tensor output = tiled_attention(facts, operands).output;
      const double allowed = dtype == DType::f64 ? 1e-13 : 1e-4;
      CHECK(apart(rung.output, output) < allowed);
      const std::vector<Tensor> found = grad(output, rung.cotangent, leaves);
      for (std::size_t n = 0; n < leaves.size(); ++n) {
        CAPTURE(n);
        CHECK(apart(rung.gradients[n], found[n]) < 10 * allowed);
      }
    }
  }
}
