#include "examples/papers/compare.h"

#include <algorithm>
#include <cmath>

#include "examples/app/text.h"
#include "examples/lab/tables.h"
#include "nn/scheme.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence::papers {
namespace {

const Method& method_of(const PaperTable& table, const std::string& name) {
  const auto found = std::ranges::find(table.methods, name, &Method::name);
  if (found == table.methods.end()) throw Error(table.name, ": method '", name, "' named; one of its methods required");
  return *found;
}

const Column& column_of(const PaperTable& table, const std::string& name) {
  const auto found = std::ranges::find(table.columns, name, &Column::name);
  if (found == table.columns.end()) throw Error(table.name, ": column '", name, "' named; one of its columns required");
  return *found;
}

bool stands_at(const GridCell& cell, const Method& method, const Column& column) {
  if (cell.scheme != canonical_text(parse_schemes(method.scheme))) return false;
  return column.at.first.empty() || cell.place.at(column.at.first) == column.at.second;
}

// "length 1024": so many times what the cell was trained on.
std::string set_of(const GridCell& cell, const Column& column) {
  if (!column.set.empty()) return column.set;
  const std::string* length = find_setting(cell.options, "length");
  const auto tokens = length ? parse_number<std::int64_t>(*length) : std::nullopt;
  if (!tokens) throw Error("a cell of ", cell.scheme, " without a length; length in its preset required");
  return to_text("length ", *tokens * column.times);
}

std::vector<double> values_at(
    const PaperTable& table, const Outcome& outcome, const std::string& method, const std::string& column_name) {
  const Column& column = column_of(table, column_name);
  std::vector<double> values;
  for (const GridCell& cell : outcome.grid().cells) {
    if (!stands_at(cell, method_of(table, method), column)) continue;
    const std::string set = set_of(cell, column);
    if (std::ranges::count(outcome.sets(), set) == 0) continue;
    for (const double value : outcome.values({&cell}, set)) values.push_back(value);
  }
  return values;
}

std::string printed_text(const PaperTable& table, const std::string& method, const std::string& column) {
  for (const Printed& printed : table.printed)
    if (printed.method == method && printed.column == column)
      return number_text(printed.mean) +
             (std::isnan(printed.deviation) ? "" : to_text(" (", number_text(printed.deviation), ")"));
  return "-";
}

std::string probability(double p) { return p < 1e-4 ? "p < 0.0001" : "p = " + fixed(p, 4); }

Decision without_spread(const std::vector<double>& better, const std::vector<double>& worse) {
  if (better[0] == worse[0]) return {Verdict::not_decided, "all seeds of both are equal"};
  return {better[0] < worse[0] ? Verdict::holds : Verdict::does_not,
      to_text("no test: each of ", better.size(), " and ", worse.size(), " seeds gave the same, which differ")};
}

// "dape/figure9" is one of several figures of its table.
bool draws(const PaperTable& table, const std::string& name) {
  const std::size_t at = name.find("/figure");
  if (at == std::string::npos) return false;
  const std::string end = " --figure " + name.substr(0, at + 1) + name.substr(at + 7);
  return std::ranges::any_of(table.commands, [&](const std::string& command) { return command.ends_with(end); });
}

// Those that begin so, else the nearest, all of them where several are equally near; at most six.
std::string near_names(const std::string& name) {
  std::vector<std::string> near;
  std::size_t least = 4;
  for (const PaperTable& table : all_tables()) {
    const std::size_t distance = table.name.starts_with(name) ? 0 : edit_distance(table.name, name);
    if (distance > least) continue;
    if (distance < least) near.clear();
    least = distance;
    near.push_back(table.name);
  }
  std::string text;
  for (std::size_t k = 0; k < std::min<std::size_t>(6, near.size()); ++k) text += (k == 0 ? "" : ", ") + near[k];
  return text;
}

}  // namespace

std::vector<PaperTable> all_tables() {
  std::vector<PaperTable> all;
  for (const auto* tables : {&cope_tables(), &dape_tables(), &dape_v2_tables()})
    all.insert(all.end(), tables->begin(), tables->end());
  return all;
}

