// gradcheck and probe as a user meets them: output, files, exit codes, and bad input refused in one line.
#include <algorithm>
#include <cmath>
#include <map>

#include "examples/whence/cli/numbers.h"
#include "nn/io/safetensors.h"
#include "tests/support/json.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

using Tensors = std::map<std::string, Tensor>;

Tensor normal(const Shape& shape, const char* name, DType dtype = DType::f64) {
  return raw::cast(Tensor::normal(shape, 0, 1, Stream(7, name), DType::f64), dtype);
}

// Returns the input of `probe --scheme cope(p_max=3)`, with both cotangents.
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
Outcome probe(const Scratch& scratch, const Tensors& tensors, const std::string& more = {},
    const std::string& scheme = "cope(p_max=3)") {
  write(scratch / "in", tensors);
  std::filesystem::remove(scratch / "out");
  return ran("probe --scheme '" + scheme + "' --in " + scratch / "in" + " --out " + scratch / "out" + " " + more);
}

Tensors probed(const Scratch& scratch, const Tensors& tensors, const std::string& more = {},
    const std::string& scheme = "cope(p_max=3)") {
  const Outcome outcome = probe(scratch, tensors, more, scheme);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  return read(scratch / "out");
}

Tensors without(Tensors tensors, const std::string& name) {
  tensors.erase(name);
  return tensors;
}
Tensors with(Tensors tensors, const std::string& name, const Tensor& tensor) {
  tensors[name] = tensor;
  return tensors;
}

double distance(const Tensors& ours, const Tensors& theirs, const std::vector<std::string>& names) {
  double furthest = 0;
  for (const std::string& name : names) furthest = std::max(furthest, test::distance(ours.at(name), theirs.at(name)));
  return furthest;
}

}  // namespace

TEST_CASE("probe: output, logits, pattern, intermediates and every gradient of a file's tensors") {
  const Scratch scratch("probe");
  const Outcome outcome = probe(scratch, cope_tensors());
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  CHECK_MESSAGE(outcome.err.starts_with("memory: "), outcome.err);
  const Tensors found = read(scratch / "out");
  for (const char* name : {"output", "logits", "pattern", "scores", "gates", "positions", "position_logit",
           "gradient.q", "gradient.k", "gradient.v", "gradient.table", "gradient.gates", "gradient.positions"})
    CHECK_MESSAGE(found.contains(name), name);
  CHECK(found.at("gradient.table").shape() == Shape{4, 4});
  CHECK(found.at("logits").at({0, 0, 1, 2}) == 0);  // masked
  // d(loss)/d(logits) is the file's own cotangent plus softmax's gradient, whose rows sum to 0. Masked entries are left
  // out of sum_j.
  const Tensor given = cope_tensors().at("cotangent_logits"), gradient = found.at("gradient.logits");
  double both = 0;
  for (index_t j = 0; j <= 3; ++j) both += gradient.at({0, 1, 3, j}) - given.at({0, 1, 3, j});
  CHECK(std::fabs(both) < 1e-13);
}

TEST_CASE("probe: the strips executor, other dtypes and a missing cotangent") {
  const Scratch scratch("probe-ways");
  const Tensors tensors = without(cope_tensors(), "cotangent_logits");
  const Tensors reference = probed(scratch, tensors), rough = probed(scratch, tensors, "--dtype bf16");
  const Outcome strips = probe(scratch, tensors, "--executor strips");
  REQUIRE_MESSAGE(strips.code == 0, strips.err);
  CHECK(has(strips.out, "not written:"));
  const Tensors found = read(scratch / "out");
  CHECK_FALSE(found.contains("logits"));
  CHECK(distance(found, reference, {"output", "gradient.q", "gradient.k", "gradient.v", "gradient.table"}) < 1e-13);
  CHECK((rough.at("output").dtype() == DType::bf16 && distance(rough, reference, {"output"}) < 0.1));
  const Outcome forward = probe(scratch, without(tensors, "cotangent"));
  CHECK((has(forward.out, "not written:") && !read(scratch / "out").contains("gradient.q")));
}

