// Properties of DAPE and CDAPE. Worked numbers: worked/examples.cpp.
#include "autograd/inspect/capture.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

TEST_CASE("adaptive: a bidirectional CDAPE sees all keys, or the lower triangle alone on request") {
  const AttendInputs causal = random_inputs(9);
  AttendInputs open = causal;
  open.sequence = Sequence::run(9, false);
  const Bare one("cdape(none, width=3)"), always("cdape(none, width=3, tril=always)");
  const Tensor triangle = one.logits(causal);
  CHECK(distance(masked(always.logits(open), causal.sequence.mask()).detach(), triangle.detach()) < 1e-13);
  CHECK(distance(always.logits(causal).detach(), triangle.detach()) == 0);  // as in causal models
  CHECK(distance(masked(one.logits(open), causal.sequence.mask()).detach(), triangle.detach()) > 0.01);
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
