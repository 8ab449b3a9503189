// The grammar of schemes and their registry.
#include "nn/scheme.h"

#include "nn/transformer.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

std::string canonical(const std::string& text) { return canonical_text(parse_schemes(text)); }

// The refusal, which must be an InputError: programs exit with 2 on it.
std::string refusal(const std::string& text) {
  return message<InputError>([&] { (void)parse_schemes(text); });
}

// Embeds tokens. With `misplaced` it is registered as a scheme per layer.
class Embeds final : public PositionalScheme, public EmbedsTokens {
 public:
  Claims claims() const override { return {}; }
  Tensor embed(const Tensor& x, const Positions&) const override { return x; }
};
bool misplaced = false;  // other tests of this process make every registered scheme

}  // namespace

TEST_CASE("canonical text: registered name, given options in registered order") {
  const std::pair<const char*, const char*> rows[] = {{"none", "none"}, {"nope", "none"}, {"rotary", "rope"},
      {"ape", "absolute"}, {"learned", "absolute"}, {"sin_cos", "sinusoidal"}, {"cope()", "cope"},
      {"contextual( gates = separate_keys,p_max=16 )", "cope(p_max=16, gates=separate_keys)"},
      {"  cope(p_max=64)+rope ", "cope(p_max=64) + rope"}, {"rope+cope", "rope + cope"},
      {"alibi\t+\nrope(layout=interleaved,base=500000)", "alibi + rope(base=500000, layout=interleaved)"}};
  for (const auto& [text, expected] : rows) CHECK(canonical(text) == expected);
  for (const SchemeInfo& info : registered_schemes()) {
    const std::string inside = info.takes_base ? "(rope)" : "";
    CHECK(canonical(info.name + inside) == info.name + inside);
    for (const std::string& alias : info.aliases) CHECK(canonical(alias + inside) == info.name + inside);
    for (const std::string& variant : info.variants) CHECK(canonical(variant) == variant);
  }
}

TEST_CASE("what is refused names its place or its word, and the nearest name where there is one") {
  CHECK(refusal("cope rope") == "scheme 'cope rope': at character 6: 'r' found; '+', '(' or the end expected");
  const std::pair<const char*, const char*> rows[] = {{"coep", "mean 'cope'?"}, {"rope + alibbi", "mean 'alibi'?"},
      {"CoPE", "mean 'cope'?"}, {"xyzzyx", "known: absolute, alibi"}, {"cope(pmax=3)", "mean 'p_max'?"},
      {"rope(frequency=3)", "known: base,"}, {"none(p_max=3)", "option 'p_max'"}, {"cope(gates=key)", "mean 'keys'?"},
      {"cope(z_scale=2)", "known: 1, head"}, {"", "character 1:"}, {"   ", "character 4:"},
      {"+ rope", "character 1: '+'"}, {"cope +", "character 7:"}, {"cope + + rope", "character 8: '+'"},
      {"cope(p_max=3))", "character 14: ')'"}, {"cope(p_max)", "character 11: ')'"},
      {"cope(p_max=)", "character 12: ')'"}, {"cope(p_max=3", "character 13:"}, {"cope(,)", "character 6: ','"},
      {"cope(p_max=3,)", "character 14: ')'"}, {"cope(p_max=3 4)", "character 14: '4'"}, {"cope + cope", "cope occurs"},
      {"ape + rope + learned", "absolute occurs"}, {"none + rope", "none adds"}, {"rope + nope", "none adds"},
      {"layers(cope, count=1) + cope", "cope occurs"}, {"dape(layers(rope))", "layers given"},
      {"cope(p_max=3, p_max=3)", "'p_max' given"}, {"rope(base=+4)", "character 11: '+'"}};
  for (const auto& [text, part] : rows) CHECK_MESSAGE(has(refusal(text), part), text, ": ", refusal(text));
}

TEST_CASE("numbers: which are read, and their ranges") {
  for (const std::string value : {"1e4", "1e+4", "10000", "10000.0", "1E4"})
    CHECK(refusal("rope(base=" + value + ")") == "");
  for (const std::string value : {"16", "1.6e1", "1", "1000000"}) CHECK(refusal("cope(p_max=" + value + ")") == "");
  for (const std::string value :
      {"0", "-1", "1.5", "nan", "inf", "-inf", "0x10", "3abc", "1e", "1e+", "ten", "1000001", "1e400", "-"}) {
    CHECK(has(refusal("cope(p_max=" + value + ")"), "p_max is '" + value + "'"));
  }
  CHECK(has(refusal("rope(base=0.5)"), "base is '0.5'"));
  CHECK(refusal("cope(p_max=1+rope)") != "");
  for (const std::string value : {"1", "1:2.5", "1e-2:3:4"}) CHECK(refusal("rope(long_factor=" + value + ")") == "");
  for (const std::string value : {"1:", "1::2", "1:x", "0:1"})
    CHECK(has(refusal("rope(long_factor=" + value + ")"), "long_factor is '" + value + "'"));
  CHECK(has(refusal("rope(base=2:3)"), "base is '2:3'"));
}

TEST_CASE("each scheme says what it is, and the defaults of its options are legal values") {
  for (const SchemeInfo& info : registered_schemes()) {
    CHECK_FALSE((info.title.empty() || info.paper.empty() || info.equation.empty()));
    for (const SchemeOption& option : info.options) {
      CHECK_FALSE(option.help.empty());
      CHECK(refusal(info.name + (info.takes_base ? "(rope, " : "(") + option.name + "=" + option.default_text + ")") ==
            "");
    }
  }
}

