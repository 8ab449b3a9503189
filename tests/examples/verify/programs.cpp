// gradcheck and probe as a user meets them: what they print and write, exit codes, and bad input refused in one line.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "examples/whence/verify/gradient_check.h"
#include "nn/io/safetensors.h"
#include "tensor/random.h"
#include "tensor/raw.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

Outcome run(const Scratch& scratch, const std::string& program, const std::vector<std::string>& arguments) {
  return RunningProgram(program, arguments, scratch / "log").finish();
}

using Tensors = std::map<std::string, Tensor>;

Tensor normal(const Shape& shape, const char* name, DType dtype = DType::f64) {
  return raw::cast(Tensor::normal(shape, 0, 1, Stream(7, name), DType::f64), dtype);
}

// What `probe --scheme cope(p_max=3)` expects, with both cotangents.
Tensors cope_tensors(DType dtype = DType::f64) {
  Tensors tensors;
  for (const char* name : {"q", "k", "v", "cotangent"}) tensors[name] = normal({2, 2, 5, 4}, name, dtype);
  tensors["cotangent_logits"] = normal({2, 2, 5, 5}, "cotangent_logits", dtype);
  tensors["table"] = normal({4, 4}, "table", dtype);
  return tensors;
}

void write(const std::string& path, const Tensors& tensors) {
  write_safetensors(path, {{tensors.begin(), tensors.end()}, {}});
}

Tensors read(const std::string& path) {
  Tensors tensors;
  for (const auto& [name, tensor] : read_safetensors(path).tensors) tensors[name] = tensor;
  return tensors;
}

// Runs the probe on these tensors; `more` are further options.
Outcome probe(const Scratch& scratch, const Tensors& tensors, const std::vector<std::string>& more = {},
    const std::string& scheme = "cope(p_max=3)") {
  write(scratch / "in", tensors);
  std::filesystem::remove(scratch / "out");
  std::vector<std::string> arguments{"--scheme", scheme, "--in", scratch / "in", "--out", scratch / "out"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run(scratch, "probe", arguments);
}

}  // namespace

TEST_CASE("probe: output, logits, pattern, intermediates and every gradient of a file's tensors") {
  const Scratch scratch("probe");
  const Outcome outcome = probe(scratch, cope_tensors());
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  CHECK_MESSAGE(outcome.err.starts_with("memory: "), outcome.err);
  const Tensors found = read(scratch / "out");
  for (const char* name : {"output", "logits", "pattern", "scores", "gates", "positions", "position_logit",
           "gradient.q", "gradient.k", "gradient.v", "gradient.table", "gradient.gates", "gradient.positions",
           "gradient.logits", "gradient.pattern"}) {
    CHECK_MESSAGE(found.contains(name), name);
  }
  CHECK(found.at("gradient.table").shape() == Shape{4, 4});
  CHECK(found.at("logits").at({0, 0, 1, 2}) == 0);  // masked
  for (index_t i = 0; i < 5; ++i) {
    double row = 0;
    for (index_t j = 0; j < 5; ++j) row += found.at("pattern").at({1, 1, i, j});
    CHECK(std::fabs(row - 1) < 1e-14);
  }
  CHECK(distance(found.at("gradient.pattern"), found.at("pattern")) > 0.01);
  // sum_j over masked entries aside, d(loss)/d(logits) has the file's own cotangent in it and what the softmax sends
  // back, whose rows sum to 0
  const Tensor given = cope_tensors().at("cotangent_logits"), gradient = found.at("gradient.logits");
  double both = 0;
  for (index_t j = 0; j <= 3; ++j) both += gradient.at({0, 1, 3, j}) - given.at({0, 1, 3, j});
  CHECK(std::fabs(both) < 1e-13);
}

