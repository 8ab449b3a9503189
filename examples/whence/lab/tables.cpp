#include "examples/whence/lab/tables.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/report/table.h"
#include "examples/whence/tasks/paper_figures.h"
#include "examples/whence/tasks/task_training.h"
#include "tensor/error.h"

namespace whence {
namespace {

using Row = std::vector<std::string>;

std::string cell(double number) { return std::isnan(number) ? "" : exact(number); }

Row joined(std::initializer_list<Row> parts) {
  Row all;
  for (const Row& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// "cope.p_max" as it is, and options of train as one word, as columns of a CSV file have it.
Row with_underscores(Row names) {
  for (std::string& name : names) std::ranges::replace(name, '-', '_');
  return names;
}

Row measures_of(bool text) {
  return text ? Row{"perplexity", "bits per byte"} : Row{"token error %", "sequence error %"};
}

Row place_of(const Grid& grid, const std::map<std::string, std::string>& place) {
  Row values;
  for (const std::string& axis : grid.axes) values.push_back(place.at(axis));
  return values;
}

// Do two groups differ in one thing only? Then their difference says what it does. An option that a scheme does not
// have is no second thing.
bool neighbours(const Group& a, const Group& b) {
  int different = 0;
  for (const auto& [axis, value] : a.place) {
    const std::string& other = b.place.at(axis);
    different += value != other && value != "-" && other != "-";
  }
  return different == 1;
}

void add_scores(Table& table, Table& numbers, const Outcome& outcome, const Group& group, const std::string& set) {
  const Grid& grid = outcome.grid();
  const std::vector<double> values = outcome.values(group.cells, set);
  const bool ran = group.failed() < group.cells.size();
  if (ran && values.empty()) return;  // runs of another length or another task are not tested on this set
  const Summary found = summary(values);
  const double none = std::nan("");
  const double least = values.empty() ? none : *std::ranges::min_element(values),
               most = values.empty() ? none : *std::ranges::max_element(values);
  const auto paper = outcome.paper(group, set);
  const double guess = outcome.best_guess(group, set);
  const int digits = outcome.digits();
  const Row name{grid.task, set}, place = place_of(grid, group.place);
  const std::string count = to_text(values.size()), failed = to_text(group.failed());
  Row compared{tasks::figure_text(paper ? &*paper : nullptr), shown(guess, 1)};
  Row compared_numbers{cell(paper ? paper->mean : none), cell(paper ? paper->deviation : none), cell(guess)};
  if (grid.task == "lm") compared.clear(), compared_numbers.clear();
  table.row(joined({name, place, {group.scheme, outcome.text(group.cells, set)},
      {shown(least, digits), shown(most, digits), count}, compared}));
  numbers.row(joined(
      {name, place, {group.scheme, cell(found.mean), cell(found.deviation), cell(least), cell(most), count, failed},
          compared_numbers}));
}

void add_runs(Table& runs, const Outcome& outcome) {
  const Grid& grid = outcome.grid();
  for (const GridCell& run : grid.cells) {
    const Row place = place_of(grid, run.place), who{run.scheme, std::to_string(run.seed)};
    if (!run.failure.empty()) runs.row(joined({{grid.task, ""}, place, who, {"", "", run.failure}}));
    for (const auto& [set, score] : run.scores) {
      Row numbers;
      for (const std::string& measure : measures_of(grid.task == "lm")) {
        const auto found = score.measures.find(measure);
        numbers.push_back(found == score.measures.end() ? "" : cell(found->second));
      }
      runs.row(joined({{grid.task, set}, place, who, numbers, {""}}));
    }
  }
}

bool add_differences(Table& table, const Outcome& outcome, const std::string& set) {
  bool tested = false;
  const auto& groups = outcome.groups();
  for (std::size_t a = 0; a < groups.size(); ++a) {
    for (std::size_t b = a + 1; b < groups.size(); ++b) {
      if (!neighbours(groups[a], groups[b])) continue;
      const Summary x = summary(outcome.values(groups[a].cells, set)),
                    y = summary(outcome.values(groups[b].cells, set));
      if (x.count == 0 || y.count == 0) continue;
      const bool enough = std::min(x.count, y.count) >= seeds_for_a_test;
      tested = tested || enough;
      table.row({outcome.grid().task, set, groups[a].label, groups[b].label, shown(x.mean - y.mean, outcome.digits()),
          enough ? shown(welch_p_value(x, y), 4) : "-"});
    }
  }
  return tested;
}

// A value as the head of a column: schemes and test sets say themselves what they are.
std::string heading_of(const std::string& axis, const std::string& value) {
  if (axis == "scheme" || axis == "test-set") return value;
  return value == "-" ? "no " + axis : to_text(axis, " ", value);
}

// Values in the order in which they first appear.
std::size_t place_in(Row& order, const std::string& value) {
  const auto found = std::ranges::find(order, value);
  if (found != order.end()) return static_cast<std::size_t>(found - order.begin());
  order.push_back(value);
  return order.size() - 1;
}

}  // namespace

LongTables::LongTables(const std::vector<std::string>& axes, bool text)
    : scores(joined({{"task", text ? "text" : "test set"}, axes,
          {"scheme", text ? "mean (s.d.)" : "mean (s.d.) %", "least", "most", "seeds"},
          text ? Row{} : Row{"paper %", "best guess %"}})),
      numbers(joined(
          {{"task", "test_set"}, with_underscores(axes), {"scheme", "mean", "sd", "least", "most", "seeds", "failed"},
              text ? Row{} : Row{"paper_mean", "paper_sd", "best_guess"}})),
      runs(joined({{"task", "test_set"}, with_underscores(axes), {"scheme", "seed"},
          text ? Row{"perplexity", "bits_per_byte"} : Row{"token_error_percent", "sequence_error_percent"},
          {"failure"}})),
      differences({"task", text ? "text" : "test set", "a", "b", "mean of a - mean of b", "p (Welch)"}) {}

void LongTables::add(const Outcome& outcome) {
  for (const std::string& set : outcome.rows()) {
    for (const Group& group : outcome.groups()) add_scores(scores, numbers, outcome, group, set);
    tested = add_differences(differences, outcome, set) || tested;
  }
  add_runs(runs, outcome);
}

std::vector<CrossTable> cross_tables(const Outcome& outcome, const std::string& rows, const std::string& columns) {
  const bool by_set = rows == "test-set" || columns == "test-set";
  const Grid& grid = outcome.grid();
  Row others = grid.axes;
  others.insert(others.end(), {"scheme", "test-set"});
  std::erase_if(others, [&](const std::string& axis) { return axis == rows || axis == columns; });
  Row titles, row_names, column_names;
  std::map<std::tuple<std::size_t, std::size_t, std::size_t>, std::pair<std::string, std::vector<const GridCell*>>>
      found;
  for (const std::string& set : by_set ? outcome.sets() : outcome.rows()) {
    for (const GridCell& run : grid.cells) {
      std::map<std::string, std::string> place = run.place;
      place["test-set"] = set;
      std::string title = grid.task;
      for (const std::string& axis : others)
        title +=
            axis == "test-set" || axis == "scheme" ? ", " + place.at(axis) : to_text(", ", axis, " ", place.at(axis));
      auto& [of_set, cells] = found[{
          place_in(titles, title), place_in(row_names, place.at(rows)), place_in(column_names, place.at(columns))}];
      of_set = set;
      cells.push_back(&run);
    }
  }
  Row headings;
  for (const std::string& value : column_names) headings.push_back(heading_of(columns, value));
  std::vector<CrossTable> tables;
  for (std::size_t t = 0; t < titles.size(); ++t) {
    CrossTable cross{titles[t], Table(joined({{rows}, headings}))};
    for (std::size_t r = 0; r < row_names.size(); ++r) {
      Row row{row_names[r]};
      for (std::size_t c = 0; c < column_names.size(); ++c) {
        const auto entry = found.find({t, r, c});
        row.push_back(entry == found.end() ? "-" : outcome.text(entry->second.second, entry->second.first));
      }
      if (std::ranges::any_of(row.begin() + 1, row.end(), [](const std::string& text) { return text != "-"; }))
        cross.table.row(std::move(row));
    }
    if (!cross.table.rows().empty()) tables.push_back(std::move(cross));
  }
  return tables;
}

}  // namespace whence
