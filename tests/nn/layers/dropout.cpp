// Dropout as a module: when it acts, the source of its draws, the share it keeps.
#include "nn/layers/layers.h"

#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

struct Two final : Module {
  Dropout first{0.25}, second{0.25};
  Two() {
    child("first", first);
    child("second", second);
  }
};

double share_of_zeros(const Tensor& x) {
  const std::vector<double> values = x.to_vector();
  return static_cast<double>(std::count(values.begin(), values.end(), 0.0)) / static_cast<double>(values.size());
}

}  // namespace

TEST_CASE("dropout acts in training only") {
  const Two two;
  const Tensor x = normal({4, 5}, 1);
  CHECK(two.first(x, {}).identity() == x.identity());
  CHECK(Dropout(0)(x, {.training = true}).identity() == x.identity());
  CHECK(distance(two.first(x, {.training = true}), x) > 0);
}

TEST_CASE("the draw is a function of seed, step and path") {
  const Two two, other;
  const Tensor x = Tensor::ones({40, 40});
  const Tensor drawn = two.first(x, {true, 1, 2});
  CHECK(same_bits(drawn, two.first(x, {true, 1, 2})));
  CHECK(same_bits(drawn, other.first(x, {true, 1, 2})));
  CHECK_FALSE(same_bits(drawn, two.first(x, {true, 1, 3})));
  CHECK_FALSE(same_bits(drawn, two.first(x, {true, 2, 2})));
  CHECK_FALSE(same_bits(drawn, two.second(x, {true, 1, 2})));
  // Two independent draws both drop 0.25^2 of the places.
  CHECK(std::fabs(share_of_zeros(drawn + two.second(x, {true, 1, 2})) - 0.0625) < 0.03);
}

TEST_CASE("dropout keeps the mean, drops its share, and its gradient has the same places") {
  const Two two;
  const Tensor x = requires_grad(Tensor::ones({300, 300}, DType::f64)), y = two.first(x, {true, 1, 2});
  CHECK(std::fabs(share_of_zeros(y) - 0.25) < 0.006);  // four deviations of 90 000 draws
  CHECK(std::fabs(mean(y).item() - 1) < 0.008);
  CHECK(same_bits(grad(sum(y), {}, {x})[0], y.detach()));
}

TEST_CASE("probabilities that are none are refused") {
  for (const double p : {-0.1, 1.0, 1.5, std::nan("")})
    CHECK_THROWS_WITH_AS(Dropout{p}, doctest::Contains("less than 1"), InputError);
}