TEST_CASE("probe: the strips executor, other dtypes and a missing cotangent") {
  const Scratch scratch("probe-ways");
  Tensors tensors = cope_tensors();
  tensors.erase("cotangent_logits");
  REQUIRE(probe(scratch, tensors).code == 0);
  const Tensors reference = read(scratch / "out");
  const Outcome strips = probe(scratch, tensors, {"--executor", "strips"});
  REQUIRE_MESSAGE(strips.code == 0, strips.err);
  CHECK(strips.out.find("not written: logits") != std::string::npos);
  const Tensors by_strips = read(scratch / "out");
  CHECK_FALSE(by_strips.contains("logits"));
  for (const char* name : {"output", "gradient.q", "gradient.k", "gradient.v", "gradient.table"})
    CHECK_MESSAGE(distance(by_strips.at(name), reference.at(name)) < 1e-13, name);
  REQUIRE(probe(scratch, tensors, {"--dtype", "bf16"}).code == 0);
  const Tensors rough = read(scratch / "out");
  CHECK(rough.at("output").dtype() == DType::bf16);
  CHECK(distance(rough.at("output"), reference.at("output")) < 0.1);
  tensors.erase("cotangent");
  const Outcome forward = probe(scratch, tensors);
  CHECK(forward.code == 0);
  CHECK(forward.out.find("not written: gradients") != std::string::npos);
  CHECK_FALSE(read(scratch / "out").contains("gradient.q"));
}

TEST_CASE("probe: scale, mask, padding, positions and drawn parameters do what they say") {
  const Scratch scratch("probe-setting");
  Tensors tensors = cope_tensors();
  REQUIRE(probe(scratch, tensors, {"--scale", "0.5"}).code == 0);  // 1/sqrt(4): the default
  const Tensors halved = read(scratch / "out");
  REQUIRE(probe(scratch, tensors).code == 0);
  CHECK(distance(halved.at("gradient.q"), read(scratch / "out").at("gradient.q")) == 0);
  REQUIRE(probe(scratch, tensors, {"--scale", "1"}).code == 0);
  CHECK(distance(halved.at("output"), read(scratch / "out").at("output")) > 0.01);

  tensors["present"] = Tensor::of({1, 1, 1, 1, 1, 0, 0, 1, 1, 1}, {2, 5},
      DType::boolean);  // two tokens of padding in the second sequence
  REQUIRE(probe(scratch, tensors).code == 0);
  CHECK(read(scratch / "out").at("pattern").at({1, 0, 4, 1}) == 0);
  tensors.erase("present");
  tensors["mask"] =
      Tensor::of(std::vector<double>(25, 1), {1, 1, 5, 5}, DType::boolean);  // everything, besides the causal mask
  REQUIRE(probe(scratch, tensors).code == 0);
  CHECK(distance(halved.at("output"), read(scratch / "out").at("output")) == 0);

  Tensors rotated = cope_tensors();
  rotated.erase("table");
  REQUIRE(probe(scratch, rotated, {}, "rope").code == 0);
  const Tensors plain = read(scratch / "out");
  rotated["positions"] = Tensor::of({10, 11, 12, 13, 14}, {5}, DType::f64);
  REQUIRE(probe(scratch, rotated, {}, "rope").code == 0);  // rope sees distances only
  CHECK(distance(plain.at("output"), read(scratch / "out").at("output")) < 1e-13);
  rotated["positions"] = Tensor::of({0, 2, 4, 6, 8}, {5}, DType::f64);
  REQUIRE(probe(scratch, rotated, {"--bidirectional"}, "rope").code == 0);
  CHECK(read(scratch / "out").at("pattern").at({0, 0, 0, 4}) > 0);
}

TEST_CASE("probe: missing parameters are drawn when asked for, and what only embeds needs x alone") {
  const Scratch scratch("probe-drawn");
  Tensors tensors = cope_tensors();
  tensors.erase("table");
  const Outcome drawn = probe(scratch, tensors, {"--init", "3"});
  CHECK(drawn.code == 0);
  CHECK(drawn.out.find("drawn by --init: table") != std::string::npos);

  const Outcome tokens = probe(scratch,
      {{"x", normal({2, 5, 8}, "x")}, {"table", normal({5, 8}, "t")}, {"cotangent", normal({2, 5, 8}, "c")}}, {},
      "absolute");
  REQUIRE_MESSAGE(tokens.code == 0, tokens.err);
  CHECK(std::fabs(read(scratch / "out").at("output").at({1, 2, 3}) - normal({2, 5, 8}, "x").at({1, 2, 3}) -
                  normal({5, 8}, "t").at({2, 3})) < 1e-15);
}

