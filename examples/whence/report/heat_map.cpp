#include "examples/whence/report/heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numbers>

#include "examples/whence/cli/text.h"
#include "examples/whence/report/encode.h"
#include "examples/whence/report/svg.h"
#include "tensor/error.h"

namespace whence::report {
namespace {

using Scale = HeatMap::Scale;
constexpr int no_number = heat_colours, unseen = -1;

// ---- Colours, as in examples/whence/look/viewer/colour.js

std::array<double, 3> linear_rgb(double lightness, double chroma, double hue) {
  const double a = chroma * std::cos(hue * std::numbers::pi / 180), b = chroma * std::sin(hue * std::numbers::pi / 180);
  const double l = std::pow(lightness + 0.3963377774 * a + 0.2158037573 * b, 3),
               m = std::pow(lightness - 0.1055613458 * a - 0.0638541728 * b, 3),
               s = std::pow(lightness - 0.0894841775 * a - 1.2914855480 * b, 3);
  return {4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
      -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s, -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s};
}

// Chroma gives way, never lightness, where the screen cannot show the colour.
std::string srgb(double lightness, double chroma, double hue) {
  std::array<double, 3> rgb = linear_rgb(lightness, chroma, hue);
  const auto outside = [](double part) { return part < -1e-4 || part > 1.0001; };
  while (chroma > 0.002 && std::ranges::any_of(rgb, outside)) {
    chroma -= 0.002;
    rgb = linear_rgb(lightness, chroma, hue);
  }
  std::string text = "#";
  for (const double part : rgb) {
    const double inside = std::clamp(part, 0.0, 1.0);
    const double bright = inside <= 0.0031308 ? 12.92 * inside : 1.055 * std::pow(inside, 1 / 2.4) - 0.055;
    char two[8];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(std::lround(255 * bright)));
    text += two;
  }
  return text;
}

// Violet over teal to yellow; or blue and orange apart from a neutral middle, which is the page's own darkness.
std::string colour(Scale scale, double t, bool dark) {
  if (scale == Scale::sequential) return srgb(0.24 + 0.71 * t, 0.145, 300 - 195 * t);
  const double size = std::abs(2 * t - 1);
  return srgb(dark ? 0.27 + 0.57 * size : 0.975 - 0.43 * size, 0.17 * std::pow(size, 0.9), t < 0.5 ? 255 : 55);
}

// "s12" of the sequential scale, "v12" of the diverging one.
std::string class_of(Scale scale, int index) {
  if (index == no_number) return "nan";
  return to_text(scale == Scale::sequential ? 's' : 'v', index);
}

std::string made_style(Scale scale) {
  std::string light, dark;
  for (int k = 0; k < heat_colours; ++k) {
    const double t = k / (heat_colours - 1.0);
    const std::string name = class_of(scale, k), by_day = colour(scale, t, false), by_night = colour(scale, t, true);
    light += to_text('.', name, "{fill:", by_day, '}');
    if (by_night != by_day) dark += to_text('.', name, "{fill:", by_night, '}');
  }
  return to_text(light, "\n", dark.empty() ? "" : to_text("@media (prefers-color-scheme: dark) {", dark, "}\n"));
}

const std::string& style_of(Scale scale) {
  static const std::string styles[] = {made_style(Scale::sequential), made_style(Scale::diverging)};
  return styles[static_cast<int>(scale)];
}

constexpr const char* common_style =
    ".nan{fill:#ff00c8} .frame{fill:none;stroke:var(--soft)} .plus{fill:none;stroke:var(--ink);stroke-width:1.4}\n"
    ".under{fill:none;stroke:var(--page);stroke-width:3.4} .name{font-family:ui-monospace,\"DejaVu Sans Mono\",Menlo,"
    "Consolas,monospace;font-size:10px} .at{fill:var(--soft);font-size:9px}\n";

// ---- Figures: reasons, and what is hidden, are told apart without their colours too

constexpr std::array figures{"M0 2H8M0 6H8", "M1.5 2H2.5M5.5 6H6.5", "M2 0V8M6 0V8", "M0 0L8 8M-2 6L2 10M6 -2L10 2",
    "M0 4H8M4 0V8", "M2 2H6V6H2Z", "M0 6L4 2L8 6", "M0 0L8 8M8 0L0 8"};

// A tile of 8 by 8 that keeps its size where cells are enlarged by `cell`.
std::string tile(const std::string& id, double cell, const std::string& inside) {
  return to_text("<pattern id=\"", id,
      "\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\" patternTransform=\"scale(", number(1 / cell, 6),
      ")\">", inside, "</pattern>");
}

std::string hatching(const char* id, double cell) {
  return tile(id, cell,
      "<path style=\"fill:var(--masked)\" d=\"M0 0h8v8h-8z\"/><path style=\"stroke:var(--hatch)\" "
      "d=\"M0 8L8 0M-2 2L2 -2M6 10L10 6\"/>");
}

// Of the order-th kind that is not plain.
std::string figure(std::size_t kind, std::size_t order, double cell) {
  const std::string line = to_text("var(--c", order % 6, ")");
  return tile(to_text("k", kind), cell,
      to_text("<path style=\"fill:var(--page)\" d=\"M0 0h8v8h-8z\"/><path style=\"fill:", line,
          ";opacity:.22\" d=\"M0 0h8v8h-8z\"/><path style=\"fill:none;stroke:", line, "\" d=\"",
          figures[order % figures.size()], "\"/>"));
}

// ---- Cells

int stop_of(const HeatMap& map, double value) {
  if (std::isnan(value)) return no_number;
  const double middle = map.scale == Scale::diverging ? 0.5 : 0;
  const double t = map.high > map.low ? (value - map.low) / (map.high - map.low) : middle;
  return static_cast<int>(std::lround((heat_colours - 1) * std::clamp(t, 0.0, 1.0)));
}

bool is_hidden(const HeatMap& map, std::size_t cell) { return !map.hidden.empty() && map.hidden[cell]; }

std::vector<int> classes_of(const HeatMap& map) {
  std::vector<int> classes;
  for (std::size_t cell = 0; cell < map.rows * map.columns; ++cell)
    classes.push_back(is_hidden(map, cell) ? unseen
                      : map.kinds.empty()  ? stop_of(map, map.values[cell])
                                           : static_cast<int>(map.kinds[cell]));
  return classes;
}

void check(const HeatMap& map) {
  const std::size_t cells = map.rows * map.columns;
  const bool fits =
      (map.values.size() == cells && map.kinds.empty()) || (map.kinds.size() == cells && map.values.empty());
  const bool known = std::ranges::all_of(map.kinds, [&](unsigned char kind) { return kind < map.legend.size(); });
  if (!fits || !known || (!map.hidden.empty() && map.hidden.size() != cells))
    throw Error("report: map '", map.title, "' of ", map.rows, " by ", map.columns, " cells: ", map.values.size(),
        " values, ", map.kinds.size(), " kinds of ", map.legend.size(), " and ", map.hidden.size(),
        " hidden given; one value or one kind of the legend for each cell required");
}

// In units of cells; behind it lies the hatching, which shows where a cell is hidden.
std::string cells_of(const HeatMap& map) {
  const std::vector<int> classes = classes_of(map);
  const int count = map.kinds.empty() ? heat_colours + 1 : static_cast<int>(map.legend.size());
  std::string body;
  for (int k = 0; k < count; ++k) {
    const std::string path = runs_of(classes, map.columns, k);
    if (path.empty()) continue;
    const std::string look = map.kinds.empty() ? to_text("class=\"", class_of(map.scale, k), "\"")
                             : map.legend[static_cast<std::size_t>(k)].plain ? std::string("style=\"fill:var(--page)\"")
                                                                             : to_text("fill=\"url(#k", k, ")\"");
    body += to_text("<path ", look, " d=\"", path, "\"/>\n");
  }
  return body;
}

// ---- Axes

constexpr double name_letter = 6.1;  // width of one of 10 pixels
constexpr std::size_t longest_name = 10;

std::string short_name(const std::string& name) {
  const std::string cut = cut_to_width(name, longest_name);
  return cut.size() < name.size() ? cut_to_width(name, longest_name - 1) + "\u2026" : name;
}
double width_of(const std::vector<std::string>& names) {
  std::size_t longest = 0;
  for (const std::string& name : names) longest = std::max(longest, std::min(longest_name, display_width(name)));
  return name_letter * static_cast<double>(longest);
}

// 1, 2, 5, 10, ...: so many cells that labels of `size` do not touch.
std::size_t label_step(double cell, double size) {
  for (std::size_t power = 1;; power *= 10)
    for (const std::size_t factor : {1u, 2u, 5u})
      if (static_cast<double>(factor * power) * cell >= size) return factor * power;
}

struct Panel {
  double width = 0, height = 0;
  std::string body;
};

// A map with its axes, its upper left corner at 0 0. Without names where it is one of many.
Panel panel_of(const HeatMap& map, double cell, bool names) {
  const double wide = cell * static_cast<double>(map.columns), high = cell * static_cast<double>(map.rows);
  const double token_width = names ? width_of(map.row_names) : 0, token_height = names ? width_of(map.column_names) : 0;
  const double left = 18 + 26 + (token_width > 0 ? token_width + 4 : 0),
               top = 16 + 14 + (token_height > 0 ? token_height + 4 : 0);
  Panel panel{left + wide + 4, top + high + 4, ""};
  panel.body += svg_text("soft", left, 11, map.column_label + " \u2192");
  panel.body += svg_text("soft end", 0, 0, map.row_label + " \u2192",
      to_text(" transform=\"translate(12 ", number(top, 6), ") rotate(-90)\""));
  const std::size_t down = label_step(cell, 11), across = label_step(cell, token_height > 0 ? 11 : 20);
  for (std::size_t row = 0; row < map.rows; row += down) {
    const double y = top + (static_cast<double>(row) + 0.5) * cell + 3.5;
    panel.body += svg_text("at end", left - 4 - (token_width > 0 ? token_width + 4 : 0), y, std::to_string(row));
    if (token_width > 0 && row < map.row_names.size())
      panel.body += svg_text("name end", left - 4, y, short_name(map.row_names[row]));
  }
  for (std::size_t column = 0; column < map.columns; column += across) {
    const double x = left + (static_cast<double>(column) + 0.5) * cell;
    if (token_height == 0) {
      panel.body += svg_text("at middle", x, top - 4, std::to_string(column));
      continue;
    }
    const std::string turned =
        to_text(" transform=\"translate(", number(x + 3.5, 6), ' ', number(top - 4, 6), ") rotate(-90)\"");
    if (column < map.column_names.size())
      panel.body += svg_text("name", 0, 0, short_name(map.column_names[column]), turned);
  }
  if (token_height > 0)
    for (std::size_t column = 0, every = label_step(cell, 20); column < map.columns; column += every)
      panel.body +=
          svg_text("at middle", left + (static_cast<double>(column) + 0.5) * cell, 25, std::to_string(column));
  panel.body += to_text("<g transform=\"translate(", number(left, 6), ' ', number(top, 6), ") scale(", number(cell, 6),
      ")\" shape-rendering=\"crispEdges\"><path fill=\"url(#masked)\" d=\"M0 0h", map.columns, "v", map.rows, "h-",
      map.columns, "z\"/>\n", cells_of(map), "</g>\n");
  panel.body += to_text("<rect class=\"frame\" x=\"", number(left - 0.5, 6), "\" y=\"", number(top - 0.5, 6),
      "\" width=\"", number(wide + 1, 6), "\" height=\"", number(high + 1, 6), "\"/>\n");
  if (!map.plus_signs.empty()) {
    std::string signs;
    const double arm = std::clamp(0.4 * cell, 3.5, 7.0);
    for (const auto& [row, column] : map.plus_signs)
      signs += to_text("M", number(left + (static_cast<double>(column) + 0.5) * cell - arm, 6), ' ',
          number(top + (static_cast<double>(row) + 0.5) * cell, 6), "h", number(2 * arm), "m-", number(arm), " -",
          number(arm), "v", number(2 * arm));
    panel.body += to_text("<path class=\"under\" d=\"", signs, "\"/><path class=\"plus\" d=\"", signs, "\"/>\n");
  }
  return panel;
}

// ---- Scale and legend

constexpr double scale_width = 4 * heat_colours, scale_height = 42;

std::string scale_of(const HeatMap& map, double x, double y) {
  std::string body =
      to_text("<g transform=\"translate(", number(x, 6), ' ', number(y, 6), ")\"><g shape-rendering=\"crispEdges\">");
  for (int k = 0; k < heat_colours; ++k)
    body += to_text("<path class=\"", class_of(map.scale, k), "\" d=\"M", 4 * k, " 0h4v10h-4z\"/>");
  body += "</g>";
  const bool wide = number(map.low + (map.high - map.low) / 4, 3).size() > 6;  // labels would touch
  for (int k = 0; k <= 4; k += wide ? 2 : 1) {
    const double at = map.low + (map.high - map.low) * k / 4, right = scale_width * k / 4;
    body += svg_line("axis", right, 10, right, 14);
    body += svg_text(k == 0 ? "tick" : k == 4 ? "tick end" : "tick middle", right, 27, number(at, 3));
  }
  for (const Tick& mark : map.marks) {
    const double right = scale_width * (mark.at - map.low) / (map.high - map.low);
    if (!(right >= 0 && right <= scale_width)) continue;
    body += svg_line("axis", right, -5, right, 14);
    body += svg_text("tick", right + 3, -2, mark.label);
  }
  return body + "</g>\n";
}

// A line for each kind that occurs: its look, its name, how many cells, and what it means.
SvgLines legend_of(const HeatMap& map, double x, double y, double width) {
  std::vector<std::size_t> counts(map.legend.size());
  std::size_t hidden = 0;
  for (std::size_t cell = 0; cell < map.kinds.size(); ++cell)
    is_hidden(map, cell) ? ++hidden : ++counts[map.kinds[cell]];
  SvgLines all;
  const auto swatch = [&](const std::string& fill, const std::string& text) {
    all.body += to_text("<rect class=\"frame\" style=\"fill:", fill, "\" x=\"", number(x, 6), "\" y=\"",
        number(y + all.height, 6), "\" width=\"24\" height=\"24\"/>",
        svg_text("title", x + 34, y + all.height + 11, text));
  };
  for (std::size_t k = 0; k < counts.size(); ++k) {
    if (counts[k] == 0) continue;
    const HeatMap::Kind& kind = map.legend[k];
    swatch(kind.plain ? "var(--page)" : to_text("url(#l", k, ")"), to_text(kind.name, ", ", counts[k], " cells"));
    const SvgLines meaning = svg_lines("soft", x + 34, y + all.height + 27, kind.meaning, width - 34);
    all.body += meaning.body;
    all.height += 22 + std::max(16.0, meaning.height);
  }
  if (hidden > 0) {
    swatch("url(#lmasked)", to_text("masked, ", hidden, " cells"));
    all.height += 38;
  }
  return all;
}

// Tiles of the map's own size, "k...", and of the legend's, "l...".
std::string tiles_of(const HeatMap& map, double cell) {
  std::string all = hatching("lmasked", 1);
  std::size_t order = 0;
  for (std::size_t k = 0; k < map.legend.size(); ++k) {
    if (map.legend[k].plain) continue;
    all += figure(k, order, cell);
    std::string unscaled = figure(k, order++, 1);
    unscaled.replace(unscaled.find("id=\"k"), 5, "id=\"l");
    all += unscaled;
  }
  return all;
}

double cell_size(const HeatMap& map, double space, double largest) {
  const double cell = space / static_cast<double>(std::max<std::size_t>({1, map.rows, map.columns}));
  return std::min(cell >= 2 ? std::floor(cell) : cell, largest);
}

}  // namespace

