// The generator against its published vectors; streams against the statistics of random numbers.
#include "tensor/random.h"

#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

double mean_of(const std::vector<double>& x) {
  double total = 0;
  for (const double v : x) total += v;
  return total / static_cast<double>(x.size());
}

double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const double mx = mean_of(x), my = mean_of(y);
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    xy += (x[i] - mx) * (y[i] - my), xx += (x[i] - mx) * (x[i] - mx), yy += (y[i] - my) * (y[i] - my);
  return xy / std::sqrt(xx * yy);
}

}  // namespace

TEST_CASE("philox4x32-10 gives the known answers of Random123") {
  using Words = std::array<std::uint32_t, 4>;
  CHECK(philox(0, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox(~0ull, ~0ull, ~0ull) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("moments and range") {
  const auto u = read(Tensor::uniform({200000}, 0, 1, Stream(1, "u"))),
             n = read(Tensor::normal({200000}, 0, 1, Stream(1, "n")));
  double low = 1, high = 0, second = 0, fourth = 0, square = 0;
  for (const double v : u) low = std::fmin(low, v), high = std::fmax(high, v), square += v * v / 200000;
  for (const double v : n) second += v * v / 200000, fourth += v * v * v * v / 200000;
  CHECK(low >= 0);
  CHECK(high < 1);
  CHECK(std::fabs(mean_of(u) - 0.5) < 0.003);  // four deviations of the mean
  CHECK(std::fabs(square - 1.0 / 3) < 0.003);
  CHECK(std::fabs(mean_of(n)) < 0.009);
  CHECK(std::fabs(second - 1) < 0.013);
  CHECK(std::fabs(fourth - 3) < 0.09);
  std::vector<int> counts(7);
  for (std::uint64_t i = 0; i < 70000; ++i) ++counts[Stream(2, "below").below(i, 7)];
  for (const int count : counts) CHECK(std::abs(count - 10000) < 400);
}

TEST_CASE("streams of another seed, purpose or step are unrelated; the same stream repeats") {
  const auto draw = [](const Stream& stream) { return read(Tensor::normal({50000}, 0, 1, stream)); };
  const auto base = draw(Stream(1, "dropout", 5));
  CHECK(base == draw(Stream(1, "dropout", 5)));
  for (const Stream& other :
      {Stream(2, "dropout", 5), Stream(1, "dropouu", 5), Stream(1, "dropout", 6), Stream(1, "", 5)}) {
    const auto values = draw(other);
    CHECK(values != base);
    CHECK(std::fabs(correlation(base, values)) < 0.02);
  }
  std::vector<double> shifted(base.begin() + 1, base.end());
  CHECK(std::fabs(correlation({base.begin(), base.end() - 1}, shifted)) < 0.02);
}

TEST_CASE("uniform numbers are below the upper bound in every dtype") {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64})
    for (const auto& [low, high] : {std::pair{0.0, 1.0}, {1.0, 2.0}, {-3.0, -0.5}, {-1.0, 3.0}})
      for (const double x : Tensor::uniform({5000}, low, high, Stream(3, "below"), dtype).to_vector())
        REQUIRE((x >= low && x < high));
}
