// The precision report against known figures: significant digits of the dtypes, and PyTorch's saturation points.
#include <doctest/doctest.h>
#include <cmath>
#include <map>

#include "examples/whence/verify/precision_report.h"
#include "tests/support/json.h"
#include "tests/support/programs.h"

using namespace whence;
using namespace whence::test;

TEST_CASE("precision report: positions end where significant digits do, gates where PyTorch's do") {
  std::map<std::string, std::vector<double>> found;
  for (const PrecisionRow& row : precision_report({DType::f16, DType::bf16, DType::f32}, {.heads = 2}))
    found[row.key] = row.answers;
  // 11, 8 and 24 significant bits: 2^11 and 2^11 + 1 are one number.
  CHECK(found.at("positions") == std::vector<double>{2048, 256, 16777216});
  CHECK(found.at("rotation_angle") == found.at("positions"));
  CHECK(found.at("alibi_1") == found.at("positions"));  // a slope that is a power of two changes no digit
  // 16 bits: sigmoid(x), in f32, rounds to 1 if e^-x is half of the distance below 1. f32: 1 + e^-x is already 1 from
  // e^-x = 2^-24 on.
  const std::vector<double>& one = found.at("sigmoid_is_one");
  CHECK(one[0] == doctest::Approx(12 * std::log(2.0)).epsilon(2e-3));
  CHECK(one[1] == doctest::Approx(9 * std::log(2.0)).epsilon(1e-2));
  CHECK(one[2] == doctest::Approx(24 * std::log(2.0)).epsilon(1e-4));
  CHECK(found.at("gate_gradient_is_zero_above") == one);
  CHECK(found.at("exp_overflows")[0] == doctest::Approx(std::log(65520.0)).epsilon(1e-3));
  CHECK(found.at("exp_overflows")[2] == doctest::Approx(88.7228).epsilon(1e-5));
  for (std::size_t k = 0; k < 3; ++k) {
    CHECK(found.at("alibi_beside_logit_1")[k] <= found.at("alibi_1")[k]);
    CHECK(found.at("cope_wide_2048")[k] <= found.at("cope_stored_2048")[k]);
    CHECK(found.at("cope_stored_2048")[k] <= found.at("cope_stepwise_2048")[k]);
  }
  CHECK(found.at("cope_stepwise_2048")[0] > 1);    // whole positions are lost
  CHECK(found.at("cope_stepwise_2048")[1] > 500);  // the sum stops at 256
  CHECK(found.at("cope_wide_2048")[0] < 0.05);
}

TEST_CASE("precision: prints a table, or the same as JSON") {
  const std::string line = "precision --heads 1 --furthest 4096";
  CHECK(has(done(line).out, "whole positions: n equals n + 1 from n ="));
  const auto page = json_of(done(line + " --json").out);
  for (const auto& row : page)
    if (row.at("key") == "positions") CHECK((row.at("f16") == 2048 && row.at("f32").is_null()));  // none up to 4096
}