std::string runs_of(const std::vector<int>& of, std::size_t columns, int wanted) {
  std::string path;
  for (std::size_t cell = 0; cell < of.size();) {
    const std::size_t begin = cell, row_end = begin - begin % columns + columns;
    if (of[cell++] != wanted) continue;
    while (cell < row_end && of[cell] == wanted) ++cell;
    const std::string length = std::to_string(cell - begin);
    path += "M" + std::to_string(begin % columns) + " " + std::to_string(begin / columns) + "h" + length + "v1h-" +
            length + "z";
  }
  return path;
}

std::string svg_file(const HeatMap& map) {
  check(map);
  const double cell = cell_size(map, 640, 24);
  const Panel panel = panel_of(map, cell, true);
  Picture picture{.width = std::max(panel.width, 420.0) + 20, .title = map.title, .body = ""};
  const double inner = picture.width - 20;
  picture.description =
      to_text(map.note, ". ", map.rows, " rows, ", map.row_label, ", by ", map.columns, " columns, ", map.column_label);
  if (map.kinds.empty()) picture.description += to_text("; colours from ", number(map.low), " to ", number(map.high));
  const SvgLines title = svg_lines("title", 10, 20, map.title, inner),
                 note = svg_lines("soft", 10, 22 + title.height, map.note, inner);
  double y = 22 + title.height + note.height;
  picture.body = to_text("<defs>", hatching("masked", cell), map.kinds.empty() ? "" : tiles_of(map, cell), "</defs>\n",
      title.body, note.body, "<g transform=\"translate(10 ", number(y, 6), ")\">", panel.body, "</g>\n");
  y += panel.height + 14;
  if (map.kinds.empty()) {
    picture.body += scale_of(map, 10 + panel.width - 4 - cell * static_cast<double>(map.columns), y);
    y += scale_height;
  } else {
    const SvgLines legend = legend_of(map, 10, y, inner);
    picture.body += legend.body;
    y += legend.height;
  }
  picture.height = y;
  picture.style = to_text(common_style, map.kinds.empty() ? style_of(map.scale) : "");
  return svg_file(picture);
}