TEST_CASE("probe: scale, mask, padding, positions and drawn parameters do what they say") {
  const Scratch scratch("probe-setting");
  const Tensors tensors = cope_tensors(), halved = probed(scratch, tensors, "--scale 0.5");  // 1/sqrt(4): the default
  CHECK(distance(halved, probed(scratch, tensors), {"gradient.q"}) == 0);
  CHECK(distance(halved, probed(scratch, tensors, "--scale 1"), {"output"}) > 0.01);

  // Two tokens of padding in the second sequence; the causal mask applies to everything else.
  const Tensor padded = Tensor::of({1, 1, 1, 1, 1, 0, 0, 1, 1, 1}, {2, 5}, DType::boolean);
  CHECK(probed(scratch, with(tensors, "present", padded)).at("pattern").at({1, 0, 4, 1}) == 0);
  const Tensor all = Tensor::full({1, 1, 5, 5}, 1, DType::boolean);
  CHECK(distance(halved, probed(scratch, with(tensors, "mask", all)), {"output"}) == 0);

  const Tensors rotated = without(tensors, "table");
  const auto at = [&](const std::vector<double>& positions, const std::string& more) {
    return probed(scratch, with(rotated, "positions", Tensor::of(positions, {5}, DType::f64)), more, "rope");
  };
  const Tensors plain = probed(scratch, rotated, {}, "rope");  // rope sees distances only
  CHECK(distance(plain, at({10, 11, 12, 13, 14}, {}), {"output"}) < 1e-13);
  CHECK(at({0, 2, 4, 6, 8}, "--bidirectional").at("pattern").at({0, 0, 0, 4}) > 0);
}

TEST_CASE("probe: missing parameters are drawn when asked for, and what only embeds needs x alone") {
  const Scratch scratch("probe-drawn");
  const Outcome drawn = probe(scratch, without(cope_tensors(), "table"), "--init 3");
  CHECK(drawn.code == 0);
  CHECK(has(drawn.out, "--init: table"));

  const Tensors given{
      {"x", normal({2, 5, 8}, "x")}, {"table", normal({5, 8}, "t")}, {"cotangent", normal({2, 5, 8}, "c")}};
  CHECK(std::fabs(probed(scratch, given, {}, "absolute").at("output").at({1, 2, 3}) - given.at("x").at({1, 2, 3}) -
                  given.at("table").at({2, 3})) < 1e-15);
}

TEST_CASE("probe: --describe prints what a file must hold, and such a file runs") {
  const Scratch scratch("probe-describe");
  for (const std::string scheme : {"cope(p_max=3) + rope", "cope(gates=separate_keys)", "absolute", "none"}) {
    CAPTURE(scheme);
    const auto json = json_of(done("probe --sizes 'heads=2 head-dim=4 length=5' --describe '" + scheme + "'").out);
    Tensors tensors;
    for (const char* list : {"tensors", "parameters"}) {
      for (const auto& entry : json.at(list)) {
        if (!entry.value("required", true)) continue;
        const std::string name = entry.at("name");
        tensors[name] = normal(Shape(entry.at("shape").get<std::vector<index_t>>()), name.c_str());
      }
    }
    const Tensors found = probed(scratch, tensors, {}, scheme);
    for (const std::string name : json.at("probes"))
      CHECK_MESSAGE((found.contains(name) || tensors.contains(name)), name);
    CHECK(json.at("claims").at("causal_only") == (scheme.starts_with("cope")));
  }
}