PaperTable find_table(const std::string& name) {
  for (PaperTable& table : all_tables())
    if (table.name == name || draws(table, name)) return table;
  const std::string near = near_names(name);
  throw InputError(in_quotes(name), " given; a table or figure of the papers required; ",
      near.empty() ? "whence reproduce --list lists them" : "near: " + near);
}

const Preset& find_preset(const PaperTable& table, const std::string& name) {
  const auto found = std::ranges::find(table.presets, name, &Preset::name);
  if (found != table.presets.end()) return *found;
  std::string known;
  for (const Preset& preset : table.presets) known += (known.empty() ? "" : ", ") + preset.name;
  throw InputError("--preset: ", name, " given; one of those of ", table.name, " required: ", known);
}

std::string how(const PaperTable& table) {
  switch (table.kind) {
    case Kind::grid:
    case Kind::lab: return "lab";
    case Kind::figure: return "look";
    case Kind::timing: return "bench";
    case Kind::plan: return "models";
    case Kind::construction: return "recall";
    case Kind::not_ours: return "not ours";
  }
  throw Error(table.name, ": of no kind");
}

std::vector<std::string> lab_words(const PaperTable& table, const Preset& preset) {
  std::vector<std::string> words{table.grid.task, "--schemes", table.grid.schemes, "--preset", preset.lab};
  for (const std::string& axis : table.grid.vary) words.insert(words.end(), {"--vary", axis});
  if (!preset.set.empty()) words.insert(words.end(), {"--set", preset.set});
  return words;
}

Decision decide(const std::vector<double>& better, const std::vector<double>& worse) {
  const std::size_t fewest = std::min(better.size(), worse.size());
  if (fewest < seeds_for_a_test)
    return {Verdict::not_decided, to_text(fewest, " seeds; ", seeds_for_a_test, " required")};
  const auto finite = [](double value) { return std::isfinite(value); };
  if (!std::ranges::all_of(better, finite) || !std::ranges::all_of(worse, finite))
    return {Verdict::not_decided, "a run ended without a finite number"};
  const double p = welch_p_value(better, worse);
  if (std::isnan(p)) return without_spread(better, worse);
  const std::string test = to_text("Welch's test, ", better.size(), " and ", worse.size(), " seeds: ", probability(p));
  if (p >= 0.05) return {Verdict::not_decided, test};
  return {summary(better).mean < summary(worse).mean ? Verdict::holds : Verdict::does_not, test};
}

std::string verdict_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::holds: return "holds";
    case Verdict::does_not: return "does not";
    case Verdict::not_decided: return "not decided at this size";
  }
  throw Error("a verdict of no kind");
}

void require_cells(const PaperTable& table, const Grid& grid) {
  for (const Method& method : table.methods) {
    for (const Column& column : table.columns) {
      const auto cell =
          std::ranges::find_if(grid.cells, [&](const GridCell& each) { return stands_at(each, method, column); });
      if (cell == grid.cells.end())
        throw Error(table.name, ": ", method.name, ", ", column.name, " has no cell in the grid");
      (void)set_of(*cell, column);
    }
  }
  for (const Printed& printed : table.printed)
    (void)method_of(table, printed.method), (void)column_of(table, printed.column);
  for (const Claim& claim : table.claims)
    (void)method_of(table, claim.better), (void)method_of(table, claim.worse), (void)column_of(table, claim.column);
}

Table beside_paper(const PaperTable& table, const Outcome& outcome) {
  Table shown_table({"method", "column", "ours, mean (s.d.)", "seeds", "paper"});
  for (const Method& method : table.methods) {
    for (const Column& column : table.columns) {
      const std::vector<double> values = values_at(table, outcome, method.name, column.name);
      shown_table.row({method.name, column.name, mean_and_deviation(summary(values), outcome.digits()),
          std::to_string(values.size()), printed_text(table, method.name, column.name)});
    }
  }
  return shown_table;
}

Table verdicts(const PaperTable& table, const Outcome& outcome) {
  Table found({"the paper's comparison", "column", "here", "test"});
  for (const Claim& claim : table.claims) {
    const Decision decision = decide(
        values_at(table, outcome, claim.better, claim.column), values_at(table, outcome, claim.worse, claim.column));
    found.row({to_text(claim.better, " better than ", claim.worse), claim.column, verdict_text(decision.verdict),
        decision.test});
  }
  return found;
}

}  // namespace whence::papers
