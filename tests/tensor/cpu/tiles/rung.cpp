// The first rung of tiled attention (tests/tensor/cpu/tiles/rung.h) against the reference executor.
#include "tests/tensor/cpu/tiles/rung.h"

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

}  // namespace

TEST_CASE("rung: the reference executor's output and gradients") {
  for (const auto& [heads, tokens, dim, p_max] : cope_cases) {
    CAPTURE(tokens);
    const BareAttention scheme(to_text("cope(p_max=", p_max, ")"), {heads * dim, heads, tokens});
    draw_parameters(scheme.root(), 3);
    const AttendInputs in = random_inputs(scheme, 1, tokens, 5);
    const Tensor cotangent = random_cotangent(in, 6), e = parameter(scheme.root(), "table").detach(),
                 z = matmul(in.query.detach(), transpose(e));
    const auto zeros = [](const Tensor& x) { return Tensor::zeros(x.shape(), DType::f64); };
    const Tensor o = zeros(in.query), dq = zeros(in.query), dk = zeros(in.key), dv = zeros(in.value), dz = zeros(z);
    const auto at = [](const Tensor& x, index_t n) { return x.data<double>() + n; };
    for (index_t h = 0; h < heads; ++h) {
      for (index_t i = 0; i < tokens; ++i) {
        const index_t head = h * tokens * dim, row = head + i * dim, position = (h * tokens + i) * (p_max + 1);
        const tiles::CopeRow<double> rung{at(in.query, row), at(in.key, head), at(in.value, head), at(z, position), i,
            dim, p_max, 1 / std::sqrt(static_cast<double>(dim))};
        double log_sum;
        rung.forward(at(o, row), log_sum);
        rung.backward(
            at(o, row), log_sum, at(cotangent, row), at(dq, row), at(dk, head), at(dv, head), at(dz, position));
      }
    }
    // z is q e': its gradient goes on to both.
    const Tensor found[] = {o, dq + matmul(dz, e), dk, dv, sum(matmul(transpose(dz), in.query.detach()), {0, 1})};
    const std::vector<Named> wanted = output_and_gradients(scheme, in, Executor::reference, cotangent);
    REQUIRE(wanted.size() == std::size(found));
    for (std::size_t n = 0; n < wanted.size(); ++n) {
      CAPTURE(wanted[n].name);
      CHECK(distance(wanted[n].tensor, found[n]) < 1e-12 * std::max(1.0, largest(found[n])));
    }
  }
}
