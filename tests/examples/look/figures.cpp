// `whence look --figure`: SVG that stands for what was found, cell by cell and point by point.
#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "examples/whence/look/figures.h"
#include "examples/whence/report/encode.h"
#include "examples/whence/report/heat_map.h"
#include "tests/examples/look/subjects.h"

using namespace whence;
using namespace whence::look;
using namespace whence::test;

namespace {

// ---- XML, as far as pictures use it

// What is wrong with it as a document of its own; empty where nothing is.
std::string fault_of(const std::string& svg) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < svg.size();) {
    if (svg[at] == '&') {
      const std::string entity = svg.substr(at, svg.find(';', at) + 1 - at);
      if (!std::set<std::string>{"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"}.contains(entity))
        return "entity " + entity;
    }
    if (static_cast<unsigned char>(svg[at]) < 0x20 && svg[at] != '\n') return "a control character";
    if (svg[at] != '<') {
      if (open.empty() && svg[at] != '\n') return "text outside of all elements";
      ++at;
      continue;
    }
    if (svg.compare(at, 9, "<![CDATA[") == 0) {
      at = svg.find("]]>", at) + 3;
      continue;
    }
    std::size_t end = at;
    for (bool quoted = false; end < svg.size() && (quoted || svg[end] != '>'); ++end) {
      if (svg[end] == '"') quoted = !quoted;
      if (quoted && svg[end] == '<') return "'<' in an attribute";
    }
    const std::string tag = svg.substr(at, end + 1 - at), name = tag.substr(1, tag.find_first_of(" />", 2) - 1);
    if (tag.starts_with("</")) {
      if (open.empty() || "</" + open.back() + ">" != tag) return tag + " closes nothing";
      open.pop_back();
    } else if (!tag.ends_with("/>")) {
      open.push_back(name);
    }
    if (name == "script" || has(tag, "href")) return tag;
    at = end + 1;
  }
  return open.empty() ? "" : open.back() + " is not closed";
}

// The `d` of every path whose tag has `part`, and where it stands.
std::vector<std::pair<std::string, std::string>> paths_with(const std::string& svg, const std::string& part) {
  std::vector<std::pair<std::string, std::string>> found;
  for (std::size_t at = svg.find("<path"); at != std::string::npos; at = svg.find("<path", at + 1)) {
    const std::string tag = svg.substr(at, svg.find('>', at) - at);
    const std::size_t d = tag.find(" d=\"") + 4;
    if (has(tag, part)) found.emplace_back(tag.substr(0, d), tag.substr(d, tag.find('"', d) - d));
  }
  return found;
}

// Runs such as "M3 5h4v1h-4z" as cells, for each path in units of cells; the hatching behind them is one of more rows.
using Cells = std::map<std::pair<std::size_t, std::size_t>, std::string>;  // row and column: the class
std::vector<Cells> cells_of(const std::string& svg) {
  std::vector<Cells> maps;
  for (const auto& [tag, d] : paths_with(svg, "")) {
    if (has(tag, "url(#masked)")) {
      maps.emplace_back();
      continue;
    }
    if (maps.empty() || !has(d, "v1h-")) continue;
    for (std::size_t at = 0; at < d.size(); at = d.find('z', at) + 1) {
      std::size_t column = 0, row = 0, length = 0;
      REQUIRE(std::sscanf(d.c_str() + at, "M%zu %zuh%zuv1h-", &column, &row, &length) == 3);
      for (std::size_t k = 0; k < length; ++k) CHECK(maps.back().emplace(std::pair{row, column + k}, tag).second);
    }
  }
  return maps;
}

// The points of every curve in a file of plots.
std::vector<std::vector<std::pair<double, double>>> curves_of(const std::string& svg) {
  std::vector<std::vector<std::pair<double, double>>> curves;
  for (const auto& [tag, d] : paths_with(svg, "\"curve ")) {
    curves.emplace_back();
    for (std::size_t at = 0; at < d.size(); at = d.find_first_of("ML", at + 1)) {
      double x = 0, y = 0;
      REQUIRE(std::sscanf(d.c_str() + at + 1, "%lf %lf", &x, &y) == 2);
      curves.back().emplace_back(x, y);
    }
  }
  return curves;
}

