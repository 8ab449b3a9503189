#include "examples/whence/report/heat_map.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/report/colours.h"
#include "examples/whence/report/encode.h"
#include "examples/whence/report/svg.h"
#include "tensor/error.h"

namespace whence::report {
namespace {

constexpr int no_number = heat_colours;

std::string class_of(int stop) { return stop == no_number ? "nan" : to_text('s', stop); }

std::string style() {
  std::string css;
  for (int stop = 0; stop < heat_colours; ++stop) {
    const double t = stop / (heat_colours - 1.0);
    css += to_text('.', class_of(stop), "{fill:#", colour_of(Scale::sequential, t), '}');
  }
  return css +
         "\n.nan{fill:#ff00c8} .frame{fill:none;stroke:var(--soft)} "
         ".plus{fill:none;stroke:var(--ink);stroke-width:1.4}\n"
         ".under{fill:none;stroke:var(--page);stroke-width:3.4} .at{fill:var(--soft);font-size:9px}\n";
}

// A tile of 8 by 8 that keeps its size where cells are enlarged by `cell`.
std::string hatching(double cell) {
  return to_text(
      "<defs><pattern id=\"masked\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"scale(",
      digits(1 / cell, 6),
      ")\"><path style=\"fill:var(--masked)\" d=\"M0 0h8v8h-8z\"/><path style=\"stroke:var(--hatch)\" "
      "d=\"M0 8L8 0M-2 2L2 -2M6 10L10 6\"/></pattern></defs>\n");
}

// ---- Cells

int stop_of(double value) {
  return std::isnan(value) ? no_number
                           : static_cast<int>(std::lround((heat_colours - 1) * std::clamp(value, 0.0, 1.0)));
}

// A path for each colour of horizontal runs, in units of cells: "M3 5h4v1h-4z" is columns 3 to 6 of row 5. Behind them
// lies the hatching, which shows where a cell is hidden.
std::string cells_of(const HeatMap& map) {
  std::map<int, std::string> paths;
  for (std::size_t row = 0; row < map.tokens; ++row) {
    const std::size_t end = map.causal ? row + 1 : map.tokens;
    for (std::size_t begin = 0, column = 0; begin < end; begin = column) {
      const auto stop_at = [&](std::size_t at) { return stop_of(map.values[row * map.tokens + at]); };
      const int stop = stop_at(begin);
      while (column < end && stop_at(column) == stop) ++column;
      const std::size_t length = column - begin;
      paths[stop] += to_text('M', begin, ' ', row, 'h', length, "v1h-", length, 'z');
    }
  }
  std::string body;
  for (const auto& [stop, path] : paths) body += to_text("<path class=\"", class_of(stop), "\" d=\"", path, "\"/>\n");
  return body;
}

// ---- Axes

// 1, 2, 5, 10, ...: so many cells that labels of `size` do not touch.
std::size_t label_step(double cell, double size) {
  for (std::size_t power = 1;; power *= 10)
    for (const std::size_t factor : {1u, 2u, 5u})
      if (static_cast<double>(factor * power) * cell >= size) return factor * power;
}

constexpr double left = 44, top = 30;  // of a map's axes

// A map with its axes, its upper left corner at 0 0.
std::string panel_of(const HeatMap& map, double cell) {
  const double side = cell * static_cast<double>(map.tokens);
  std::string panel = svg_text("soft", left, 11, "key j \u2192");
  panel += svg_text(
      "soft end", 0, 0, "query i \u2192", to_text(" transform=\"translate(12 ", digits(top, 6), ") rotate(-90)\""));
  const auto middle = [&](std::size_t index) { return (static_cast<double>(index) + 0.5) * cell; };
  for (std::size_t row = 0; row < map.tokens; row += label_step(cell, 11))
    panel += svg_text("at end", left - 4, top + middle(row) + 3.5, std::to_string(row));
  for (std::size_t column = 0; column < map.tokens; column += label_step(cell, 20))
    panel += svg_text("at middle", left + middle(column), top - 4, std::to_string(column));
  panel += to_text("<g transform=\"translate(", digits(left, 6), ' ', digits(top, 6), ") scale(", digits(cell, 6),
      ")\" shape-rendering=\"crispEdges\"><path fill=\"url(#masked)\" d=\"M0 0h", map.tokens, "v", map.tokens, "h-",
      map.tokens, "z\"/>\n", cells_of(map), "</g>\n");
  panel += to_text("<rect class=\"frame\" x=\"", digits(left - 0.5, 6), "\" y=\"", digits(top - 0.5, 6), "\" width=\"",
      digits(side + 1, 6), "\" height=\"", digits(side + 1, 6), "\"/>\n");
  if (!map.marks.empty()) {
    std::string signs;
    const double arm = std::clamp(0.4 * cell, 3.5, 7.0);
    for (const std::size_t mark : map.marks)
      signs += to_text("M", digits(left + middle(mark) - arm, 6), ' ', digits(top + middle(mark), 6), "h",
          digits(2 * arm), "m-", digits(arm), " -", digits(arm), "v", digits(2 * arm));
    panel += to_text("<path class=\"under\" d=\"", signs, "\"/><path class=\"plus\" d=\"", signs, "\"/>\n");
  }
  return panel;
}

constexpr double scale_width = 4 * heat_colours, scale_height = 42;

std::string scale_at(double x, double y) {
  std::string body =
      to_text("<g transform=\"translate(", digits(x, 6), ' ', digits(y, 6), ")\"><g shape-rendering=\"crispEdges\">");
  for (int stop = 0; stop < heat_colours; ++stop)
    body += to_text("<path class=\"", class_of(stop), "\" d=\"M", 4 * stop, " 0h4v10h-4z\"/>");
  body += "</g>";
  for (int k = 0; k <= 4; ++k) {
    const double right = scale_width * k / 4;
    body += svg_line("axis", right, 10, right, 14);
    body += svg_text(k == 0 ? "tick" : k == 4 ? "tick end" : "tick middle", right, 27, digits(0.25 * k, 3));
  }
  return body + "</g>\n";
}

double cell_size(const HeatMap& map, double space) {
  const double cell = space / static_cast<double>(std::max<std::size_t>(1, map.tokens));
  return std::min(cell >= 2 ? std::floor(cell) : cell, 16.0);
}

}  // namespace

std::string svg_file(
    const std::string& title, const std::string& note, const std::vector<HeatMap>& maps, std::size_t across) {
  if (maps.empty()) throw Error("report: '", title, "': no map given; one or more required");
  const std::size_t columns = std::min(across, maps.size());
  const double cell = cell_size(maps[0], maps.size() == 1 ? 720 : 400);
  Picture picture{.title = title, .description = note, .body = ""};
  double side = 0;
  for (const HeatMap& map : maps) {
    if (map.values.size() != map.tokens * map.tokens)
      throw Error("report: map '", map.title, "' of ", map.tokens, " tokens: ", map.values.size(),
          " values given; one for each pair required");
    side = std::max(side, cell * static_cast<double>(map.tokens));
  }
  const double wide = std::max(left + side + 4, 300.0), high = top + side + 4;
  picture.width = static_cast<double>(columns) * (wide + 16) + 4;
  const SvgLines head = svg_lines("title", 10, 20, title, picture.width - 20),
                 below = svg_lines("soft", 10, 22 + head.height, note, picture.width - 20);
  const double begin = 22 + head.height + below.height;
  picture.body = hatching(cell) + head.body + below.body;
  for (std::size_t k = 0; k < maps.size(); ++k)
    picture.body += to_text("<g role=\"img\" aria-label=\"", escape(maps[k].title), "\" transform=\"translate(",
        digits(10 + static_cast<double>(k % columns) * (wide + 16), 6), ' ',
        digits(begin + static_cast<double>(k / columns) * (high + 34), 6), ")\">",
        svg_text("title", 18, 12, maps[k].title), "<g transform=\"translate(0 18)\">", panel_of(maps[k], cell),
        "</g></g>\n");
  const double end = begin + static_cast<double>((maps.size() + columns - 1) / columns) * (high + 34);
  picture.body += scale_at(28, end + 8);
  picture.height = end + 8 + scale_height;
  picture.style = style();
  return svg_file(picture);
}

}  // namespace whence::report
