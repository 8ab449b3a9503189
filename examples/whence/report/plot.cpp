#include "examples/whence/report/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string_view>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/report/assets.h"
#include "examples/whence/report/encode.h"
#include "examples/whence/report/svg.h"
#include "tensor/error.h"

namespace whence::report {
namespace {

constexpr double width = 680, height = 330, left = 64, top = 14, bottom = 46;

// One axis: data range [low, high] (of log10 where logarithmic) onto pixels [start, end].
struct Axis {
  double low = 0, high = 1, start = 0, end = 1;
  bool logarithmic = false;
  std::vector<Tick> ticks;

  [[nodiscard]] double scaled(double value) const { return logarithmic ? std::log10(value) : value; }
  [[nodiscard]] double pixel(double value) const {
    return start + (scaled(value) - low) / (high - low) * (end - start);
  }
  [[nodiscard]] bool shows(double value) const { return std::isfinite(value) && (!logarithmic || value > 0); }
};

// Steps of 1, 2 or 5 times a power of ten, about `count` of them over [low, high].
double round_step(double span, int count) {
  const double raw = span / count, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power * 1.0001) return factor * power;
  return 10 * power;
}

void add_tick(Axis& axis, double at) { axis.ticks.push_back({at, digits(at, 6)}); }

// Where asked for, widens the axis to whole steps, so that curves do not touch its ends.
void linear_ticks(Axis& axis, bool widen) {
  const double step = round_step(axis.high - axis.low, 5);
  if (widen) {
    axis.low = std::floor(axis.low / step + 1e-9) * step;
    axis.high = std::ceil(axis.high / step - 1e-9) * step;
  }
  const double first = std::ceil(axis.low / step - 1e-9);
  for (double k = first; k * step <= axis.high + 1e-9 * step; ++k) add_tick(axis, k == 0 ? 0 : k * step);
}

// Whole decades; where they are few also 2 and 5 of each, where they are many only every n-th. Less than one decade has
// nothing of the kind to mark: round numbers, as on a linear axis.
void logarithmic_ticks(Axis& axis) {
  if (const double span = axis.high - axis.low; span < 1) {
    axis.low -= 0.05 * span, axis.high += 0.05 * span;
    Axis values{.low = std::pow(10, axis.low), .high = std::pow(10, axis.high), .ticks = {}};
    linear_ticks(values, false);
    axis.ticks = values.ticks;
    return;
  }
  axis.low = std::floor(axis.low * 4) / 4;
  axis.high = std::ceil(axis.high * 4) / 4;
  const double decades = axis.high - axis.low;
  const double every = std::max(1.0, std::ceil(decades / 6));
  for (double power = std::floor(axis.low); power <= axis.high; power += every) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double at = power + std::log10(factor);
      const bool wanted = factor == 1.0 || decades < 2.5;
      if (wanted && at >= axis.low - 1e-9 && at <= axis.high + 1e-9) add_tick(axis, factor * std::pow(10, power));
    }
  }
}

Axis make_axis(const Plot& plot, bool vertical, double start, double end) {
  Axis axis{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), start, end,
      vertical && plot.log_y, {}};
  for (const Curve& curve : plot.curves) {
    const std::vector<double>& values = vertical ? curve.y : curve.x;
    for (std::size_t k = 0; k < values.size(); ++k) {
      const double error = vertical && !curve.error.empty() ? curve.error[k] : 0;
      for (const double value : {values[k], values[k] - error, values[k] + error}) {
        if (!axis.shows(value)) continue;
        axis.low = std::min(axis.low, axis.scaled(value));
        axis.high = std::max(axis.high, axis.scaled(value));
      }
    }
  }
  if (axis.low > axis.high) axis.low = 0, axis.high = 1;  // nothing to show
  // A quantity that is never negative is read against zero unless that would squash it.
  if (vertical && !axis.logarithmic && axis.low > 0 && axis.low < 0.5 * axis.high) axis.low = 0;
  if (axis.high - axis.low < 1e-12 * std::max(1.0, std::abs(axis.high))) {  // one number: from 0, or around it
    if (vertical && !axis.logarithmic && axis.low >= 0)
      axis.low = 0, axis.high = axis.high > 0 ? axis.high : 1;
    else
      axis.low -= 0.5, axis.high += 0.5;
  }
  if (axis.logarithmic)
    logarithmic_ticks(axis);
  else
    linear_ticks(axis, vertical);
  if (!vertical && !plot.x_ticks.empty()) {
    axis.ticks = plot.x_ticks;
    std::erase_if(axis.ticks, [&](const Tick& tick) { return tick.at < axis.low || tick.at > axis.high; });
  }
  return axis;
}

