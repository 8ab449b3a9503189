// tensor/divisor.h and tensor/strided_index.h against `/` and `%`, at edges and at random.
#include "tensor/divisor.h"

#include <doctest/doctest.h>
#include <vector>

#include "tensor/random.h"
#include "tensor/strided_index.h"

using namespace whence;

namespace {

constexpr index_t narrow_most = (index_t{1} << 31) - 1;

// Checks i / by and i % by for i of [0, below] next to multiples of `by`, at both ends, and at random.
void check_divisor(index_t by, index_t below, const Stream& stream) {
  INFO(by, ", below ", below);
  const Divisor divisor(by, below);
  std::vector<index_t> indices{0, 1, by - 1, by, below - 1, below, below / by * by, below / by * by - 1};
  for (std::uint64_t n = 0; n < 200; ++n) {
    const auto drawn =
        static_cast<index_t>(static_cast<std::uint64_t>(stream.bits(2 * n)) << 31 | stream.bits(2 * n + 1) >> 1);
    const index_t i = drawn % below >> stream.bits(1000 + n) % 40, multiple = i / by * by;
    for (const index_t near : {i, multiple, multiple - 1}) indices.push_back(near);
  }
  index_t wrong = 0;
  for (const index_t i : indices) {
    if (i < 0 || i > below) continue;
    const Divisor::Parts parts = divisor(i);
    wrong += parts.quotient != i / by || parts.rest != i % by;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("divisor: the quotient and the rest are those of / and %, in 32 bits and in 64") {
  const Stream stream(7, "divisors");
  for (const index_t below :
      {index_t{1}, index_t{1000}, narrow_most, narrow_most + 1, index_t{1} << 40, Divisor::most}) {
    for (int power = 0; power < 63; ++power)  // next to powers of two the factor is closest to its bounds
      for (const index_t by : {(index_t{1} << power) - 1, index_t{1} << power, (index_t{1} << power) + 1})
        if (by > 0) check_divisor(by, below, stream);
    for (std::uint64_t n = 0; n < 300; ++n) {
      const index_t by = stream.bits(n) >> stream.bits(500 + n) % 32;
      check_divisor(by + 1, below, Stream(7, "indices", n));
    }
  }
}

TEST_CASE("strided index: offsets are those of the coordinates, narrow and wide, with strides of 0 and below 0") {
  struct Case {
    Shape shape;
    Strides a, b;
  };
  const index_t far = index_t{1} << 33;
  for (const Case& each : std::vector<Case>{{{}, {}, {}}, {{5}, {1}, {0}}, {{2, 3, 4}, {12, 4, 1}, {12, 4, 1}},
           {{2, 1, 3, 4}, {12, 7, 4, 1}, {0, 0, 1, 0}}, {{3, 4, 5}, {1, 3, 12}, {-20, 5, -1}},
           {{2, 3, 2, 3, 2, 3}, {1, 2, 6, 12, 36, 72}, {108, 0, 18, 6, 0, 1}}, {{2, 3}, {far, 5}, {-far, far + 1}}}) {
    CAPTURE(each.shape);
    const StridedIndex<2> index(each.shape, {each.a, each.b});
    REQUIRE(index.count() == numel(each.shape));
    for (index_t i = 0; i < index.count(); ++i) {
      index_t rest = i, a = 0, b = 0;
      for (int axis = each.shape.rank() - 1; axis >= 0; rest /= each.shape[axis--])
        a += rest % each.shape[axis] * each.a[axis], b += rest % each.shape[axis] * each.b[axis];
      CHECK(index(i)[0] == a);
      CHECK(index(i)[1] == b);
    }
  }
  // More elements than 32 bits can count; a few are tested.
  const Shape large{index_t{1} << 20, 3, index_t{1} << 20};
  const StridedIndex<1> index(large, {Strides{1, 5, index_t{1} << 21}});
  for (const index_t i : {index_t{0}, index_t{1}, (index_t{1} << 32) + 12345, 3 * (index_t{1} << 40) - 1})
    CHECK(index(i)[0] == i / (3 * large[2]) + i / large[2] % 3 * 5 + i % large[2] * (index_t{1} << 21));
}
