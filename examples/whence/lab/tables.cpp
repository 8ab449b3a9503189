// A grid's outcome as tables: everything in long form, two axes across each other, and what differs.
#include <cmath>
#include <tuple>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/lab/findings.h"
#include "examples/whence/tasks/paper_figures.h"
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

// "flip_flop, sparse", and where on the axes.
Row place_of(const Grid& grid, const std::string& set, const std::map<std::string, std::string>& place) {
  Row values{grid.task, set};
  for (const Axis& axis : grid.axes) values.push_back(place.at(axis.name));
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

void add_scores(Findings& found, const Outcome& outcome, const Group& group, const std::string& set) {
  const std::vector<double> values = outcome.values(group.cells, set);
  const auto failed = std::ranges::count_if(group.cells, [](const GridCell* run) { return !run->failure.empty(); });
  const bool ran = failed < std::ssize(group.cells);
  if (ran && values.empty()) return;  // runs of another length or another task are not tested on this set
  const Summary of_all = summary(values);
  const double none = std::nan("");
  const double least = values.empty() ? none : *std::ranges::min_element(values),
               most = values.empty() ? none : *std::ranges::max_element(values);
  const auto paper = outcome.paper(group, set);
  const double guess = outcome.best_guess(group, set);
  const Row place = place_of(outcome.grid, set, group.place), scheme{group.first().scheme};
  const std::string count = to_text(values.size());
  Row compared{tasks::figure_text(paper ? &*paper : nullptr), fixed(guess, 1)};
  Row compared_numbers{cell(paper ? paper->mean : none), cell(paper ? paper->deviation : none), cell(guess)};
  if (found.text) compared.clear(), compared_numbers.clear();
  found.scores.row(joined({place, scheme,
      {outcome.text(group.cells, set), fixed(least, outcome.digits), fixed(most, outcome.digits), count}, compared}));
  found.numbers.row(joined({place, scheme,
      {cell(of_all.mean), cell(of_all.deviation), cell(least), cell(most), count, to_text(failed)}, compared_numbers}));
}

void add_run(Findings& found, const Grid& grid, const GridCell& run) {
  const Row who{run.scheme, std::to_string(run.seed)};
  if (!run.failure.empty()) found.runs.row(joined({place_of(grid, "", run.place), who, {"", "", run.failure}}));
  for (const auto& [set, score] : run.figures.scores) {
    Row numbers;
    for (const char* measure :
        {found.text ? "perplexity" : "token error %", found.text ? "bits per byte" : "sequence error %"}) {
      const auto number = score.measures.find(measure);
      numbers.push_back(number == score.measures.end() ? "" : cell(number->second));
    }
    found.runs.row(joined({place_of(grid, set, run.place), who, numbers, {""}}));
  }
  for (const auto& [name, points] :
      {std::pair("training", &run.figures.curve), {"validation", &run.figures.validation}})
    for (const LossPoint& point : *points) {
      Row place = place_of(grid, "", run.place);
      place.erase(place.begin() + 1);  // the test set
      found.curves.row(joined({place, who,
          {name, std::to_string(point.step), std::to_string(point.step * run.sequences), exact(point.loss)}}));
    }
}

void add_differences(Findings& found, const Outcome& outcome, const std::string& set) {
  const auto& groups = outcome.groups;
  for (auto a = groups.begin(); a != groups.end(); ++a) {
    for (auto b = a + 1; b != groups.end(); ++b) {
      if (!neighbours(*a, *b)) continue;
      const Summary x = summary(outcome.values(a->cells, set)), y = summary(outcome.values(b->cells, set));
      if (x.count == 0 || y.count == 0) continue;
      const bool enough = std::min(x.count, y.count) >= seeds_for_a_test;
      found.tested = found.tested || enough;
      found.differences.row({outcome.grid.task, set, a->first().name, b->first().name,
          fixed(x.mean - y.mean, outcome.digits), enough ? fixed(welch_p_value(x, y), 4) : "-"});
    }
  }
}

// Schemes and test sets say themselves what they are.
std::string in_words(const std::string& axis, const std::string& value) {
  return axis == "scheme" || axis == "test-set" ? value : to_text(axis, " ", value);
}

// Values in the order in which they first appear.
std::size_t place_in(Row& order, const std::string& value) {
  const auto found = std::ranges::find(order, value);
  if (found != order.end()) return static_cast<std::size_t>(found - order.begin());
  order.push_back(value);
  return order.size() - 1;
}

Row names_of(const std::vector<Axis>& axes) {
  Row names;
  for (const Axis& axis : axes) names.push_back(axis.name);
  return names;
}

}  // namespace