// Whether the curve's heights are a straight line of the numbers, one for each.
void check_curve(const std::vector<std::pair<double, double>>& curve, const std::vector<double>& numbers) {
  REQUIRE(curve.size() == numbers.size());
  const auto low = static_cast<std::size_t>(std::ranges::min_element(numbers) - numbers.begin()),
             high = static_cast<std::size_t>(std::ranges::max_element(numbers) - numbers.begin());
  const double span = numbers[high] - numbers[low], y = curve[low].second;
  const double slope = span > 0 ? (curve[high].second - y) / span : 0;
  if (span > 0) CHECK(slope < 0);  // upwards
  for (std::size_t k = 0; k < numbers.size(); ++k)
    CHECK(std::abs(curve[k].second - y - slope * (numbers[k] - numbers[low])) < 0.1);
}

// [1 h i j]: the last query of one head.
std::vector<double> last_row(const Quantity& quantity, index_t head) {
  const Tensor& value = quantity.value;
  return raw::select(raw::select(raw::select(value, 0, 0), 0, head), 0, value.size(2) - 1).to_vector();
}

}  // namespace

TEST_CASE("look figures: a matrix as runs, and every cell that is not hidden in one colour") {
  report::HeatMap map{.title = "<a>", .tokens = 2, .values = {0, 1, std::nan(""), 0.5}, .causal = true, .marks = {1}};
  const std::string svg = report::svg_file("<b>", "&", {map}, 1);
  CHECK(fault_of(svg) == "");
  const Cells cells = cells_of(svg).at(0);
  CHECK(has(report::svg_file("", "", {{.title = "", .tokens = 2, .values = {1, 1, 1, 0}}}, 1),
      "<path class=\"s62\" d=\"M0 0h2v1h-2zM0 1h1v1h-1z\"/>"));
  CHECK(cells.size() == 3);
  CHECK(cells.at({0, 0}) == "<path class=\"s0\" d=\"");
  CHECK(cells.at({1, 0}) == "<path class=\"nan\" d=\"");
  CHECK(cells.at({1, 1}) == "<path class=\"s31\" d=\"");
  CHECK(has(svg, "<title>&lt;b&gt;</title>"));
  map.values.pop_back();
  CHECK(has(error_text([&] { (void)report::svg_file("", "", {map}, 1); }), "3 values given"));
}

