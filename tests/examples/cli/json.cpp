// JSON: invalid JSON is refused, fields are read strictly, and values are written as by the library.
#include "examples/whence/cli/json.h"

#include <nlohmann/json.hpp>
#include <regex>
#include <tuple>

#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

TEST_CASE("JSON with a NUL, nested deeper than anyone writes, or with a field twice is refused") {
  const auto message = [](const std::string& text) {
    return error_text<FileError>([&] { (void)Json::read(text, "a.json"); });
  };
  const auto nested = [](std::size_t lists) {
    return R"({"a":)" + std::string(lists, '[') + std::string(lists, ']') + "}";
  };
  for (const std::string& fine : {std::string("{}"), std::string(R"({"a": "[[[[ \" {{{{ \\"})"), nested(63)})
    CHECK(message(fine).empty());
  CHECK(has(message(std::string("{}\0garbage", 10)), "byte 2; JSON"));
  CHECK(has(message(nested(64)), "deeper than 64"));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":[";
  CHECK(has(message(deep), "deeper than 64"));
  CHECK(has(message(R"({"a":{"b":1,"b":2}})"), "a.json: a:"));
  CHECK(has(message(R"({"a":[0,{"b":1,"b":2}]})"), "1: field 'b'"));
  CHECK(has(message("[1]"), "a.json: no"));
  CHECK(has(message(""), "a.json: no"));  // the library's versions say why differently
  CHECK(has(message(R"({"a":1e999})"), "computer's numbers"));
}

TEST_CASE("what is no JSON is refused with its cause: what Python writes, half characters, other encodings") {
  for (const auto& [text, byte, cause] :
      std::vector<std::tuple<std::string, int, std::string>>{{R"({"a": "x\ud83d"})", 15, "half of a surrogate pair"},
          {R"({"a": "\ude00x"})", 13, "half of a surrogate pair"}, {R"({"\udfff": 1})", 0, "half of a surrogate pair"},
          {"{\"a\": \"caf\xE9\"}", 12, "not UTF-8"}, {R"({"a": NaN})", 7, "NaN as in Python"},
          {R"({"a": Infinity})", 7, "Infinity as in Python"}, {R"({"a": [1, -Infinity]})", 12, "Infinity as in Python"},
          {R"({"a": True})", 7, "True as in Python"}, {"{'a': 1}", 2, "' as in Python"},
          {R"({"a": nil})", 8, "invalid literal"}, {R"({"a": 1,})", 9, "unexpected '}'"},
          {"{\"a\": \"b\nc\"}", 9, "invalid string: control character U+000A (LF)"}}) {
    const std::string found = error_text<FileError>([&, &json = text] { (void)Json::read(json, "a.json"); });
    CHECK_MESSAGE(found.find(" on: " + cause) != found.npos, found);
    const std::string begins =
        byte > 0 ? to_text("a.json: no JSON, from its byte ", byte, " on: ") : "a.json: no JSON, from its byte ";
    CHECK_MESSAGE(found.starts_with(begins), found);
  }
  CHECK(has(
      error_text<FileError>([] { (void)Json::read(std::string("\xFF\xFE{\0}\0", 6), "a.json"); }), "a.json: UTF-16"));
  CHECK(Json::read(R"({"a": "\ud83d\ude00"})", "a.json").text("a") == "\xF0\x9F\x98\x80");
}

TEST_CASE("JSON is read strictly: what is missing or something else is refused with its place and name") {
  const Json page = Json::read(
      R"({"t":"x","n":3,"x":0.5,"no":null,"yes":true,"l":["a","b"],"m":[1,null],"o":{"n":7},"all":[{"k":1},{}],"big":18446744073709551615})",
      "a.json");
  CHECK(page.text("t") == "x");
  CHECK(page.whole("n", 1, 3) == 3);
  CHECK(page.number("n") == 3);
  CHECK(page.number("x") == 0.5);
  CHECK(std::isnan(page.number("no")));
  CHECK(page.truth("yes"));
  CHECK(page.texts("l") == std::vector<std::string>{"a", "b"});
  CHECK(page.object("o").whole("n") == 7);
  CHECK(page.list("all")[0].whole("k") == 1);
  CHECK(page.number("big") == 18446744073709551615.0);
  const std::pair<std::function<void()>, const char*> refusals[] = {{[&] { (void)page.text("u"); }, "no field 'u'"},
      {[&] { (void)page.text("n"); }, "field 'n'"}, {[&] { (void)page.whole("x"); }, "field 'x'"},
      {[&] { (void)page.whole("big"); }, "2^63"}, {[&] { (void)page.whole("n", 4, 9); }, "is 3; 4 to 9"},
      {[&] { (void)page.number("t"); }, "field 't'"}, {[&] { (void)page.truth("no"); }, "is null"},
      {[&] { (void)page.texts("m"); }, "field 'm'"}, {[&] { (void)page.object("o").text("n"); }, "o: field 'n'"},
      {[&] { (void)page.list("all")[1].whole("k"); }, "all 1: no field 'k'"}};
  for (const auto& [reads, part] : refusals) CHECK_MESSAGE(has(error_text<FileError>(reads), part), part);
}

TEST_CASE("JSON is written byte for byte as the library prints it: odd strings, numbers, and nesting") {
  using nlohmann::ordered_json;
  using Handler = ordered_json::error_handler_t;
  std::vector<std::string> texts{
      "", "a\"b\\c/", "\xF0\x9F\x8E\xB2", "\xEF\xBF\xBF", "\x7F", "a\xC3", "line\nend\r\t\b\f"};
  for (int byte = 0; byte < 256; ++byte) texts.push_back(std::string("x") + static_cast<char>(byte) + "y");
  const std::vector<double> numbers{-0.0, 0.1, 1e16, std::numeric_limits<double>::quiet_NaN()};
  ordered_json library = ordered_json::object(), library_list = ordered_json::array();
  Json ours;
  Json::List list;
  const auto add = [&](const auto& value) {
    const std::string name = std::to_string(list.size());
    library[name] = value, library_list.push_back(value);
    ours.add(name, value), list.push_back(value);
  };
  for (const std::string& text : texts) add(text);
  for (const double number : numbers) add(number);
  for (const bool truth : {true, false}) add(truth);
  for (const std::int64_t whole : {INT64_MIN, std::int64_t{-1}, INT64_MAX}) add(whole);
  add(UINT64_MAX);
  library["none"] = ordered_json::object(), ours.add("none", Json::Fields());
  library["no list"] = ordered_json::array(), ours.add("no list", Json::List());
  library["list"] = library_list, ours.add("list", list);
  library["inner"] = ordered_json(library), ours.add("inner", Json(ours));
  const auto printed = [&](int blanks) {  // DEL and U+FFFF alone are escaped here
    const std::string text = library.dump(blanks, ' ', false, Handler::replace);
    return std::regex_replace(std::regex_replace(text, std::regex("\x7F"), "\\u007f"), std::regex("\uFFFF"), "\\uffff");
  };
  CHECK(Json(std::string("\u00e9\u009b\u202e")).line() == R"("\u00e9\u009b\u202e")");
  CHECK(ours.line() == printed(-1));
  CHECK(ours.line(Json::Utf8::escaped) == library.dump(-1, ' ', true, Handler::replace));
  for (const int blanks : {1, 2}) CHECK(ours.page(blanks) == printed(blanks));
}