Findings::Findings(const std::vector<Axis>& varied, bool of_text)
    : axes(names_of(varied)),
      text(of_text),
      scores(joined({{"task", text ? "text" : "test set"}, axes,
          {"scheme", text ? "mean (s.d.)" : "mean (s.d.) %", "least", "most", "seeds"},
          text ? Row{} : Row{"paper %", "best guess %"}})),
      differences({"task", text ? "text" : "test set", "a", "b", "mean of a - mean of b", "p (Welch)"}),
      numbers(joined(
          {{"task", "test_set"}, with_underscores(axes), {"scheme", "mean", "sd", "least", "most", "seeds", "failed"},
              text ? Row{} : Row{"paper_mean", "paper_sd", "best_guess"}})),
      runs(joined({{"task", "test_set"}, with_underscores(axes), {"scheme", "seed"},
          text ? Row{"perplexity", "bits_per_byte"} : Row{"token_error_percent", "sequence_error_percent"},
          {"failure"}})),
      curves(joined({{"task"}, axes, {"scheme", "seed", "curve", "step", "sequences", "loss"}})) {}

void Findings::add(const Outcome& outcome) {
  for (const std::string& set : outcome.rows) {
    for (const Group& group : outcome.groups) add_scores(*this, outcome, group, set);
    add_differences(*this, outcome, set);
  }
  for (const GridCell& run : outcome.grid.cells) add_run(*this, outcome.grid, run);
}

std::vector<CrossTable> cross_tables(const Outcome& outcome, const std::string& rows, const std::string& columns) {
  const bool by_set = rows == "test-set" || columns == "test-set";
  const Row others = joined({names_of(outcome.grid.axes), {"scheme", "test-set"}});
  Row titles, row_names, column_names;
  std::map<std::tuple<std::size_t, std::size_t, std::size_t>, std::pair<std::string, std::vector<const GridCell*>>>
      found;
  for (const std::string& set : by_set ? outcome.sets : outcome.rows) {
    for (const GridCell& run : outcome.grid.cells) {
      std::map<std::string, std::string> place = run.place;
      place["test-set"] = set;
      std::string title = outcome.grid.task;
      for (const std::string& axis : others)
        if (axis != rows && axis != columns) title += ", " + in_words(axis, place.at(axis));
      auto& [of_set, cells] = found[{
          place_in(titles, title), place_in(row_names, place.at(rows)), place_in(column_names, place.at(columns))}];
      of_set = set;
      cells.push_back(&run);
    }
  }
  Row headings;
  for (const std::string& value : column_names)
    headings.push_back(value == "-" && columns != "test-set" ? "no " + columns : in_words(columns, value));
  std::vector<CrossTable> tables;
  for (std::size_t t = 0; t < titles.size(); ++t) {
    CrossTable cross{titles[t], Table(joined({{rows}, headings}))};
    for (std::size_t r = 0; r < row_names.size(); ++r) {
      Row row{row_names[r]};
      for (std::size_t c = 0; c < column_names.size(); ++c) {
        const auto entry = found.find({t, r, c});
        row.push_back(entry == found.end() ? "-" : outcome.text(entry->second.second, entry->second.first));
      }
      if (std::any_of(row.begin() + 1, row.end(), [](const std::string& text) { return text != "-"; }))
        cross.table.row(std::move(row));
    }
    if (!cross.table.rows().empty()) tables.push_back(std::move(cross));
  }
  return tables;
}

}  // namespace whence
