#include "examples/whence/lab/figures.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/report/table.h"
#include "tensor/error.h"

namespace whence {
namespace {

constexpr std::size_t readable = 10;  // curves in one plot

struct Kind {
  const char* file;
  const char* title;
  std::vector<LossPoint> GridCell::*points;
};
constexpr Kind kinds[] = {
    {"curves", "Training loss", &GridCell::curve}, {"validation", "Validation loss", &GridCell::validation}};

// The mean over seeds wherever all of them have a point.
report::Curve curve_of(const Group& group, const Kind& kind, bool by_sequences) {
  std::map<std::int64_t, std::vector<double>> at;
  std::size_t runs = 0;
  for (const GridCell* cell : group.cells) {
    if (!cell->failure.empty()) continue;
    ++runs;
    for (const LossPoint& point : cell->*kind.points)
      at[point.step * (by_sequences ? cell->sequences : 1)].push_back(point.loss);
  }
  report::Curve curve{.name = group.label, .x = {}, .y = {}};
  for (const auto& [x, losses] : at) {
    if (losses.size() != runs) continue;
    curve.x.push_back(static_cast<double>(x)), curve.y.push_back(summary(losses).mean);
  }
  return curve;
}

// Too many curves for one plot: one for each scheme of --schemes.
std::vector<std::pair<std::string, std::vector<const Group*>>> plots_of(const std::vector<Group>& groups) {
  std::vector<std::pair<std::string, std::vector<const Group*>>> plots;
  for (const Group& group : groups) {
    const std::string part = groups.size() <= readable ? "" : group.place.at("scheme");
    auto plot = std::ranges::find(plots, part, &std::pair<std::string, std::vector<const Group*>>::first);
    if (plot == plots.end()) plot = plots.insert(plots.end(), {part, {}});
    plot->second.push_back(&group);
  }
  return plots;
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

// An axis as numbers: where each value stands, and what the axis is marked with.
struct Scale {
  std::map<std::string, double> at;
  std::vector<report::Tick> ticks;
};

std::optional<double> number_of(const std::string& value) {
  return parse_number<double>(value.starts_with("length ") ? value.substr(7) : value);
}

// Values that double from one to the next stand at equal distances.
std::optional<Scale> scale_of(const std::vector<std::string>& values) {
  Scale scale;
  double least = INFINITY, most = -INFINITY;
  for (const std::string& value : values) {
    const auto number = number_of(value);
    if (!number) continue;
    least = std::min(least, *number), most = std::max(most, *number);
    scale.at[value] = *number;
  }
  if (scale.at.size() < 2) return std::nullopt;
  const bool doubling = least > 0 && most >= 8 * least;
  for (auto& [value, at] : scale.at) {
    if (doubling) at = std::log2(at);
    scale.ticks.push_back({at, value.starts_with("length ") ? value.substr(7) : value});
  }
  std::ranges::sort(scale.ticks, {}, &report::Tick::at);
  return scale;
}

// One curve for all places that agree on every other axis.
class OverAxis {
 public:
  OverAxis(const Outcome& outcome, const std::string& axis, const std::string& label, Scale scale)
      : outcome_(outcome), axis_(axis), scale_(std::move(scale)) {
    plot_.x_label = label, plot_.x_ticks = scale_.ticks;
    plot_.y_label = outcome.measure() + " (bars: s.d. over seeds)";
  }

  void add(const Group& group, const std::string& set, const std::string& value) {
    if (!scale_.at.contains(value)) return;
    const Summary found = summary(outcome_.values(group.cells, set));
    if (std::isnan(found.mean)) return;
    std::string name = group.place.at("scheme");
    for (const std::string& other : outcome_.grid().axes)
      if (other != axis_ && group.place.at(other) != "-") name += to_text(", ", other, " ", group.place.at(other));
    auto curve = std::ranges::find(plot_.curves, name, &report::Curve::name);
    if (curve == plot_.curves.end()) curve = plot_.curves.insert(curve, {.name = name, .x = {}, .y = {}});
    points_[name].push_back({scale_.at.at(value), found});
  }

  // With curves of two points and more only; nothing where there is none.
  std::optional<report::Plot> plot(const std::string& title) {
    plot_.title = title;
    std::erase_if(plot_.curves, [&](const report::Curve& curve) { return points_.at(curve.name).size() < 2; });
    double least = INFINITY, most = 0;
    for (report::Curve& curve : plot_.curves) {
      auto& points = points_.at(curve.name);
      std::ranges::stable_sort(points, {}, &Point::x);
      const bool spread = std::ranges::none_of(points, [](const Point& p) { return std::isnan(p.found.deviation); });
      for (const Point& point : points) {
        curve.x.push_back(point.x), curve.y.push_back(point.found.mean);
        if (spread) curve.error.push_back(point.found.deviation);
        least = std::min(least, point.found.mean), most = std::max(most, point.found.mean);
      }
    }
    if (plot_.curves.empty()) return std::nullopt;
    plot_.log_y = least > 0 && most > 4 * least;  // one that breaks down would press the others together
    return plot_;
  }

 private:
  struct Point {
    double x;
    Summary found;
  };
  const Outcome& outcome_;
  std::string axis_;
  Scale scale_;
  report::Plot plot_;
  std::map<std::string, std::vector<Point>> points_;
};

}  // namespace

std::vector<Figure> learning_curves(const Outcome& outcome) {
  std::vector<Figure> figures;
  const auto& cells = outcome.grid().cells;
  const bool by_sequences =
      std::ranges::any_of(cells, [&](const GridCell& cell) { return cell.sequences != cells[0].sequences; });
  for (const Kind& kind : kinds) {
    for (const auto& [part, groups] : plots_of(outcome.groups())) {
      report::Plot plot{.title = to_text(kind.title, ", ", outcome.grid().task, part.empty() ? "" : ", ", part),
          .x_label = by_sequences ? "sequences seen" : "step",
          .y_label = "cross-entropy, nats",
          .curves = {},
          .log_y = true};
      for (const Group* group : groups) {
        report::Curve curve = curve_of(*group, kind, by_sequences);
        if (!curve.x.empty()) plot.curves.push_back(std::move(curve));
      }
      const std::string name =
          to_text(kind.file, "_", outcome.grid().task, part.empty() ? "" : "_", in_file_name(part));
      if (!plot.curves.empty()) figures.push_back({name, std::move(plot)});
    }
  }
  return figures;
}

std::vector<Figure> figures_over_axes(const Outcome& outcome) {
  std::vector<Figure> figures;
  const Grid& grid = outcome.grid();
  for (const std::string& axis : grid.axes) {
    std::vector<std::string> values;
    for (const Group& group : outcome.groups()) values.push_back(group.place.at(axis));
    const auto scale = scale_of(values);
    if (!scale) continue;
    for (const std::string& set : outcome.rows()) {
      OverAxis over(outcome, axis, axis, *scale);
      for (const Group& group : outcome.groups()) over.add(group, set, group.place.at(axis));
      if (auto plot = over.plot(to_text(grid.task, ", ", set, ", over ", axis)))
        figures.push_back({to_text("over_", axis, "_", grid.task, "_", in_file_name(set)), std::move(*plot)});
    }
  }
  const auto lengths = grid.task == "lm" ? scale_of(outcome.sets()) : std::nullopt;
  if (!lengths) return figures;
  OverAxis over(outcome, "", "length of the text, tokens", *lengths);
  for (const std::string& set : outcome.sets())
    for (const Group& group : outcome.groups()) over.add(group, set, set);
  if (auto plot = over.plot("lm, beyond the training length")) figures.push_back({"over_lengths_lm", std::move(*plot)});
  return figures;
}

Table curve_points(const std::vector<std::string>& axes, const std::vector<Grid>& grids) {
  std::vector<std::string> header{"task"};
  header.insert(header.end(), axes.begin(), axes.end());
  header.insert(header.end(), {"scheme", "seed", "curve", "step", "sequences", "loss"});
  Table table(header);
  for (const Grid& grid : grids) {
    for (const GridCell& cell : grid.cells) {
      for (const Kind& kind : kinds) {
        for (const LossPoint& point : cell.*kind.points) {
          std::vector<std::string> row{grid.task};
          for (const std::string& axis : axes) row.push_back(cell.place.at(axis));
          row.insert(row.end(),
              {cell.scheme, std::to_string(cell.seed), kind.points == &GridCell::curve ? "training" : "validation",
                  std::to_string(point.step), std::to_string(point.step * cell.sequences), exact(point.loss)});
          table.row(std::move(row));
        }
      }
    }
  }
  return table;
}

}  // namespace whence