std::string pair(double x, double y) { return digits(x, 5) + " " + digits(y, 5); }

// Grid lines only for y: values are read off there, steps are not.
std::string axes(const Plot& plot, const Axis& x, const Axis& y) {
  std::string out;
  for (const Tick& tick : y.ticks) {
    out += svg_line("grid", x.start, y.pixel(tick.at), x.end, y.pixel(tick.at));
    out += svg_text("tick end", x.start - 8, y.pixel(tick.at) + 4, tick.label);
  }
  for (const Tick& tick : x.ticks) {
    out += svg_line("axis", x.pixel(tick.at), y.start, x.pixel(tick.at), y.start + 5);
    out += svg_text("tick middle", x.pixel(tick.at), y.start + 19, tick.label);
  }
  out += svg_line("axis", x.start, y.start, x.end, y.start);
  out += svg_text("label middle", (x.start + x.end) / 2, height - 6, plot.x_label);
  const double middle = (y.start + y.end) / 2;
  const double room = y.start - y.end;  // a longer label is set narrower
  out += svg_text("label middle", 14, middle, plot.y_label,
      to_text(" transform=\"rotate(-90 14 ", digits(middle), ")\"",
          6.3 * static_cast<double>(plot.y_label.size()) > room
              ? to_text(" textLength=\"", digits(room), "\" lengthAdjust=\"spacingAndGlyphs\"")
              : ""));
  return out;
}

// Where there are more points than columns of the drawing, a column keeps its first, lowest, highest and last one: the
// same ink, and no extreme is lost.
struct Thinned {
  double x, y;
  bool starts;  // a gap stands before it
};
std::vector<Thinned> thinned(const Curve& curve, const Axis& x, const Axis& y) {
  std::vector<Thinned> kept, column;
  const auto take_column = [&] {
    if (column.empty()) return;
    const auto [low, high] =
        std::ranges::minmax_element(column, [](const Thinned& a, const Thinned& b) { return a.y < b.y; });
    for (auto point = column.begin(); point != column.end(); ++point)
      if (point == column.begin() || point == low || point == high || point + 1 == column.end()) kept.push_back(*point);
    column.clear();
  };
  bool starts = true;
  for (std::size_t k = 0; k < curve.x.size(); ++k) {
    if (!x.shows(curve.x[k]) || !y.shows(curve.y[k])) {
      starts = true;
      continue;
    }
    const Thinned point{x.pixel(curve.x[k]), y.pixel(curve.y[k]), starts};
    if (starts || std::floor(point.x) != std::floor(column.front().x)) take_column();
    column.push_back(point);
    starts = false;
  }
  take_column();
  return kept;
}

// ---- Colours and dashes: a scheme looks alike on every page, whatever else is there. examples/experiments/lab.py has the
// same rule.

struct Look {
  std::size_t colour, dash;
  bool operator==(const Look&) const = default;
};
constexpr std::size_t colours = 7, dashes = 6;

constexpr std::string_view known_schemes[] = {"cope", "rope", "absolute", "alibi", "dape", "cdape", "kerple", "none",
    "fire", "forgetting", "stick_breaking", "path", "t5", "mta", "shaw", "relative", "transformer_xl", "sinusoidal",
    "xpos", "yarn", "cable", "carope", "repo", "selective_rope", "pope", "cope_mlp", "cope_alibi", "sandwich", "window",
    "interpolated", "randomised", "shifted", "layers", "ssmax", "sink", "gated_output", "hard_attention", "qk_norm"};