std::string svg_file(
    const std::string& title, const std::string& note, const std::vector<HeatMap>& maps, std::size_t across) {
  if (maps.empty()) throw Error("report: '", title, "': no map given; one or more required");
  const std::size_t columns = std::min(across, maps.size());
  const double cell = cell_size(maps[0], maps.size() == 1 ? 720 : 400, 16);
  Picture picture{.title = title, .description = note, .body = ""};
  std::vector<Panel> panels;
  double wide = 0, high = 0;
  for (const HeatMap& map : maps) {
    check(map);
    if (!map.kinds.empty() || map.scale != maps[0].scale || map.low != maps[0].low || map.high != maps[0].high)
      throw Error("report: '", title, "': maps of one file must be of numbers and share one scale");
    panels.push_back(panel_of(map, cell, false));
    wide = std::max({wide, panels.back().width, 300.0}), high = std::max(high, panels.back().height);
  }
  picture.width = static_cast<double>(columns) * (wide + 16) + 4;
  const SvgLines head = svg_lines("title", 10, 20, title, picture.width - 20),
                 below = svg_lines("soft", 10, 22 + head.height, note, picture.width - 20);
  const double begin = 22 + head.height + below.height;
  picture.body = to_text("<defs>", hatching("masked", cell), "</defs>\n", head.body, below.body);
  for (std::size_t k = 0; k < panels.size(); ++k)
    picture.body += to_text("<g role=\"img\" aria-label=\"", escape(maps[k].title), "\" transform=\"translate(",
        number(10 + static_cast<double>(k % columns) * (wide + 16), 6), ' ',
        number(begin + static_cast<double>(k / columns) * (high + 34), 6), ")\">",
        svg_text("title", 18, 12, maps[k].title), "<g transform=\"translate(0 18)\">", panels[k].body, "</g></g>\n");
  const double end = begin + static_cast<double>((panels.size() + columns - 1) / columns) * (high + 34);
  picture.body += scale_of(maps[0], 28, end + 8);
  picture.height = end + 8 + scale_height;
  picture.style = to_text(common_style, style_of(maps[0].scale));
  return svg_file(picture);
}

}  // namespace whence::report
