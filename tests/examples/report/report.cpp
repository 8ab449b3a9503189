// The report page: no text can break out of its place.
#include "examples/whence/report/report.h"

#include <doctest/doctest.h>
#include <cmath>
#include <cstdint>
#include <string>

#include "examples/whence/report/encode.h"
#include "tests/support/json.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::report;

namespace {

Page small_page() {
  Page page;
  page.title = "A run";
  page.introduction = "First.\n\nSecond.";
  page.tables = {{"Errors", "a note", whence::Table({"scheme", "error"}).row({"cope", "0.00"}).row({"rope", "9.30"})}};
  page.plots = {
      {"Loss", "step", "nats", {{"cope", {0, 1, 2}, {0.7, 0.1, 0.01}}, {"rope", {0, 1, 2}, {0.7, 0.6, 0.5}}}, true}};
  page.footnotes = {"a footnote"};
  return page;
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

std::string message_of(const Page& page) {
  return test::error_text([&] { (void)html(page); });
}

}  // namespace

TEST_CASE("report: hostile text stays text") {
  const std::string evil = "</script><script>alert(1)</script><!-- & \"quoted\" 'single'";
  const std::size_t scripts = occurrences(html(small_page()), "<script"),
                    ends = occurrences(html(small_page()), "</script");
  Page page = small_page();
  page.title = page.introduction = page.footnotes[0] = evil;
  page.footnotes.emplace_back("\xFF\xFE");
  page.tables = {{evil, evil, whence::Table({evil, evil}).row({evil, evil})}};
  page.plots = {{evil, evil, evil, {{evil, {0, 1}, {0, 1}}}, false}};
  const std::string text = html(page);
  CHECK(occurrences(text, "<script") == scripts);
  CHECK(occurrences(text, "</script") == ends);
  CHECK(occurrences(text, "<!--") == 0);
  CHECK(occurrences(text, "\xFF") == 0);
}

TEST_CASE("report: escape and base64") {
  CHECK(escape("<a href=\"x\">'&'</a>") == "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  CHECK(escape("\xC3\xA9 \xE6\x97\xA5") == "\xC3\xA9 \xE6\x97\xA5");
  CHECK(escape("a\xC3") == "a\xEF\xBF\xBD");    // a cut sequence
  CHECK(escape("\x01\n") == "\xEF\xBF\xBD\n");  // a control character
  CHECK(paragraphs("one\n\n\n\ntwo") == "<p>one</p>\n<p>two</p>\n");
  const std::vector<std::pair<std::string, std::string>> rfc4648 = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="},
      {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, coded] : rfc4648)
    CHECK(base64(std::vector<std::uint8_t>(plain.begin(), plain.end())) == coded);
}

TEST_CASE("report: nothing refers to the outside, and without a matrix and a plot there is no script") {
  Page page = small_page();
  CHECK(occurrences(html(page), "://") ==
        occurrences(html(page), "\"http://www.w3.org/2000/svg\""));  // a namespace, not an address
  page.plots.clear();
  const std::string text = html(page);
  for (const char* outside :
      {"http://", "https://", "//cdn", " src=", " href=", "@import", "url(", "fetch(", "XMLHttpRequest"}) {
    CAPTURE(outside);
    CHECK(occurrences(text, outside) == 0);
  }
  CHECK(text.find("default-src 'none'") != std::string::npos);
  page.links = {{"look.html", "this & that"}};
  CHECK(occurrences(html(page), "<p><a href=\"look.html\">look.html</a> this &amp; that</p>") == 1);
  CHECK(occurrences(text, "<script") == 0);
  CHECK(text.find("9.30") != std::string::npos);
}

TEST_CASE("report: a matrix shows its rows by group, its notes, and what its columns mean") {
  using Look = Matrix::Look;
  Page page;
  page.verdict = "FAILED: 1 < 2";
  page.matrices = {{"Checks", "a note", {{"prefix", "a row is the same in a longer run"}, {"shift", "nothing moves"}},
      {{"cope", "cope", {{"0", "", Look::quiet}, {"FAIL 2", "at most 1 \"required\"", Look::bad}}},
          {"cope", "cope(p_max=2)", {{"\u2260 0.1", "as it says", Look::marked}, {"1", "", Look::plain}}},
          {"rope", "rope", {{"-", "not there", Look::quiet}, {"0", "", Look::quiet}}}}}};
  const std::string text = html(page);
  CHECK(text.find("<p class=\"verdict\">FAILED: 1 &lt; 2</p>") < text.find("<table"));
  CHECK(occurrences(text, "<dt>prefix</dt><dd>a row is the same in a longer run</dd>") == 1);
  CHECK(occurrences(text, "<span>cope (2)</span>") == 1);
  CHECK(occurrences(text, "<span>rope (1)</span>") == 1);
  CHECK(occurrences(text, "<tr class=\"entry failed\"><th scope=\"row\">cope</th>") == 1);
  CHECK(occurrences(text, "<td class=\"bad\" title=\"at most 1 &quot;required&quot;\">FAIL 2</td>") == 1);
  CHECK(occurrences(text, "<td class=\"marked\" title=\"as it says\">\u2260 0.1</td><td>1</td>") == 1);
  CHECK(occurrences(text, "<script>") == 1);  // the filter's
  page.matrices[0].rows[2].cells.pop_back();
  CHECK(message_of(page) ==
        "report: matrix 'Checks': row 'rope' has 1 cells; there are 2 columns; give every row one "
        "cell per column");
}

TEST_CASE("report: a plot is its curves as JSON, for the script of the page; a point that is no number is null") {
  Page page = small_page();
  page.plots[0].curves[0].y[1] = std::nan("");
  const std::string text = html(page);
  const std::string start = "<figure><h3>Loss</h3><script type=\"application/json\" class=\"plot\">";
  const std::size_t at = text.find(start);
  REQUIRE(at != std::string::npos);
  const auto data =
      nlohmann::json::parse(text.substr(at + start.size(), text.find("</script>", at) - at - start.size()));
  CHECK((data.at("x") == "step" && data.at("y") == "nats" && data.at("log") == true && data.at("curves").size() == 2));
  CHECK(data.at("curves")[0] == nlohmann::json::parse(R"({"name": "cope", "x": [0, 1, 2], "y": [0.7, null, 0.01]})"));
  CHECK(occurrences(text, "document.querySelectorAll(\"script.plot\")") == 1);
  page.plots[0].curves[0].y.pop_back();
  CHECK(message_of(page) == "plot: cope has 3 x, 2 y; one y per x required");
}