TEST_CASE("probe: draws are written, and taken from the file where it has them") {
  const Scratch scratch("probe-draws");
  const Tensors tensors = without(without(cope_tensors(), "table"), "cotangent_logits");
  const Tensor positions = Tensor::of({0, 2, 4, 6, 50}, {5}, DType::f64);
  const std::string scheme = "randomised(rope, length=64)";
  for (const std::string way : {"--executor reference", "--executor strips"}) {
    CAPTURE(way);
    const Tensors first = probed(scratch, tensors, way, scheme);
    const std::vector<double> drawn = first.at("drawn").to_vector();
    CHECK((drawn.size() == 5 && std::ranges::is_sorted(drawn)));
    CHECK(distance(probed(scratch, with(tensors, "drawn", first.at("drawn")), way, scheme), first, {"output"}) == 0);
    const Tensors other = probed(scratch, with(tensors, "drawn", positions), way, scheme);
    CHECK(test::distance(other.at("drawn"), positions) == 0);
    const Tensors by_positions = probed(scratch, with(tensors, "positions", positions), way, "rope");
    CHECK(distance(by_positions, other, {"output", "gradient.q"}) == 0);
  }
  // Draws distances, as alibi reads nothing else.
  CHECK(probed(scratch, tensors, {}, "randomised(alibi, length=64)").at("drawn").at({0}) == 0);
}

TEST_CASE("probe: a mask per head is refused where heads are mixed, and --describe says so") {
  const Scratch scratch("probe-head-mask");
  for (const bool mixes : {false, true}) {
    const auto json = json_of(done("probe --sizes 'heads=2 head-dim=4 length=5 batch=3' --describe " +
                                   std::string(mixes ? "cdape(alibi)" : "dape(alibi)"))
                                  .out);
    CHECK(json.at("claims").at("mask_per_head") == !mixes);
    for (const auto& tensor : json.at("tensors"))
      if (tensor.at("name") == "mask") CHECK(tensor.at("axes") == (mixes ? "1|b 1 t t" : "1|b 1|h t t"));
  }
  const Tensors tensors = with(without(cope_tensors(), "table"), "mask", Tensor::full({1, 2, 5, 5}, 1, DType::boolean));
  (void)probed(scratch, tensors, "--init 1", "dape(alibi)");
}

TEST_CASE("gradcheck: an op, a function and a scheme pass with their figures") {
  for (const auto& [line, parts] : std::vector<std::pair<std::string, Arguments>>{
           {"lerp_at relu", {"lerp_at, integer positions", "kink at [0,1]: left derivative ", "relu, at its kinks"}},
           {"cope(p_max=8) alibi --length 5", {"cope(p_max=8), causal", "table  [9,4]", "alibi, bidirectional"}},
           {"cope(p_max=8) --twice", {"cotangent", "[9,4]", "ok\n"}},
           {"unary_backward --twice", {"has no second derivative"}},
           {"--list", {"  softmax\n", "  sigmoid\n", "  cope\n", "  randomised(SCHEME)\n"}}}) {
    const Outcome checked = done("gradcheck " + line);
    for (const std::string& part : parts) CHECK_MESSAGE(has(checked.out, part), part, " in ", checked.out);
    CHECK_FALSE(has(checked.out, "cope(p_max=8), bidirectional"));
  }
}

