// The report page: no text can break out of its place.
#include "examples/whence/report/report.h"

#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "examples/whence/report/encode.h"
#include "examples/whence/report/plot.h"
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

// The d of the first path from `at` on.
std::string path_of(const std::string& drawing, std::size_t at = 0) {
  const std::size_t begin = drawing.find("d=\"M", at);
  REQUIRE(begin != std::string::npos);
  return drawing.substr(begin + 3, drawing.find('"', begin + 3) - begin - 3);
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

TEST_CASE("report: nothing refers to the outside, and without a matrix there is no script") {
  const std::string text = html(small_page());
  for (const char* outside :
      {"http://", "https://", "//cdn", " src=", " href=", "@import", "url(", "fetch(", "XMLHttpRequest"}) {
    CAPTURE(outside);
    CHECK(occurrences(text, outside) == 0);
  }
  CHECK(text.find("default-src 'none'") != std::string::npos);
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

TEST_CASE("report: plots leave gaps where a point cannot be drawn, and labels do not overlap") {
  const double nan = std::nan("");
  const std::string gap = svg({"t", "x", "y", {{"a", {0, 1, 2, 3, 4}, {1, 2, nan, 2, 1}}}, false});
  CHECK(occurrences(path_of(gap), "M") == 2);
  const std::string logarithmic =
      svg({"t", "x", "y", {{"a", {0, 1, 2}, {1, 0, 0.001}}}, true});  // log(0) is not drawable
  for (const std::string& drawing :
      {gap, logarithmic, svg({"t", "x", "y", {{"a", {}, {}}}, true}), svg({"t", "x", "y", {}, false})}) {
    CHECK(occurrences(drawing, "nan") == 0);
    CHECK(occurrences(drawing, "inf") == 0);
  }

  for (const double end : {0.0, 10.0}) {  // crowded at the lower edge, and at the upper one
    Plot crowded{"t", "x", "y", {}, false};
    for (int k = 0; k < 5; ++k)
      crowded.curves.push_back({"scheme " + std::to_string(k), {0, 1}, {static_cast<double>(k), end}});
    const std::string labels = svg(crowded);
    std::vector<double> heights;
    for (std::size_t at = 0; (at = labels.find("class=\"name\"", at)) != std::string::npos; ++at)
      heights.push_back(std::stod(labels.substr(labels.find(" y=\"", at) + 4)));
    REQUIRE(heights.size() == 5);
    for (const double height : heights) CHECK((height > 10 && height < 300));  // inside the drawing
    for (std::size_t k = 1; k < heights.size(); ++k) CHECK(std::abs(heights[k] - heights[k - 1]) >= 16);
  }
}

// The labels below the x axis, or beside the y axis.
std::vector<std::string> labels_of(const std::string& drawing, const std::string& axis) {
  std::vector<std::string> labels;
  const std::string tag = "<text class=\"tick " + axis + "\"";
  for (std::size_t at = 0; (at = drawing.find(tag, at)) != std::string::npos; ++at) {
    const std::size_t begin = drawing.find('>', at) + 1;
    labels.push_back(drawing.substr(begin, drawing.find('<', begin) - begin));
  }
  return labels;
}

TEST_CASE("report: the caller's ticks, error bars, and labels on a logarithmic axis of less than a decade") {
  Plot plot{"t", "length", "perplexity", {{"a", {0, 1, 2}, {5, 4, 6}, {0.5, 0, 2}}}, false};
  plot.x_ticks = {{0, "64"}, {1, "128"}, {2, "256"}, {3, "512"}};  // the last lies beyond the curve
  const std::string drawing = svg(plot);
  CHECK(labels_of(drawing, "middle") == std::vector<std::string>{"64", "128", "256"});
  CHECK(std::stod(labels_of(drawing, "end").back()) >= 8);                          // the bar from 4 to 8 fits
  CHECK(occurrences(path_of(drawing, drawing.find("class=\"whisker")), "V") == 4);  // none where the error is 0
  for (const double high : {0.7, 0.95, 2.5, 5.9}) {
    const std::string narrow = svg({"t", "x", "y", {{"a", {0, 1}, {0.6, high}}}, true});
    CAPTURE(high);
    CHECK(labels_of(narrow, "end").size() >= 3);
  }
  plot.curves[0].error.pop_back();
  Page page = small_page();
  page.plots = {plot};
  CHECK(message_of(page).find("curve 'a' has 3 x, 3 y and 2 errors") != std::string::npos);
}

TEST_CASE("report: a curve of more points than columns keeps its ends, its extremes and its gaps") {
  Curve curve{"a", {}, {}};
  for (int k = 0; k < 20000; ++k) curve.x.push_back(k), curve.y.push_back(k % 2 ? 1 : -1);
  curve.y[7001] = 5, curve.y[7003] = -6, curve.y[15000] = std::nan("");
  const std::string path = path_of(svg({"t", "x", "y", {curve}, false}));
  std::vector<double> heights;
  for (std::size_t at = path.find(' '); at != std::string::npos; at = path.find(' ', at + 1))
    heights.push_back(std::stod(path.substr(at)));
  CHECK(heights.size() > 1000);
  CHECK(heights.size() < 4500);
  CHECK(occurrences(path, "M") == 2);
  const double top = *std::ranges::min_element(heights), bottom = *std::ranges::max_element(heights);
  CHECK(std::ranges::count(heights, top) == 1);     // the spike up
  CHECK(std::ranges::count(heights, bottom) == 1);  // and down
  CHECK(heights.front() - top == doctest::Approx(6.0 / 11 * (bottom - top)).epsilon(0.01));
  CHECK(heights.back() - top == doctest::Approx(4.0 / 11 * (bottom - top)).epsilon(0.01));
  for (double& y : curve.y) y = 0.5;
  curve.x.resize(300), curve.y.resize(300);  // fewer than columns: all of them
  CHECK(occurrences(path_of(svg({"t", "x", "y", {curve}, false})), "L") == 299);
}

TEST_CASE("report: several plots in one file, each under its title; one brings its colours along, dark ones too") {
  Plot plot = small_page().plots[0];
  plot.title = "<one>";
  const std::string file = svg_file("all", "a note", {plot, plot, plot}, 2);
  CHECK(occurrences(file, "&lt;one&gt;</text>") == 3);
  CHECK(occurrences(file, "<svg") == 1);
  CHECK(occurrences(file, "</svg>") == 1);
  CHECK(file.find("<title>all</title>") != std::string::npos);
  const std::string one = svg_file(plot), inside = svg(plot);
  CHECK(one.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" class="));
  CHECK(one.ends_with(inside.substr(inside.find('>') + 1)));
  CHECK(one.find("prefers-color-scheme: dark") < one.find("]]></style>"));
}

TEST_CASE("report: what is never negative and always the same is read against 0, and a long label fits its axis") {
  const auto drawn = [](double value) {
    return report::svg({.title = "share",
        .x_label = "step",
        .y_label = std::string(90, 'y'),
        .curves = {{.name = "c", .x = {0, 1}, .y = {value, value}}}});
  };
  for (const double value : {0.0, 47.87}) {
    CHECK(drawn(value).find("y=\"288\">0</text>") != std::string::npos);  // the lowest tick
    CHECK(drawn(value).find(">-0.") == std::string::npos);
    CHECK(drawn(value).find("textLength=") != std::string::npos);
  }
}
