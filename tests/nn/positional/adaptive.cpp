// Properties of DAPE and CDAPE. Worked numbers: worked/examples.cpp.
#include <ranges>
#include <set>

#include "autograd/inspect/capture.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

// Returns the tokens with respect to which row i of the allowed logits has a nonzero gradient.
std::set<index_t> tokens_seen(const Bare& scheme, const AttendInputs& inputs, index_t row) {
  const Tensor logits = select(scheme.logits(inputs), 2, row), loss = sum(logits * normal(logits.shape(), 77));
  std::set<index_t> seen;
  for (const Tensor& found : grad(loss, {}, {inputs.query, inputs.key}, {.allow_unused = true}))
    for (index_t t = 0; found.defined() && t < found.size(2); ++t)
      if (largest(select(found, 2, t)) != 0) seen.insert(t);
  return seen;
}

std::set<index_t> up_to(index_t last) {
  const auto all = std::views::iota(index_t{0}, last + 1);
  return {all.begin(), all.end()};
}

}  // namespace

TEST_CASE("adaptive: a longer run leaves rows of faithful CDAPE as they were, but the last k/2") {
  const AttendInputs longer = random_inputs(12);
  AttendInputs first = random_inputs(8);
  first.query = slice(longer.query, 2, 0, 8), first.key = slice(longer.key, 2, 0, 8);
  for (const index_t kernel : {3, 5, 7}) {
    CAPTURE(kernel);
    const Bare scheme(to_text("cdape(kerple, width=3, kernel=", kernel, ")"));
    const Tensor apart = scheme.logits(first) - slice(slice(scheme.logits(longer), 2, 0, 8), 3, 0, 8);
    for (index_t row = 0; row < 8; ++row) CHECK((largest(select(apart, 2, row)) < 1e-13) == (row < 8 - kernel / 2));
  }
}

TEST_CASE("adaptive: a bidirectional CDAPE sees all keys, or the lower triangle alone on request") {
  const AttendInputs causal = random_inputs(9);
  AttendInputs open = causal;
  open.sequence = Sequence::run(9, false);
  const Bare one("cdape(none, width=3)"), always("cdape(none, width=3, tril=always)");
  const Tensor triangle = one.logits(causal);
  CHECK(distance(masked(always.logits(open), causal.sequence.mask()).detach(), triangle.detach()) < 1e-13);
  CHECK(distance(always.logits(causal).detach(), triangle.detach()) == 0);  // as in causal models
  CHECK(tokens_seen(one, open, 4) == up_to(8));
}

TEST_CASE("adaptive: without tril a row of CDAPE sees the next k - 1 keys and none behind them") {
  const AttendInputs inputs = random_inputs(12);
  for (const index_t k : {3, 5, 7}) {
    CAPTURE(k);
    const Bare leaking(to_text("cdape(alibi, width=3, kernel=", k, ", tril=no)"));
    for (const index_t row : {0, 4}) CHECK(tokens_seen(leaking, inputs, row) == up_to(row + k - 1));
  }
}

TEST_CASE("adaptive: without tril every base's bias above the diagonal is that of distance 0") {
  const AttendInputs inputs = random_inputs(6);
  for (const std::string base : {"alibi", "kerple", "kerple(form=power)", "sandwich(dim=8)", "fire(width=3)",
           "t5(buckets=4, max_distance=6)", "relative(rows=3)", "forgetting", "interpolated(alibi, factor=3)"}) {
    CAPTURE(base);
    const Capture capture("*conv_in");
    (void)Bare("cdape(" + base + ", tril=no)").output(inputs);
    const Tensor x = capture[capture.names().at(0)].value();  // S, then B: [1 4 i j]
    for (index_t h = 2; h < 4; ++h) {
      for (index_t i = 0; i < 6; ++i)
        for (index_t j = i + 1; j < 6; ++j) CHECK(x.at({0, h, i, j}) == x.at({0, h, i, i}));
      CHECK(x.at({0, h, 5, 0}) != x.at({0, h, 5, 5}));
    }
  }
}

TEST_CASE("adaptive: in a sum, f reads the bias of its own base alone") {
  const AttendInputs inputs = random_inputs(9);
  for (const std::string name : {"dape", "cdape"}) {
    const Bare alone(name + "(alibi, width=3)"), beside(name + "(alibi, width=3) + sandwich"), bias("sandwich"),
        none("none");
    for (const char* part : {"hidden.weight", "hidden.bias", "output.weight", "output.bias"})
      beside.set(part, alone[part]);
    const Tensor expected = alone.logits(inputs) + bias.logits(inputs) - none.logits(inputs);
    CHECK(distance(beside.logits(inputs).detach(), expected.detach()) < 1e-13);
  }
}