TEST_CASE(
    "compare: the first that differs in the order of the pass, by name, place and numbers, under the user's names") {
  const Scratch scratch("compare");
  const Tensors ours = probed(scratch, cope_tensors());
  Tensors theirs;
  for (const auto& [name, tensor] : ours)  // "gates" is "gradient.g", too; and a batch of one less axis is none
    theirs[replaced(name, "^(gradient\\.)?gates$", "$1g")] = tensor;
  const auto compare = [&](const std::string& more = {}) {
    write(scratch / "mine", theirs);
    return ran("compare " + scratch / "out" + " " + scratch / "mine" + " --names " + scratch / "names" + " " + more);
  };
  std::ofstream(scratch / "names") << R"({"g": "gates"})";
  CHECK(compare("--tolerance 0").code == 0);
  CHECK(has(compare().out, "difference in 21"));

  const auto change = [&](const std::string& name, const Shape& at, double by) {
    Tensor& tensor = theirs.at(name) = raw::copy(theirs.at(name));
    index_t place = 0;
    for (int axis = 0; axis < at.rank(); ++axis) place = place * tensor.size(axis) + at[axis];
    tensor.data<double>()[place] += by;
  };
  change("pattern", {1, 0, 4, 2}, 1e-14);  // like rounding
  CHECK((compare().code == 0 && compare("--tolerance 1e-15").code == 1));
  change("gradient.g", {0, 0, 3, 1}, 0.5);  // comes after all values and, in backward, after the pattern's gradient
  change("output", {1, 1, 4, 3}, 2);
  change("z", {0, 1, 2, 3}, -0.25);
  change("z", {0, 1, 4, 0}, 1);       // the larger one, behind it
  change("scores", {0, 0, 1, 3}, 1);  // a masked key
  const Outcome found = compare();
  CHECK(found.code == 1);
  const double z = ours.at("z").at({0, 1, 2, 3});
  CHECK_MESSAGE(has(found.out, "z, at [0,1,2,3]: " + digits(z, 6)), found.out);
  CHECK(has(found.out, "3 of 21 tensors"));
  CHECK_MESSAGE(has(found.out, "first at [0,0,1,3]"), found.out);

  const std::vector<std::string> lines = lines_of(compare("--json").out);
  REQUIRE(lines.size() == 22);
  const auto place_of = [&](const std::string& name) {
    const auto is = [&](const std::string& line) { return json_of(line).value("name", "") == name; };
    return std::ranges::find_if(lines, is) - lines.begin();
  };
  const char* const order[] = {"scores", "gates", "positions", "logits", "pattern", "output", "gradient.pattern",
      "gradient.logits", "gradient.positions", "gradient.gates", "gradient.scores", "gradient.q"};
  CHECK(std::ranges::is_sorted(order, {}, place_of));
  const nlohmann::json of_z = json_of(lines[static_cast<std::size_t>(place_of("z"))]);
  CHECK(std::fabs(of_z.at("largest").get<double>() - 1) < 1e-15);
  CHECK(of_z.at("first").at("at").get<std::vector<double>>() == std::vector<double>{0, 1, 2, 3});
  CHECK(of_z.at("largest at").at("at").get<std::vector<double>>() == std::vector<double>{0, 1, 4, 0});
  CHECK(json_of(lines.back()).at("first") == "z");
}

TEST_CASE("compare: a share is of the tensor's own numbers, and whole numbers are equal") {
  const Scratch scratch("compare-shares");
  const auto f32 = [](std::vector<double> x) { return Tensor::of(x, {static_cast<index_t>(x.size())}, DType::f32); };
  const auto compare = [&](const Tensors& ours, const Tensors& theirs, const std::string& more = {}) {
    write(scratch / "ours", ours), write(scratch / "theirs", theirs);
    return ran("compare " + scratch / "ours" + " " + scratch / "theirs" + more);
  };
  const Tensors ours{{"large", f32({1e6})}, {"small", f32({1e-3, 2e-3})}},
      theirs{{"large", f32({1e6})}, {"small", f32({5e-2, -7e-2})}};
  const Outcome floored = compare(ours, theirs);
  CHECK(floored.code == 0);
  CHECK_MESSAGE(has(floored.out, "1 of 2 tensors."), floored.out);
  CHECK(has(floored.out, "36"));
  CHECK(has(floored.out, "ok by"));
  CHECK(compare(ours, theirs, " --tolerance 1e-3").code == 1);
  const auto whole = [](index_t number) {
    const Tensor one = Tensor::zeros({1}, DType::i64);
    one.data<index_t>()[0] = number;
    return Tensors{{"n", one}};
  };
  const Outcome found = compare(whole(index_t{1} << 53), whole((index_t{1} << 53) + 1), " --tolerance 0");
  CHECK_MESSAGE(has(found.out, "n, at [0]: 9007199254740992"), found.out);
  CHECK_MESSAGE(has(found.out, "9007199254740993 in "), found.out);
  for (const std::string more : {"", " --tolerance 0.1"}) CHECK(compare(whole(49999), whole(50000), more).code == 1);
  CHECK(compare(whole(49999), {{"n", f32({50000})}}).code == 1);
}