TEST_CASE("probe: --describe prints what a file must hold, and such a file runs") {
  const Scratch scratch("probe-describe");
  for (const std::string scheme : {"cope(p_max=3) + rope", "cope(gates=separate_keys)", "absolute", "none"}) {
    CAPTURE(scheme);
    const Outcome described =
        run(scratch, "probe", {"--describe", scheme, "--heads", "2", "--head-dim", "4", "--length", "5"});
    REQUIRE_MESSAGE(described.code == 0, described.err);
    const auto json = nlohmann::json::parse(described.out);
    Tensors tensors;
    for (const char* list : {"tensors", "parameters"}) {
      for (const auto& entry : json.at(list)) {
        if (!entry.value("required", true)) continue;
        const std::string name = entry.at("name");
        tensors[name] = normal(Shape(entry.at("shape").get<std::vector<index_t>>()), name.c_str());
      }
    }
    const Outcome outcome = probe(scratch, tensors, {}, scheme);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    const Tensors found = read(scratch / "out");
    for (const std::string name : json.at("probes"))
      CHECK_MESSAGE((found.contains(name) || tensors.contains(name)), name);
    CHECK(json.at("claims").at("causal_only") == (scheme.starts_with("cope")));
  }
}

TEST_CASE("probe: --rows cuts small cases into blocks, and counts for strips alone") {
  const Scratch scratch("probe-rows");
  Tensors tensors = cope_tensors();
  tensors.erase("cotangent_logits");
  REQUIRE(probe(scratch, tensors).code == 0);
  const Tensors whole = read(scratch / "out");
  const Outcome cut = probe(scratch, tensors, {"--executor", "strips", "--rows", "2"});
  REQUIRE_MESSAGE(cut.code == 0, cut.err);
  for (const char* name : {"output", "gradient.q", "gradient.table"})
    CHECK_MESSAGE(distance(read(scratch / "out").at(name), whole.at(name)) < 1e-13, name);
}

TEST_CASE("probe: draws are written, and taken from the file where it has them") {
  const Scratch scratch("probe-draws");
  Tensors tensors = cope_tensors();
  tensors.erase("table");
  Tensors with_draws = tensors;
  with_draws["drawn"] = Tensor::of({0, 2, 4, 6, 50}, {5}, DType::f64);
  for (const char* other : {"shaw", "t5", "fire", "transformer_xl"}) {  // their positions become tensors
    const Outcome outcome = probe(scratch, with_draws, {"--init", "3"}, to_text("randomised(", other, ", length=64)"));
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
  }
  const std::string scheme = "randomised(rope, length=64)";
  for (const std::string executor : {"reference", "strips"}) {
    CAPTURE(executor);
    if (executor == "strips") tensors.erase("cotangent_logits");
    const std::vector<std::string> way{"--executor", executor};
    tensors.erase("drawn");
    REQUIRE(probe(scratch, tensors, way, scheme).code == 0);
    const Tensors first = read(scratch / "out");
    const std::vector<double> drawn = first.at("drawn").to_vector();
    CHECK(drawn.size() == 5);
    CHECK(std::is_sorted(drawn.begin(), drawn.end()));
    tensors["drawn"] = first.at("drawn");
    REQUIRE(probe(scratch, tensors, way, scheme).code == 0);
    CHECK(distance(read(scratch / "out").at("output"), first.at("output")) == 0);
    tensors["drawn"] = Tensor::of({0, 2, 4, 6, 50}, {5}, DType::f64);
    REQUIRE(probe(scratch, tensors, way, scheme).code == 0);
    const Tensors other = read(scratch / "out");
    CHECK(distance(other.at("drawn"), tensors.at("drawn")) == 0);
    Tensors by_positions = tensors;
    by_positions.erase("drawn");
    by_positions["positions"] = tensors.at("drawn");
    REQUIRE(probe(scratch, by_positions, way, "rope").code == 0);
    for (const char* name : {"output", "gradient.q"})
      CHECK_MESSAGE(distance(read(scratch / "out").at(name), other.at(name)) == 0, name);
  }
  tensors.erase("drawn");
  REQUIRE(probe(scratch, tensors, {}, "randomised(alibi, length=64)").code == 0);
  CHECK(read(scratch / "out").at("drawn").at({0}) == 0);  // distances, as alibi reads nothing else
  for (const std::string base : {"relative", "shaw", "t5", "fire", "kerple", "transformer_xl"})
    CHECK_MESSAGE(probe(scratch, tensors, {"--init", "1"}, "randomised(" + base + ", length=64)").code == 0, base);
}