TEST_CASE("look figures: they have the numbers of the pass") {
  const Scratch scratch("figures");
  const std::string text = scratch / "text";
  for (int line = 0; line < 12; ++line)
    std::ofstream(text, std::ios::app) << (line % 3 ? "what a day\n" : "= A title =\n");
  const auto train = [&](const std::string& name, const std::string& scheme) {
    (void)done("train lm " + text +
               " --length 8 --dim 8 --layers 2 --heads 2 --steps 2 --batch 2 --evaluate-to 1 "
               "--evaluation-windows 1 --last 4 --validation-windows 1 --quiet --scheme '" +
               scheme + "' --out " + scratch / name);
    return scratch / name;
  };
  const std::string dape = train("dape", "dape(kerple, width=3)"), cope = train("cope", "cope(p_max=4)"),
                    cdape = train("cdape", "cdape(alibi, width=3)");
  struct Case {
    std::string figure, run, network;
    index_t layer;
    std::int64_t skip;
  };
  // Longer than the training.
  for (const Case& each :
      std::vector<Case>{{"dape/1 layer=1", dape, "mlp_bias", 1, 0}, {"dape/10", dape, "mlp_bias", 0, 20},
          {"dape-v2/8", cdape, "conv_bias", 0, 0}, {"dape-v2/18", cdape, "conv_bias", 1, 20}}) {
    CAPTURE(each.figure);
    SubjectOptions options{.run = each.run, .text = text, .length = 20, .dtype = DType::f64};
    const std::string svg = figure_svg(each.figure, options);
    CHECK(fault_of(svg) == "");
    const auto curves = curves_of(svg);
    REQUIRE(curves.size() == 6);  // S, B, f; two heads
    options.skip = each.skip;
    const Subject subject = subject_of(options);
    const Inspection inspection(subject);
    const std::string inside = to_text("blocks.", each.layer, ".attention.");
    std::size_t next = 0;
    for (const std::string& name :
        {std::string("scores"), std::string("position.base.bias"), "position." + each.network})
      for (const index_t head : {0, 1})
        check_curve(curves[next++], last_row(named(inspection.quantities(), inside + name), head));
  }

  SubjectOptions options{.run = cope, .text = text, .length = 40, .dtype = DType::f64};
  const Subject subject = subject_of(options);
  const Inspection inspection(subject);
  for (const bool gates : {true, false}) {
    const std::string svg = figure_svg(gates ? "cope/6" : "cope/4 layer=1 head=1", options);
    CHECK(fault_of(svg) == "");
    const std::vector<Cells> maps = cells_of(svg);
    REQUIRE(maps.size() == (gates ? 4 : 1));
    const std::string path = gates ? "gates" : "position_logit";
    const Tensor& values = named(inspection.quantities(), "blocks.1.attention.position." + path).value;
    REQUIRE(maps.back().size() == 820);
    for (std::size_t i = 0; i < 40; ++i) {
      const auto value = [&](std::size_t j) { return values.at({0, 1, std::int64_t(i), std::int64_t(j)}); };
      double most = value(0);
      for (std::size_t j = 0; j <= i; ++j) most = std::max(most, value(j));
      for (std::size_t j = 0; j <= i; ++j) {
        const double weight = gates ? value(j) : std::exp(value(j) - most);
        int stop = -1;
        REQUIRE(std::sscanf(maps.back().at({i, j}).c_str(), "<path class=\"s%d\"", &stop) == 1);
        CHECK(std::abs(stop - (report::heat_colours - 1) * weight) <= 0.5 + 1e-9);
      }
    }
    const auto lines = static_cast<std::ptrdiff_t>(std::ranges::count(subject.texts, "\n"));
    CHECK(lines == 3);
    CHECK(has(svg, "newlines (3) and section titles (1)"));
    CHECK(std::ranges::count(paths_with(svg, "class=\"plus\"").at(0).second, 'M') == 4);  // the second title is cut off
  }

  const auto refused = [&](const std::string& figure, const std::string& run, std::int64_t length) {
    return error_text([&] { (void)figure_svg(figure, {.run = run, .text = text, .length = length}); });
  };
  for (const auto& refusal : std::vector<std::pair<std::string, std::string>>{
           {refused("dape/6", dape, 8), "\"dape/6\" given; one of these required"},
           {refused("dape/6", dape, 8), "cope/4 "},
           {refused("dape/7", dape, 0), "--figure dape/7: 512 tokens asked for; " + text + " has 135"},
           {refused("dape/10", dape, 100), "100 tokens from token 100 on asked for; " + text + " has 35"},
           {refused("dape/7", cope, 8),
               "has no network f over scores; a run with one of these schemes required: cdape, dape"},
           {refused("cope/6", dape, 8), "has no gates; a run with one of these schemes required: cope, "},
           {refused("cope/4 layer=2", cope, 8), "\"layer=2\" given; 0 to 1 required"},
           {refused("cope/4 head", cope, 8), "\"head\" given behind the name"},
           {refused("cope/4", "alibi", 0), "alibi"}}) {
    CHECK_MESSAGE(has(refusal.first, refusal.second), refusal.first);
  }
}

TEST_CASE("look figures: the command") {
  const Scratch scratch("pictures");
  CHECK(has(done("look --figure list").out, "dape-v2/25"));
  (void)done("look dape(kerple) --length 30 --figure dape/1 --out " + scratch / "a.svg");
  CHECK(fault_of(text_of(scratch / "a.svg")) == "");
}