TEST_CASE("compare: files and maps of names that do not fit are refused") {
  const Scratch scratch("against");
  write(scratch / "ours", probed(scratch, cope_tensors()));
  const std::string probe = "compare " + scratch / "ours" + " " + scratch / "mine";
  std::filesystem::copy(scratch / "ours", scratch / "mine");
  for (const auto& [names, why] :
      std::vector<std::pair<std::string, std::string>>{{"[]", "names: "}, {R"({"pos": "positions"})", "\"pos\""},
          {R"({"gates": "gatse"})", "mean 'gates'?"}, {R"({"gates": "positions"})", "\"gradient.gates\""}}) {
    std::ofstream(scratch / "names") << names;
    const Outcome outcome = ran(probe + " --names " + scratch / "names");
    CHECK(outcome.code == 3);
    CHECK_MESSAGE(has(outcome.err, why), outcome.err);
  }
  write(scratch / "mine", {{"a", normal({2}, "a")}});
  CHECK(has(ran(probe).err, "; there: a"));
  CHECK(ran("compare " + scratch / "in").code == 2);
}

TEST_CASE("compare RUN: the run's model on its tokens, or on those of the file, beside the file") {
  const Scratch scratch("compare-run");
  const std::string run = scratch / "run", mine = scratch / "mine";
  (void)done("train flip_flop --scheme alibi --steps 3 --length 12 --dim 16 --layers 2 --heads 2 --out " + run);
  (void)done("look " + run + " --numbers --dtype f64 --out " + scratch / "look.html");
  Tensors pass = read(scratch / "look.safetensors");
  for (const char* of_all : {"answer.logits", "loss"}) CHECK(pass.erase(of_all) == 1);
  write(mine, pass);
  std::string same = done("compare " + run + " " + mine + " --tolerance 0").out;
  std::replace(same.begin(), same.end(), '\n', ' ');  // a long path of the folder wraps the line
  CHECK_MESSAGE(has(same, "only in " + run + ": answer.logits, loss "), same);

  // The second layer's scores come before its other values, and before the first layer's gradients, which also differ.
  pass["blocks.1.attention.scores"] = raw::add(pass["blocks.1.attention.scores"], Tensor::full({1}, 0.5, DType::f64));
  pass["gradient.blocks.0.attention.q"] = Tensor::full(pass["blocks.0.attention.q"].shape(), 1, DType::f64);
  write(mine, pass);
  const Outcome differs = ran("compare " + mine + " " + run);
  CHECK(differs.code == 1);
  CHECK_MESSAGE(has(differs.out, "blocks.1.attention.scores, at [0,0,0,0]:"), differs.out);

  const Tensor tokens = Tensor::of({0, 3, 1, 4}, {4}, DType::i64), logits = pass["blocks.0.attention.logits"];
  write(mine, {{"tokens", tokens}, {"blocks.0.attention.logits", logits}});
  CHECK(has(ran("compare " + run + " " + mine).out, "shape is [1,2,4,4]"));
  write(mine, {{"tokens", Tensor::of({0, 9}, {2}, DType::i64)}});
  CHECK(has(ran("compare " + run + " " + mine).err, "9 given; 0 to 4"));
  write(mine, {{"tokens", tokens}, {"targets", Tensor::of({0}, {1}, DType::i64)}});
  CHECK(has(ran("compare " + run + " " + mine).err, "1 targets given"));

  // A run whose text is gone, as of a converted model, reads the file's tokens.
  const std::string text = scratch / "text.txt", of_text = scratch / "of_text";
  std::ofstream(text) << std::string(400, 'a') + ".\n" + std::string(400, 'b');
  (void)done("train lm --data " + text +
             " --steps 1 --length 4 --dim 16 --layers 1 --heads 2 --batch 2 --evaluate-to 1 --out " + of_text);
  std::filesystem::remove(text);
  write(mine, {{"tokens", tokens}});
  CHECK(has(ran("compare " + of_text + " " + mine).out, "difference in 1"));
  write(mine, {{"loss", Tensor::of({0}, {1}, DType::f32)}});
  CHECK(has(ran("compare " + of_text + " " + mine).err, "whose own"));
}
