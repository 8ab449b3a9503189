#include "examples/whence/lab/outcome.h"

#include <cmath>
#include <limits>
#include <set>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/tasks/paper_figures.h"
#include "tensor/error.h"

namespace whence {
namespace {

constexpr double nothing = std::numeric_limits<double>::quiet_NaN();

std::vector<Group> groups_of(const Grid& grid) {
  std::vector<Group> groups;
  for (auto& [place, cells] : parts_by(grid.cells, [](const GridCell& cell) {
         std::map<std::string, std::string> without_seed = cell.place;
         without_seed.erase("seed");
         return without_seed;
       }))
    groups.push_back({place, cells});
  return groups;
}

// Perplexities of different texts or tokens are not of the same thing.
bool tokens_differ(const Grid& grid) {
  static const std::set<std::string> of_the_text{"tokeniser", "data", "validation-data", "test-data", "field",
      "include", "exclude", "validation", "split-seed", "blank-lines", "separate"};
  return std::ranges::any_of(grid.axes, [](const Axis& axis) { return of_the_text.contains(axis.name); });
}

std::string measure_of(const Grid& grid) {
  if (grid.task != "lm") return tasks::make_task(grid.task)->metric();
  return tokens_differ(grid) ? "bits per byte" : "perplexity";
}

std::vector<std::string> sets_of(const Grid& grid, const std::string& measure) {
  std::vector<std::string> sets;
  for (const GridCell& cell : grid.cells)
    for (const auto& [set, score] : cell.figures.scores)
      if ((grid.task != "lm" || score.measures.contains(measure)) && !std::ranges::count(sets, set))
        sets.push_back(set);
  if (sets.empty()) sets.emplace_back("-");  // all failed
  const auto length = [](const std::string& set) {
    return set.starts_with("length ") ? parse_number<std::int64_t>(set.substr(7)).value_or(0) : 0;
  };
  if (grid.task == "lm") std::ranges::stable_sort(sets, {}, length);  // runs of several lengths have each their own
  return sets;
}

std::vector<std::string> rows_of(const Grid& grid, const std::vector<std::string>& sets) {
  // An average of other sets in each run would compare what is not the same.
  const bool same = std::ranges::all_of(grid.cells,
      [&](const GridCell& cell) { return cell.figures.scores.empty() || cell.figures.scores.size() == sets.size(); });
  if (grid.task == "lm" || sets.size() <= 4 || !same) return sets;
  return {to_text("average of ", sets.size(), " sets")};
}

// With the options that vary; nothing where those are not beside the defaults of the others: a task that no paper has
// figures for.
std::unique_ptr<tasks::Task> task_at(const std::string& name, const std::map<std::string, std::string>& place) {
  try {
    return task_with(name, {place.begin(), place.end()});
  } catch (const InputError&) { return nullptr; }
}

}  // namespace

Outcome::Outcome(const Grid& of, const std::string& wanted)
    : grid(of),
      measure(wanted.empty() ? measure_of(of) : wanted),
      digits(measure == "perplexity"      ? 3
             : measure == "bits per byte" ? 4
                                          : 2),
      groups(groups_of(of)),
      sets(sets_of(of, measure)),
      rows(rows_of(of, sets)) {}

std::optional<double> Outcome::mean(
    const GridCell& cell, const std::string& set, const std::function<double(const RunFigures::Score&)>& number) const {
  double sum = 0;
  std::size_t count = 0;
  for (const auto& [name, score] : cell.figures.scores)
    if (is_average(set) || name == set) sum += number(score), ++count;
  return count == 0 ? std::nullopt : std::optional(sum / static_cast<double>(count));
}

std::optional<double> Outcome::value(const GridCell& cell, const std::string& set) const {
  return mean(cell, set, [&](const RunFigures::Score& score) {
    const auto found = score.measures.find(measure);
    return found == score.measures.end() ? nothing : found->second;
  });
}

std::vector<double> Outcome::values(const std::vector<const GridCell*>& cells, const std::string& set) const {
  std::vector<double> found;
  for (const GridCell* cell : cells)
    if (const auto number = value(*cell, set)) found.push_back(*number);
  return found;
}

double Outcome::best_guess(const Group& group, const std::string& set) const {
  const auto least = [](const RunFigures::Score& score) {
    double best = score.guesses.empty() ? nothing : 100;
    for (const auto& [guess, percent] : score.guesses) best = std::min(best, percent);
    return best;
  };
  for (const GridCell* cell : group.cells)
    if (const auto found = mean(*cell, set, least)) return *found;
  return nothing;
}

std::optional<tasks::PaperFigure> Outcome::paper(const Group& group, const std::string& set) const {
  if (grid.task == "lm") return std::nullopt;
  const auto task = task_at(grid.task, group.place);
  if (!task || task->metric() != measure) return std::nullopt;
  const auto known = task->test_sets();
  const auto number = static_cast<std::size_t>(std::ranges::find(known, set, &tasks::TestSet::name) - known.begin());
  if (number == known.size() && !is_average(set)) return std::nullopt;
  const auto figures = number < known.size() ? task->paper_figures(number) : task->paper_averages();
  const auto* found = tasks::figure_of(figures, group.first().scheme, task->model().scheme);
  return found ? std::optional(*found) : std::nullopt;
}

std::string Outcome::text(const std::vector<const GridCell*>& cells, const std::string& set) const {
  const auto missing = std::ranges::count_if(cells, &GridCell::missing);
  const auto failed =
      std::ranges::count_if(cells, [](const GridCell* cell) { return !cell->missing && !cell->failure.empty(); });
  const bool none = missing + failed == std::ssize(cells), alike = none && (missing == 0 || failed == 0);
  std::string text = none ? "" : mean_and_deviation(summary(values(cells, set)), digits);
  for (const auto& [count, what] : {std::pair(failed, "failed"), {missing, "missing"}})
    if (count > 0) text += to_text(text.empty() ? "" : ", ", alike ? "" : to_text(count, " "), what);
  return text;
}

std::string mean_and_deviation(const Summary& found, int digits) {
  const std::string mean = fixed(found.mean, digits);
  return std::isnan(found.deviation) ? mean : to_text(mean, " (", fixed(found.deviation, digits), ")");
}

}  // namespace whence
