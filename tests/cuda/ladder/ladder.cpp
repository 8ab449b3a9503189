// The ladder for learners: every rung gives the CPU's numbers at sizes that fit no tile, and lowers the count that it
// promises.
#include "cuda/ladder/ladder.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;
using namespace whence::gpu::ladder;

namespace {

// Odd numbers of rows, and widths around a warp, a block and a pack. `packs`: the same as multiples of 4.
std::vector<Shape> odd_sizes(const Ladder& ladder, bool packs) {
  std::vector<Shape> sizes;
  for (const index_t width : {1, 3, 31, 33, 65, 131, 255}) {
    Shape of{5 + width % 7, packs ? 4 * ((width + 3) / 4) : width};
    while (of.rank() < ladder.emulated.rank()) of.push_back(packs ? 4 * (width % 5 + 1) : width % 19 + 1);
    sizes.push_back(of);
  }
  sizes.push_back(sizes[3]);
  sizes.back()[0] = 67;
  return sizes;
}

}  // namespace

TEST_CASE("ladder: every rung gives the CPU's numbers at odd sizes, in every order of threads") {
  for (const Ladder& ladder : ladders()) {
    CAPTURE(std::string(ladder.name));
    CHECK(ladder.rungs.size() >= 3);
    CHECK(ladder.rungs.size() <= 6);
    for (const Rung& rung : ladder.rungs) {
      CAPTURE(std::string(rung.name));
      in_every_order([&] {
        for (const Shape& sizes : odd_sizes(ladder, rung.packs))
          CHECK(error_text([&] { climb(ladder, rung, sizes); }) == "");
      });
    }
  }
}

TEST_CASE("ladder: a rung with wrong numbers is refused") {
  Ladder ladder = softmax();
  const Rung wrong{"writes nothing", {}, false, [](const Tensors&, const Tensor&) {}};
  CHECK(error_text([&] { climb(ladder, wrong, {3, 5}); }).starts_with("ladder: softmax, writes nothing: element 0 is"));
}

TEST_CASE("ladder: each rung does at most three quarters of what it promises to do less of") {
  for (const Ladder& ladder : ladders()) {
    CAPTURE(std::string(ladder.name));
    CHECK_FALSE(ladder.rungs[0].fewer.has_value());
    Counts before = climb(ladder, ladder.rungs[0], ladder.emulated).counts;
    for (std::size_t k = 1; k < ladder.rungs.size(); ++k) {
      const Rung& rung = ladder.rungs[k];
      CAPTURE(std::string(rung.name));
      REQUIRE(rung.fewer.has_value());
      const Counts now = climb(ladder, rung, ladder.emulated).counts;
      CHECK(4 * now.at(*rung.fewer) <= 3 * before.at(*rung.fewer));
      before = now;
    }
  }
}
