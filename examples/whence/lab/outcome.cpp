#include "examples/whence/lab/outcome.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/lab/plan.h"
#include "examples/whence/tasks/paper_figures.h"
#include "examples/whence/tasks/task_training.h"
#include "tensor/error.h"

namespace whence {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

std::vector<Group> groups_of(const Grid& grid) {
  std::vector<Group> groups;
  for (const GridCell& cell : grid.cells) {
    std::map<std::string, std::string> place = cell.place;
    place.erase("seed");
    const auto same = std::ranges::find(groups, place, &Group::place);
    if (same != groups.end()) {
      same->cells.push_back(&cell);
      continue;
    }
    Group group{cell.scheme, cell.scheme, place, {&cell}};
    for (const std::string& axis : grid.axes)
      if (axis.find('.') == std::string::npos) group.label += to_text(", ", axis, " ", place.at(axis));
    groups.push_back(std::move(group));
  }
  return groups;
}

// Perplexities of different texts or tokens are not of the same thing.
bool tokens_differ(const Grid& grid) {
  static const std::set<std::string> of_the_text{"tokeniser", "data", "validation-data", "test-data", "field",
      "include", "exclude", "validation", "split-seed", "blank-lines", "separate"};
  return std::ranges::any_of(grid.axes, [](const std::string& axis) { return of_the_text.contains(axis); });
}

// With the options that vary; nothing where those are not beside the defaults of the others: a task that no paper has
// figures for.
std::unique_ptr<tasks::Task> task_at(const std::string& name, const std::map<std::string, std::string>& place) {
  try {
    return task_with(name, {place.begin(), place.end()});
  } catch (const InputError&) { return nullptr; }
}

}  // namespace

std::size_t Group::failed() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(cells, [](const GridCell* cell) { return !cell->failure.empty(); }));
}

Outcome::Outcome(const Grid& grid, const std::string& measure)
    : grid_(grid), measure_(measure), groups_(groups_of(grid)) {
  const bool text = grid.task == "lm";
  if (measure_.empty()) {
    if (text)
      measure_ = tokens_differ(grid) ? "bits per byte" : "perplexity";
    else
      measure_ = tasks::make_task(grid.task)->metric();
  }
  digits_ = measure_ == "perplexity" ? 3 : measure_ == "bits per byte" ? 4 : 2;
  find_sets();
}

void Outcome::find_sets() {
  for (const GridCell& cell : grid_.cells)
    for (const auto& [set, score] : cell.scores)
      if ((grid_.task != "lm" || score.measures.contains(measure_)) && !std::ranges::count(sets_, set))
        sets_.push_back(set);
  if (sets_.empty()) sets_.emplace_back("-");  // all failed
  const auto length = [](const std::string& set) {
    return set.starts_with("length ") ? parse_number<std::int64_t>(set.substr(7)).value_or(0) : 0;
  };
  if (grid_.task == "lm") std::ranges::stable_sort(sets_, {}, length);  // runs of several lengths have each their own
}

std::vector<std::string> Outcome::rows() const {
  // An average of other sets in each run would compare what is not the same.
  const bool same = std::ranges::all_of(
      grid_.cells, [&](const GridCell& cell) { return cell.scores.empty() || cell.scores.size() == sets_.size(); });
  if (grid_.task == "lm" || sets_.size() <= 4 || !same) return sets_;
  return {to_text("average of ", sets_.size(), " sets")};
}

bool Outcome::is_average(const std::string& set) const { return !std::ranges::count(sets_, set); }

double Outcome::value(const GridCell& cell, const std::string& set) const {
  double sum = 0;
  std::size_t count = 0;
  for (const auto& [name, score] : cell.scores) {
    if (!is_average(set) && name != set) continue;
    const auto found = score.measures.find(measure_);
    sum += found == score.measures.end() ? nothing : found->second;
    ++count;
  }
  return count == 0 ? nothing : sum / static_cast<double>(count);
}

std::vector<double> Outcome::values(const std::vector<const GridCell*>& cells, const std::string& set) const {
  std::vector<double> found;
  for (const GridCell* cell : cells) {
    const bool has =
        std::ranges::any_of(cell->scores, [&](const auto& score) { return score.first == set || is_average(set); });
    if (cell->failure.empty() && has) found.push_back(value(*cell, set));
  }
  return found;
}

double Outcome::best_guess(const Group& group, const std::string& set) const {
  for (const GridCell* cell : group.cells) {
    double sum = 0;
    std::size_t count = 0;
    for (const auto& [name, score] : cell->scores) {
      if (!is_average(set) && name != set) continue;
      double best = score.guesses.empty() ? nothing : 100;
      for (const auto& [guess, percent] : score.guesses) best = std::min(best, percent);
      sum += best, ++count;
    }
    if (count > 0) return sum / static_cast<double>(count);
  }
  return nothing;
}

std::optional<tasks::PaperFigure> Outcome::paper(const Group& group, const std::string& set) const {
  if (grid_.task == "lm") return std::nullopt;
  const auto task = task_at(grid_.task, group.place);
  if (!task || task->metric() != measure_) return std::nullopt;
  const auto sets = task->test_sets();
  const auto number = static_cast<std::size_t>(std::ranges::find(sets, set, &tasks::TestSet::name) - sets.begin());
  if (number == sets.size() && !is_average(set)) return std::nullopt;
  const auto figures = number < sets.size() ? task->paper_figures(number) : task->paper_averages();
  const auto* found = tasks::figure_of(figures, group.scheme, task->model().scheme);
  return found ? std::optional(*found) : std::nullopt;
}

std::string Outcome::text(const std::vector<const GridCell*>& cells, const std::string& set) const {
  const auto without = std::ranges::count_if(cells, [](const GridCell* cell) { return !cell->failure.empty(); }),
             missing = std::ranges::count_if(cells, &GridCell::missing);
  const bool all = without == std::ssize(cells);
  std::string text = all ? "" : mean_and_deviation(summary(values(cells, set)), digits_);
  const auto add = [&](auto count, const char* what) {
    if (count > 0) text += to_text(text.empty() ? "" : ", ", all && count == without ? "" : to_text(count, " "), what);
  };
  add(without - missing, "failed"), add(missing, "missing");
  return text;
}

std::string shown(double number, int digits) { return std::isnan(number) ? "-" : fixed(number, digits); }

std::string mean_and_deviation(const Summary& found, int digits) {
  return std::isnan(found.deviation) ? shown(found.mean, digits)
                                     : to_text(fixed(found.mean, digits), " (", fixed(found.deviation, digits), ")");
}

}  // namespace whence
