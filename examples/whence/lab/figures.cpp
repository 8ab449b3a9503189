// A grid's outcome as figures: what training looked like, and the measure over an axis of numbers.
#include <cmath>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/lab/findings.h"
#include "tensor/error.h"

namespace whence {
namespace {

// ---- Learning curves

struct Kind {
  const char* file;
  const char* title;
  std::vector<LossPoint> RunFigures::*points;
};
constexpr Kind kinds[] = {
    {"curves", "Training loss", &RunFigures::curve}, {"validation", "Validation loss", &RunFigures::validation}};

// The mean over seeds wherever all of them have a point.
report::Curve curve_of(const Group& group, const Kind& kind, bool by_sequences) {
  std::map<std::int64_t, std::vector<double>> at;
  std::size_t runs = 0;
  for (const GridCell* cell : group.cells) {
    if (!cell->failure.empty()) continue;
    ++runs;
    for (const LossPoint& point : cell->figures.*kind.points)
      at[point.step * (by_sequences ? cell->sequences : 1)].push_back(point.loss);
  }
  report::Curve curve{.name = group.first().name, .x = {}, .y = {}};
  for (const auto& [x, losses] : at) {
    if (losses.size() != runs) continue;
    curve.x.push_back(static_cast<double>(x)), curve.y.push_back(summary(losses).mean);
  }
  return curve;
}

// Letters, digits, dots and underscores of a text.
std::string in_file_name(const std::string& text) {
  std::string name;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '.')
      name += c;
    else if (!name.empty() && name.back() != '_')
      name += '_';
  while (!name.empty() && name.back() == '_') name.pop_back();
  return name;
}

// ---- Over an axis

// An axis as numbers: where each value stands, and what the axis is marked with.
struct Scale {
  std::map<std::string, double> at;
  std::vector<report::Tick> ticks;
};

// Values that double from one to the next stand at equal distances.
std::optional<Scale> scale_of(const std::vector<std::string>& values) {
  Scale scale;
  double least = INFINITY, most = -INFINITY;
  const auto digits_of = [](const std::string& value) { return value.substr(value.starts_with("length ") ? 7 : 0); };
  for (const std::string& value : values) {
    const auto number = parse_number<double>(digits_of(value));
    if (!number) continue;
    least = std::min(least, *number), most = std::max(most, *number);
    scale.at[value] = *number;
  }
  if (scale.at.size() < 2) return std::nullopt;
  const bool doubling = least > 0 && most >= 8 * least;
  for (auto& [value, at] : scale.at) {
    if (doubling) at = std::log2(at);
    scale.ticks.push_back({at, digits_of(value)});
  }
  std::ranges::sort(scale.ticks, {}, &report::Tick::at);
  return scale;
}

struct Point {
  std::string curve;
  double x;
  Summary found;
};

// "cope, dim 64": its place, but on the axis.
std::string curve_name(const Outcome& outcome, const Group& group, const std::string& axis) {
  std::string name = group.place.at("scheme");
  for (const Axis& other : outcome.grid.axes)
    if (other.name != axis && group.place.at(other.name) != "-")
      name += to_text(", ", other.name, " ", group.place.at(other.name));
  return name;
}

void add_point(std::vector<Point>& points, const Outcome& outcome, const Group& group, const std::string& set,
    const std::string& axis, const Scale& scale, const std::string& value) {
  const Summary found = summary(outcome.values(group.cells, set));
  if (scale.at.contains(value) && !std::isnan(found.mean))
    points.push_back({curve_name(outcome, group, axis), scale.at.at(value), found});
}

// Adds a figure with the curves of two points and more; none where there are none.
void add_figure(std::vector<Figure>& figures, Figure figure, const Outcome& outcome, const Scale& scale,
    const std::vector<Point>& points) {
  report::Plot& plot = figure.plot;
  plot.y_label = outcome.measure + " (bars: s.d. over seeds)";
  plot.x_ticks = scale.ticks;
  double least = INFINITY, most = 0;
  for (auto& [curve_name, of_curve] : parts_by(points, &Point::curve)) {
    if (of_curve.size() < 2) continue;
    report::Curve& curve = plot.curves.emplace_back(report::Curve{.name = curve_name, .x = {}, .y = {}});
    std::ranges::stable_sort(of_curve, {}, &Point::x);
    const bool spread = std::ranges::none_of(of_curve, [](const Point* p) { return std::isnan(p->found.deviation); });
    for (const Point* point : of_curve) {
      curve.x.push_back(point->x), curve.y.push_back(point->found.mean);
      if (spread) curve.error.push_back(point->found.deviation);
      least = std::min(least, point->found.mean), most = std::max(most, point->found.mean);
    }
  }
  plot.log_y = least > 0 && most > 4 * least;  // one that breaks down would press the others together
  if (!plot.curves.empty()) figures.push_back(std::move(figure));
}

}  // namespace

std::vector<Figure> learning_curves(const Outcome& outcome) {
  constexpr std::size_t readable = 10;  // curves in one plot; of more, one plot for each scheme of --schemes
  std::vector<Figure> figures;
  const auto& cells = outcome.grid.cells;
  const bool by_sequences =
      std::ranges::any_of(cells, [&](const GridCell& cell) { return cell.sequences != cells[0].sequences; });
  const bool one_plot = outcome.groups.size() <= readable;
  const auto part_of = [&](const Group& group) { return one_plot ? std::string() : group.place.at("scheme"); };
  for (const Kind& kind : kinds) {
    for (const auto& [part, groups] : parts_by(outcome.groups, part_of)) {
      report::Plot plot{.title = to_text(kind.title, ", ", outcome.grid.task, part.empty() ? "" : ", ", part),
          .x_label = by_sequences ? "sequences seen" : "step",
          .y_label = "cross-entropy, nats",
          .curves = {},
          .log_y = true};
      for (const Group* group : groups) {
        report::Curve curve = curve_of(*group, kind, by_sequences);
        if (!curve.x.empty()) plot.curves.push_back(std::move(curve));
      }
      const std::string name = to_text(kind.file, "_", outcome.grid.task, part.empty() ? "" : "_", in_file_name(part));
      if (!plot.curves.empty()) figures.push_back({name, std::move(plot)});
    }
  }
  return figures;
}

std::vector<Figure> figures_over_axes(const Outcome& outcome) {
  std::vector<Figure> figures;
  const std::string& task = outcome.grid.task;
  for (const Axis& axis : outcome.grid.axes) {
    const auto scale = scale_of(axis.values);
    if (!scale) continue;
    for (const std::string& set : outcome.rows) {
      std::vector<Point> points;
      for (const Group& group : outcome.groups)
        add_point(points, outcome, group, set, axis.name, *scale, group.place.at(axis.name));
      const std::string name = to_text("over_", axis.name, "_", task, "_", in_file_name(set)),
                        title = to_text(task, ", ", set, ", over ", axis.name);
      add_figure(figures, {name, {title, axis.name, "", {}}}, outcome, *scale, points);
    }
  }
  const auto lengths = task == "lm" ? scale_of(outcome.sets) : std::nullopt;
  if (!lengths) return figures;
  std::vector<Point> points;
  for (const std::string& set : outcome.sets)
    for (const Group& group : outcome.groups) add_point(points, outcome, group, set, "", *lengths, set);
  const report::Plot plot{"lm, beyond the training length", "length of the text, tokens", "", {}};
  add_figure(figures, {"over_lengths_lm", plot}, outcome, *lengths, points);
  return figures;
}

}  // namespace whence