TEST_CASE("a registration that cannot be used is an error with its place, an option that it lacks one with its name") {
  const auto fault = [](std::vector<SchemeOption> options, bool has_make = true) {
    SchemeInfo info;
    info.name = "own", info.options = std::move(options);
    if (has_make) info.make = [](const SchemeArguments&) { return std::make_unique<Embeds>(); };
    SchemeRegistry registry;
    registry.add(std::move(info), Site::current());
    const std::string text = message([&] { (void)registry.all(); });
    if (!text.empty()) CHECK_MESSAGE(has(text, "scheme: 'own'"), text);
    return text.substr(std::min(text.size(), text.find(": ", 8)));
  };
  const auto number = [](index_t preset, option::Range range) { return option::integer("a", preset, range, ""); };
  CHECK(fault({number(1, {0, 100}), option::words("b", {"x", "y"}, "")}).empty());
  CHECK(has(fault({number(1, {0, 100}), option::yes_no("a", "")}), ": option 'a'"));
  for (const std::string name : {"", "a b", "a=", "a,b", "A"})
    CHECK(has(fault({option::yes_no(name, "")}), "option '" + name + "' given"));
  CHECK(has(fault({number(400, {0, 100})}), "'a': default '400'"));
  CHECK(has(fault({number(0, {0.5, 9})}), "'a': default '0'"));
  CHECK(has(fault({option::words("a", {}, "")}), ": option 'a':"));
  CHECK(has(fault({}, false), ": no make"));
  const std::vector<SchemeSpec> rope = parse_schemes("rope");
  const SchemeArguments given(rope[0], {8, 2, 16});
  CHECK(has(message([&] { (void)given.number("nosuch"); }), "option 'nosuch'"));
}

TEST_CASE("two schemes of one name or alias are an error that names both places, at the first use") {
  SchemeRegistry registry;
  const Site here = Site::current();
  const auto add = [&registry](const char* name, const std::vector<std::string>& aliases, const Site& at) {
    SchemeInfo info;
    info.name = name;
    info.aliases = aliases;
    info.make = [](const SchemeArguments&) { return std::make_unique<Embeds>(); };
    registry.add(info, at);
  };
  add("one", {"first"}, here);
  add("two", {}, here);
  CHECK(registry.all().size() == 2);
  add("three", {"first"}, Site::current());
  const std::string text = message([&] { (void)registry.all(); });
  CHECK((has(text, "'first'") && has(text, to_string(here)) && has(text, to_text("scheme.cpp:", here.line() + 11))));
  add("one", {}, here);
  CHECK(message([&] { (void)registry.all(); }) == text);  // the first clash is reported
}

TEST_CASE("a scheme that embeds tokens and is registered for each layer is refused") {
  static const RegisterScheme registered{{.name = "misplaced",
      .title = "misplaced",
      .paper = "tests/nn/scheme.cpp",
      .equation = "none",
      .shared = [](const SchemeArguments&) { return !misplaced; },
      .make = [](const SchemeArguments&) { return std::make_unique<Embeds>(); }}};
  misplaced = true;
  CHECK(has(message([] {
    Transformer model({.vocabulary = 5, .length = 4, .dim = 8, .layers = 1, .heads = 2, .scheme = "misplaced"});
  }),
      "scheme: misplaced"));
  misplaced = false;
}

TEST_CASE("a scheme over another: nested texts, aliases, and what is refused") {
  CHECK(canonical("randomized( rotary(base=500) , length = 64 )") == "randomised(rope(base=500), length=64)");
  CHECK(canonical("shifted(interpolated(alibi, factor=2), by=3) + cope") ==
        "shifted(interpolated(alibi, factor=2), by=3) + cope");
  CHECK(has(refusal("randomised"), "scheme 'randomised':"));
  CHECK(has(refusal("randomised(length=64)"), "scheme inside"));
  CHECK(refusal("randomised(rope, alibi)").find("'=' expected") != std::string::npos);
  CHECK(refusal("rope(alibi)").find("'=' expected") != std::string::npos);
  CHECK(has(refusal("randomised(rop)"), "mean 'rope'?"));
  CHECK(refusal("randomised(rope").find("')' expected") != std::string::npos);
  const auto make = [](const char* text) { return message([text] { (void)parse_schemes(text)[0].make({8, 2, 16}); }); };
  CHECK(has(make("randomised(cope)"), "scheme inside"));
  CHECK(has(make("shifted(none, by=2)"), "scheme inside"));
  CHECK(parse_schemes("randomised(absolute)")[0].shared());
  CHECK_FALSE(parse_schemes("randomised(rope)")[0].shared());
}

TEST_CASE("schemes inside each other: 8 at most, and texts of any size are refused at once") {
  const auto nested = [](const std::string& name, std::size_t levels) {
    std::string text;
    for (std::size_t level = 1; level < levels; ++level) text += name + "(";
    return text + "rope" + std::string(levels - 1, ')');
  };
  CHECK(canonical(nested("randomised", 8)) == nested("randomised", 8));
  std::string sum;
  for (int k = 0; k < 100000; ++k) sum += "rope + ";
  const std::string megabyte(std::size_t{1} << 20, 'x'), deep = "8 deep given";
  const std::pair<std::string, std::string> cases[] = {{nested("randomised", 9), deep}, {nested("dape", 20000), deep},
      {nested("randomised", 2000).substr(0, 20000), deep}, {std::string(megabyte.size(), '('), "name expected"},
      {megabyte, "no scheme"}, {"rope(base=" + megabyte + ")", "a number"}, {"rope(" + megabyte, "'=' expected"},
      {sum, "occurs twice"}};
  for (const auto& [text, message] : cases) {
    const std::string said = refusal(text);
    CHECK_MESSAGE(has(said, message), said.substr(0, 200));
  }
}