// The first name's place among the known ones decides, the bytes behind it the dash: "cope", "cope(p_max=8)". Other
// curves look as their number says. Of two that would look alike the later one has the next dash.
std::vector<Look> looks_of(const std::vector<Curve>& curves) {
  std::vector<Look> looks;
  for (std::size_t index = 0; index < curves.size(); ++index) {
    const std::string& name = curves[index].name;
    const std::size_t end = std::min(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), name.size());
    const auto* const known = std::ranges::find(known_schemes, std::string_view(name).substr(0, end));
    std::size_t number = index, rest = 0;
    if (known != std::end(known_schemes)) {
      number = static_cast<std::size_t>(known - std::begin(known_schemes));
      for (const char c : name.substr(end)) rest += static_cast<unsigned char>(c);
    }
    Look look{number % colours, (number + rest) % dashes};
    for (std::size_t k = 0; k < dashes && std::ranges::count(looks, look) > 0; ++k)
      look.dash = (look.dash + 1) % dashes;
    looks.push_back(look);
  }
  return looks;
}

std::string class_of(const Look& look) { return to_text("curve c", look.colour, " d", look.dash); }

std::string path(const Curve& curve, const Look& look, const Axis& x, const Axis& y) {
  std::string points;
  for (const Thinned& point : thinned(curve, x, y)) points += (point.starts ? "M" : "L") + pair(point.x, point.y);
  const char* const dense =
      static_cast<double>(curve.x.size()) > width ? " dense" : "";  // thinner, so that others show behind it
  return to_text("<path class=\"", class_of(look), dense, "\" d=\"", points, "\"/>");
}

// From y - error to y + error at every shown point, with a cap at either end.
std::string whiskers(const Curve& curve, const Look& look, const Axis& x, const Axis& y) {
  std::string bars;
  for (std::size_t k = 0; k < curve.error.size(); ++k) {
    if (!x.shows(curve.x[k]) || !y.shows(curve.y[k]) || !(curve.error[k] > 0)) continue;
    const auto height_of = [&](double value) { return y.shows(value) ? y.pixel(value) : y.start; };
    const double middle = x.pixel(curve.x[k]);
    for (const double end : {height_of(curve.y[k] - curve.error[k]), height_of(curve.y[k] + curve.error[k])})
      bars += "M" + pair(middle, y.pixel(curve.y[k])) + "V" + digits(end, 5) + "m-3 0h6";
  }
  return bars.empty() ? "" : to_text("<path class=\"whisker c", look.colour, "\" d=\"", bars, "\"/>");
}

struct EndLabel {
  std::size_t index = 0;  // of the curve
  double x = 0, y = 0;    // where the curve ends
  double at = 0;          // where its label stands
  std::string content;
};

// The last shown point of every curve that has one.
std::vector<EndLabel> end_labels(const Plot& plot, const Axis& x, const Axis& y) {
  std::vector<EndLabel> labels;
  for (std::size_t index = 0; index < plot.curves.size(); ++index) {
    const Curve& curve = plot.curves[index];
    for (std::size_t k = curve.x.size(); k-- > 0;) {
      if (!x.shows(curve.x[k]) || !y.shows(curve.y[k])) continue;
      const double down = y.pixel(curve.y[k]);
      labels.push_back({index, x.pixel(curve.x[k]), down, down, curve.name + "  " + digits(curve.y[k], 3)});
      break;
    }
  }
  return labels;
}

// Moves labels apart to at least one line height: down the list pushing down, then back up from the lower edge.
void spread(std::vector<EndLabel>& labels, double lower_edge) {
  const double line_height =
      std::min(17.0, (lower_edge - top) / static_cast<double>(std::max<std::size_t>(1, labels.size())));
  std::stable_sort(labels.begin(), labels.end(), [](const EndLabel& a, const EndLabel& b) { return a.y < b.y; });
  for (std::size_t k = 1; k < labels.size(); ++k) labels[k].at = std::max(labels[k].at, labels[k - 1].at + line_height);
  double limit = lower_edge;
  for (std::size_t k = labels.size(); k-- > 0; limit -= line_height) {
    labels[k].at = std::min(labels[k].at, limit);
    limit = labels[k].at;
  }
}

// A thin leader from the curve's end to a sample of its dashes, then its name and last value.
std::string drawn(const EndLabel& label, const Look& look, double edge) {
  return svg_line("leader", label.x + 2, label.y, edge + 14, label.at) +
         svg_line(class_of(look), edge + 16, label.at, edge + 46, label.at) +
         svg_text("name", edge + 51, label.at + 4, label.content, " xml:space=\"preserve\"");
}