TEST_CASE("probe: a mask per head is refused where heads are mixed, and --describe says so") {
  const Scratch scratch("probe-head-mask");
  const auto described = [&](const std::string& scheme) {
    const Outcome outcome = run(
        scratch, "probe", {"--describe", scheme, "--heads", "2", "--head-dim", "4", "--length", "5", "--batch", "3"});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return nlohmann::json::parse(outcome.out);
  };
  for (const bool mixes : {false, true}) {
    const auto json = described(mixes ? "cdape(alibi)" : "dape(alibi)");
    CHECK(json.at("sizes").at("b") == 3);
    CHECK(json.at("claims").at("mask_per_head") == !mixes);
    for (const auto& tensor : json.at("tensors")) {
      if (tensor.at("name") == "q") CHECK(tensor.at("shape") == std::vector<int>{3, 2, 5, 4});
      if (tensor.at("name") == "mask") CHECK(tensor.at("axes") == (mixes ? "1|b 1 t t" : "1|b 1|h t t"));
    }
  }
  Tensors tensors = cope_tensors();
  tensors.erase("table");
  tensors["mask"] = Tensor::of(std::vector<double>(50, 1), {1, 2, 5, 5}, DType::boolean);
  CHECK(probe(scratch, tensors, {"--init", "1"}, "dape(alibi)").code == 0);
}

TEST_CASE("gradcheck: an op, a function and a scheme pass with their figures") {
  const Scratch scratch("gradcheck");
  const Outcome op = run(scratch, "gradcheck", {"lerp_at", "relu"});
  CHECK_MESSAGE(op.code == 0, op.out);
  CHECK(op.out.find("lerp_at, integer positions") != std::string::npos);
  CHECK(op.out.find("kink at [0,1]: left derivative ") != std::string::npos);
  CHECK(op.out.find("relu, at its kinks") != std::string::npos);
  const Outcome scheme = run(scratch, "gradcheck", {"cope(p_max=8)", "alibi", "--length", "5"});
  CHECK_MESSAGE(scheme.code == 0, scheme.out);
  for (const char* text : {"cope(p_max=8), causal", "table  [9,4]", "alibi, bidirectional"})
    CHECK_MESSAGE(scheme.out.find(text) != std::string::npos, text, " in ", scheme.out);
  CHECK(scheme.out.find("cope(p_max=8), bidirectional") == std::string::npos);
  const Outcome list = run(scratch, "gradcheck", {"--list"});
  CHECK(list.code == 0);
  for (const char* name : {"  softmax\n", "  sigmoid\n", "  cope\n", "  randomised(SCHEME)\n"})
    CHECK_MESSAGE(list.out.find(name) != std::string::npos, name);
}

TEST_CASE("gradcheck: a gradient that is half of what it should be fails, by duals and by differences") {
  const auto half = [](const std::vector<Tensor>& in) {
    return in[0] * in[0].detach();
  };  // x^2, of which backward sees one factor
  const auto samples = [half] { return std::vector<CheckedSample>{{"half", false, {normal({2, 3}, "x")}, half}}; };
  const GradientChecks checks = check_op({"half_a_square", false, samples, {}, {}}, {});
  CHECK_FALSE(checks.ok());
  CHECK(checks.figures().duals > 0.1);
  CHECK(checks.figures().differences > 0.1);
  REQUIRE(checks.cases.size() == 1);
  CHECK_MESSAGE(checks.cases[0].report.problems.size() >= 2, checks.cases[0].report.text());
}
