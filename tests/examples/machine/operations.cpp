// Planned models: operations computed by hand, parameters compared with real modules, bytes.
#include "examples/whence/machine/memory.h"
#include "examples/whence/machine/models.h"
#include "examples/whence/verify/scheme_texts.h"

#include "tensor/device/allocator.h"
#include "tests/support/programs.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

TrainingOperations of(const std::string& scheme, index_t length = 9) {
  return training_operations(small(scheme), length);
}

constexpr double layers = 2, dim = 8, heads = 2, hidden = 12, vocabulary = 5, length = 9;  // of small()

}  // namespace

TEST_CASE("planned models: the same number of parameters as the real ones, with every scheme") {
  for (const std::string& scheme : promised_texts()) {
    CAPTURE(scheme);
    TransformerOptions options = small(scheme);
    options.dim = 24;  // allows sandwich and rotations of pairs
    CHECK(planned_parameters(options) == Transformer(options).parameter_count());
  }
}

TEST_CASE("planned models: 2.7B and 6.7B by hand, and nothing of their size is allocated") {
  Allocator& memory = memory_of(Device::cpu());
  memory.reset_peak();
  const std::size_t before = memory.statistics().live;
  const auto by_hand = [](index_t c, index_t depth) {
    return 2 * 50304 * c + depth * (12 * c * c + 13 * c) + 2 * c;  // tables, blocks, the last norm
  };
  for (const index_t c : {2560, 4096}) {
    CAPTURE(c);
    const std::string name = c == 2560 ? "neox-2.7b" : "neox-6.7b";
    const TransformerOptions options = named_model(name, "alibi");
    CHECK(planned_parameters(options) == by_hand(c, 32));
    CHECK(planned_parameters(named_model(name, "kerple")) == by_hand(c, 32) + 32 * 2 * 32);
    const TrainingMemory found =
        planned_memory({.model = options, .length = 512, .device = Device::cuda(0), .precision = DType::bf16});
    const auto numbers = static_cast<std::size_t>(by_hand(c, 32));
    CHECK((found.weights >= 2 * numbers && found.gradients == found.weights));
    CHECK(found.optimiser >= 3 * 4 * numbers);  // in 16 bits also the masters
  }
  CHECK(memory.statistics().peak - before < (16 << 20));
}

TEST_CASE("operations: products and attention by hand, forward and backward") {
  const TrainingOperations bare = of("none");
  // Two per multiply-add; a product forward is two of its size backward.
  CHECK(
      bare.products.products == doctest::Approx(6 * (layers * (4 * dim * dim + 2 * dim * hidden) + vocabulary * dim)));
  CHECK(bare.attention.products == doctest::Approx(6 * layers * 2 * dim * length));  // q.k and the mix of v
  CHECK(bare.attention.others == doctest::Approx(layers * 2 * heads * length));      // softmax and back
  CHECK(bare.scheme.sum() == 0);
  CHECK(of("none", 18).products.products == doctest::Approx(bare.products.products));
  CHECK(of("none", 18).attention.products == doctest::Approx(2 * bare.attention.products));
}

TEST_CASE("operations: schemes by hand") {
  const auto products = [](const std::string& scheme) { return of(scheme).scheme.products; };
  CHECK(products("alibi") == 0);
  CHECK(of("alibi").scheme.others == doctest::Approx(layers * heads * length));  // added to every score
  CHECK(products("rope") == 0);
  // Rotations of pairs of q and k, forward and backward, and the sine of each angle.
  CHECK(of("rope").scheme.others == doctest::Approx(layers * 2 * (2 * dim / 2 + dim / heads / 2)));
  CHECK(products("cope(p_max=4)") == doctest::Approx(6 * layers * dim * 5));  // q.e, five rows
  // Channels in and out of the two convolutions, times taps, for each pair.
  CHECK(products("dape(none, width=3)") == doctest::Approx(6 * layers * length * (heads * 3 + 3 * heads)));
  CHECK(products("dape(kerple, width=64)") == doctest::Approx(6 * layers * length * (2 * heads * 64 + 64 * heads)));
  CHECK(
      products("cdape(kerple, width=21)") == doctest::Approx(6 * layers * length * 3 * (2 * heads * 21 + 21 * heads)));
  // DAPE V2, Fig. 7: a kernel of three costs with 21 channels the same as 64 channels without, with 10 half of it.
  CHECK(products("cdape(kerple, width=21)") == doctest::Approx(63.0 / 64 * products("dape(kerple, width=64)")));
  CHECK(products("cdape(kerple, width=10)") == doctest::Approx(30.0 / 64 * products("dape(kerple, width=64)")));
}

TEST_CASE("whence models --plan: every row") {
  const Outcome plan = done("models --plan neox-350m --scheme alibi,cdape(kerple) --lengths 128,65536");
  says(plan.out, {"405334016", "cdape(kerple)", "bf16, masters f32", "one by one"});
}