struct Drawing {
  std::string spoken, body;  // what is read out, and SVG

  [[nodiscard]] std::string tag(std::string_view first) const {
    return to_text("<svg", first, " class=\"plot\" role=\"img\" viewBox=\"0 0 ", digits(width), ' ', digits(height),
        "\" aria-label=\"", escape(spoken), "\">");
  }
};

Drawing drawing_of(const Plot& plot) {
  std::size_t longest = 0;
  for (const Curve& curve : plot.curves) {
    if (curve.x.size() != curve.y.size() || (!curve.error.empty() && curve.error.size() != curve.y.size()))
      throw Error("report: plot '", plot.title, "': curve '", curve.name, "' has ", curve.x.size(), " x, ",
          curve.y.size(), " y and ", curve.error.size(), " errors; they must be equally many, or no errors");
    longest = std::max(longest, curve.name.size() + 8);
  }
  const double right = 60 + 6.6 * static_cast<double>(std::min<std::size_t>(longest, 34));
  const Axis x = make_axis(plot, false, left, width - right), y = make_axis(plot, true, height - bottom, top);
  std::vector<EndLabel> labels = end_labels(plot, x, y);
  Drawing drawing{plot.title + ": " + plot.y_label + " over " + plot.x_label + "; last values: ", axes(plot, x, y)};
  for (const EndLabel& label : labels) drawing.spoken += label.content + "; ";
  spread(labels, height - bottom);
  const std::vector<Look> looks = looks_of(plot.curves);
  for (std::size_t index = 0; index < plot.curves.size(); ++index)
    drawing.body += path(plot.curves[index], looks[index], x, y) + whiskers(plot.curves[index], looks[index], x, y);
  for (const EndLabel& label : labels) drawing.body += drawn(label, looks[label.index], width - right);
  return drawing;
}

}  // namespace

std::string svg(const Plot& plot) {
  const Drawing drawing = drawing_of(plot);
  return drawing.tag("") + drawing.body + "</svg>\n";
}

std::string plots_html(const std::vector<Plot>& plots) {
  std::string out = "<div class=\"plots\">\n";
  for (const Plot& plot : plots) out += "<figure><h3>" + escape(plot.title) + "</h3>\n" + svg(plot) + "</figure>\n";
  return plots.empty() ? "" : out + "</div>\n";
}

std::string svg_file(const Plot& plot) {
  const Drawing drawing = drawing_of(plot);
  return to_text(drawing.tag(" xmlns=\"http://www.w3.org/2000/svg\""), "<style><![CDATA[", picture_style,
      "svg { background: var(--page); }]]></style>", drawing.body, "</svg>\n");
}

std::string svg_file(
    const std::string& title, const std::string& note, const std::vector<Plot>& plots, std::size_t across) {
  constexpr double gap = 24, head = 20;
  const std::size_t columns = std::min(across, std::max<std::size_t>(1, plots.size()));
  Picture picture{.width = static_cast<double>(columns) * (width + gap) - gap + 16,
      .title = title,
      .description = note,
      .body = ""};
  const SvgLines over = svg_lines("title", 8, 20, title, picture.width - 16),
                 lines = svg_lines("soft", 8, 22 + over.height, note, picture.width - 16);
  picture.body = over.body + lines.body;
  const double begin = 24 + over.height + lines.height;
  for (std::size_t k = 0; k < plots.size(); ++k) {
    const Drawing drawing = drawing_of(plots[k]);
    picture.body += to_text("<g role=\"img\" transform=\"translate(",
        digits(8 + static_cast<double>(k % columns) * (width + gap), 6), " ",
        digits(begin + static_cast<double>(k / columns) * (height + head + gap), 6), ")\" aria-label=\"",
        escape(drawing.spoken), "\">", svg_text("title", left, 12, plots[k].title), "<g transform=\"translate(0 ", head,
        ")\">", drawing.body, "</g></g>\n");
  }
  picture.height = begin + static_cast<double>((plots.size() + columns - 1) / columns) * (height + head + gap);
  return svg_file(picture);
}

}  // namespace whence::report
