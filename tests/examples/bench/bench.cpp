// The benches: results and output. Times are not tested here.
#include "examples/whence/bench/attention_core.h"

#include <cmath>
#include <map>

#include "autograd/backward.h"
#include "autograd/inspect/observers.h"
#include "autograd/observer.h"
#include "autograd/ops.h"
#include "examples/whence/cli/numbers.h"
#include "tensor/error.h"
#include "tests/support/json.h"

using namespace whence;
using namespace whence::bench;
using namespace whence::test;

namespace {

std::vector<nlohmann::json> results_of(const std::string& what) {
  return json_lines(done("bench " + what + " --json").out);
}

const std::string once = " --threads 1 --repetitions 2", tiny = once + " --heads 2 --head-dim 4";

}  // namespace

TEST_CASE("bench: medians, spreads and lists") {
  const Median found = median({5, 1, 3, 2, 4});
  CHECK((found.value == 3 && found.spread == 1));  // quartiles 2 and 4
  CHECK((median({7}).value == 7 && median({1, 2}).value == 1.5));
  CHECK(
      list_of("none,dape(kerple, width=3),cope") == std::vector<std::string>{"none", "dape(kerple, width=3)", "cope"});
  CHECK(numbers_of("512,2048", "--lengths") == std::vector<std::int64_t>{512, 2048});
  for (const char* bad : {"", "512,", "0", "x", "1.5", "99999999"})
    CHECK_THROWS_WITH_AS((void)numbers_of(bad, "--lengths"), doctest::Contains("--lengths: "), InputError);
}

TEST_CASE("bench: what the formulas need of multiply-adds, by hand") {
  const auto operations = [](const std::string& scheme) {
    const AttentionCore core({.scheme = scheme, .length = 5}, Device());
    return std::pair(core.forward_operations(), core.backward_operations());
  };
  const double positions = 15, pairs = 15 * 12;  // of 5 tokens, in 12 heads of 64
  CHECK_THROWS_WITH_AS((void)operations("absolute"), doctest::Contains("scheme: absolute"), InputError);
  CHECK(operations("none") == std::pair(256 * pairs, 640 * pairs));
  // 24 numbers to 32 and 32 to 12; half of the 24 come from a table over distances
  CHECK(operations("dape(kerple)") == std::pair(256 * pairs + 1536 * positions, 640 * pairs + 3 * 1536 * positions));
  CHECK(operations("cdape(kerple)") == std::pair(256 * pairs + 4608 * positions, 640 * pairs + 3 * 4608 * positions));
}

TEST_CASE("bench attention: a line of JSON per measurement, with what the papers' tables have") {
  const auto lines = results_of("attention --schemes none,cope(p_max=3) --lengths 8,16" + tiny);
  REQUIRE(lines.size() == 1 + 2 * 3 * all_executors.size());  // ceilings; cope with two kinds of gates
  for (std::size_t k = 1; k < lines.size(); ++k)
    for (const char* field :
        {"scheme", "gates", "executor", "length", "forward_ms", "backward_ms", "fraction", "peak_mib"})
      CHECK_MESSAGE((lines[k].contains(field) || lines[k].contains("refused")), field);
}

TEST_CASE(
    "bench attention: the precision is that of operands, parameters, results and the line; tiles refuse 16 bits") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    CAPTURE(std::string(to_string(dtype)));
    AttentionCore core({.scheme = "kerple", .length = 9, .heads = 2, .head_dim = 4, .dtype = dtype}, Device());
    (void)core.run(Executor::reference);
    CHECK((core.leaves().size() == 5 && core.results().size() == 6));  // q, k, v, two parameters; and the output
    for (const NamedTensors& tensors : {core.leaves(), core.results()})
      for (const auto& each : tensors) CHECK_MESSAGE(each.second.dtype() == dtype, each.first);
    for (const nlohmann::json& line :
        results_of(to_text("attention --schemes kerple --lengths 8 --precision ", dtype, tiny))) {
      if (!line.contains("executor")) continue;
      CHECK(line.at("dtype") == to_string(dtype));
      const bool refused = line.at("executor") == "tiled" && dtype != DType::f32;
      CHECK(line.contains("forward_ms") == !refused);
      if (refused) CHECK(line.at("refused") == to_text("no tile programs for ", dtype, " on the CPU"));
    }
  }
}

TEST_CASE("bench decode, ops, step: a line of JSON per measurement; the parts of a step add up") {
  const auto decode = results_of("decode --schemes alibi --lengths 3 --tokens 2" + once);
  REQUIRE(decode.size() == 2);
  CHECK(decode[0].contains("read_gb_per_s"));
  for (const char* field : {"ms", "tokens_per_second", "fraction"}) CHECK_MESSAGE(decode[1].contains(field), field);
  const auto ops = results_of("ops --scale 0.001" + once);
  CHECK(ops.size() == 1 + 9 + 6);
  for (const nlohmann::json& line : ops) CHECK(line.contains("fraction") == line.contains("backward_ms"));
  const auto step = results_of("step --models toy --schemes cope --profile" + once);
  REQUIRE(step.size() == 3);
  CHECK((step[1].contains("tokens_per_second") && step[1].at("length") == 40));
  const auto shorter =
      results_of("step --models toy --schemes cope --executors strips --lengths 8,16 --batch 1" + once);
  REQUIRE(shorter.size() == 3);
  CHECK((shorter[2].at("length") == 16 && shorter[2].at("executor") == "strips"));
  double sum = 0;
  for (const char* part : {"products", "attention", "norms", "loss", "optimiser", "rest"})
    sum += step[2].at(part).get<double>();
  CHECK(sum == doctest::Approx(1));
}

TEST_CASE("bench: an op clock hears of every op once, forward and backward, and of none when it is gone") {
  const Tensor x = requires_grad(Tensor::full({3}, 0.5));
  std::vector<std::string> heard;
  const std::string path = "blocks.0";
  {
    const OpClock clock(
        [&](const OpTime& time) { heard.push_back(time.path + ": " + time.op + (time.backward ? ", backward" : "")); });
    const Scope scope(path);
    backward(sum(sigmoid(x)));  // sigmoid's backward is made of other ops
  }
  CHECK(heard == std::vector<std::string>{
                     "blocks.0: sigmoid", "blocks.0: sum", "blocks.0: sum, backward", "blocks.0: sigmoid, backward"});
  (void)sigmoid(x);
  CHECK(heard.size() == 4);
}
