#include "examples/whence/papers/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/lab/outcome.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence::papers {
namespace {

constexpr int seeds_of_papers = 3;  // where they print a standard deviation

// ---- Which cells are a method's in a column

bool lies_at(const GridCell& cell, const AxisValues& places) {
  return std::ranges::all_of(places, [&](const auto& at) { return cell.place.at(at.first) == at.second; });
}

bool stands_at(const GridCell& cell, const Method& method, const Column& column) {
  return (column.task.empty() || column.task == cell.task) && is_of(cell, method) && lies_at(cell, column.at);
}

bool has_method(const Preset& preset, const Method& method) {
  return preset.schemes.empty() || std::ranges::count(preset.schemes, method.scheme) > 0;
}

bool has_column(const PaperTable& table, const Preset& preset, const Column& column) {
  return column.task.empty() || std::ranges::count(tasks_at(table, preset), column.task) > 0;
}

// "length 1024": so many times what the cell was trained on.
std::string set_of(const GridCell& cell, const Column& column) {
  if (column.times == 0) return column.set;
  const std::string* length = find_setting(cell.options, "length");
  const auto tokens = length ? parse_number<std::int64_t>(*length) : std::nullopt;
  if (!tokens) throw Error("a cell of ", cell.scheme, " without a length; length in its preset required");
  return to_text("length ", *tokens * column.times);
}

// Nothing where it was not tested so.
std::optional<double> value_at(const Outcome& outcome, const GridCell& cell, const Column& column) {
  if (column.step > 0) {
    const auto point = std::ranges::find(cell.figures.validation_error, column.step, &LossPoint::step);
    return point == cell.figures.validation_error.end() ? std::nullopt : std::optional(point->loss);
  }
  const std::string set = set_of(cell, column);
  const bool tested = set == "average" || std::ranges::count(outcome.sets, set) > 0;
  return tested ? outcome.value(cell, set) : std::nullopt;
}

// What needs no model, in percent of errors; nan where there is no such.
double guess_at(const Outcome& outcome, const Column& column) {
  double guess = std::numeric_limits<double>::quiet_NaN();
  if (column.set.empty()) return guess;
  for (const Group& group : outcome.groups)
    if (std::isnan(guess) && lies_at(group.first(), column.at)) guess = outcome.best_guess(group, column.set);
  return guess;
}

// ---- The paper's figures

const Printed* printed_at(const PaperTable& table, const std::string& method, const std::string& column) {
  for (const Printed& printed : table.printed)
    if (printed.method == method && printed.column == column) return &printed;
  return nullptr;
}

// "21.7 (7.9)", "-" where the paper prints none.
std::string printed_text(const PaperTable& table, const std::string& method, const std::string& column) {
  const Printed* printed = printed_at(table, method, column);
  if (!printed) return "-";
  return exact(printed->mean) + (std::isnan(printed->deviation) ? "" : to_text(" (", exact(printed->deviation), ")"));
}

std::string probability(double p) { return p < 1e-4 ? "p < 0.0001" : "p = " + fixed(p, 4); }

// The test that the paper's own figures would pass, of three seeds each.
std::string test_of_printed(const PaperTable& table, const Claim& claim) {
  const Printed *better = printed_at(table, claim.better, claim.column),
                *worse = printed_at(table, claim.worse, claim.column);
  if (!better || !worse || std::isnan(better->deviation) || std::isnan(worse->deviation)) return "-";
  const double p = welch_p_value(
      {seeds_of_papers, better->mean, better->deviation}, {seeds_of_papers, worse->mean, worse->deviation});
  return std::isnan(p) ? "no spread" : probability(p);
}

std::string verdict_text(Verdict verdict) {
  return verdict == Verdict::holds ? "holds" : verdict == Verdict::does_not ? "does not" : "not decided at this size";
}

// "dape/figure9" is one of several figures of its table.
bool draws(const PaperTable& table, const std::string& name) {
  const std::size_t at = name.find("/figure");
  if (at == std::string::npos) return false;
  const std::string figure = " --figure " + name.substr(0, at + 1) + name.substr(at + 7) + " ";
  return std::ranges::any_of(
      table.commands, [&](const std::string& command) { return (command + " ").find(figure) != std::string::npos; });
}

}  // namespace

const PaperTable& find_table(const std::string& name) {
  std::vector<std::string> all, near;
  for (const PaperTable& table : all_papers().tables) {
    if (table.name == name || draws(table, name)) return table;
    all.push_back(table.name);
    if (table.name.starts_with(name)) near.push_back(table.name);
  }
  const auto nearest = nearest_name(name, all);
  if (near.empty() && nearest) near = {*nearest};
  throw InputError(in_quotes(name), " given; a table or figure of the papers required; ",
      near.empty() ? "whence reproduce --list lists them" : "near: " + first_few(near, ", "));
}

const Preset& find_preset(const PaperTable& table, const std::string& name) {
  if (const Preset* preset = find_named(table.presets, name)) return *preset;
  throw InputError(
      "--preset: ", name, " given; one of those of ", table.name, " required: ", joined(table.presets, &Preset::name));
}

const std::vector<std::string>& tasks_at(const PaperTable& table, const Preset& preset) {
  return preset.tasks.empty() ? table.tasks : preset.tasks;
}

Decision decide(const std::vector<double>& lower, const std::vector<double>& higher) {
  const Summary low = summary(lower), high = summary(higher);
  const int fewest = std::min(low.count, high.count);
  if (fewest < seeds_for_a_test)
    return {Verdict::not_decided, to_text(fewest, " seeds; ", seeds_for_a_test, " required")};
  if (!std::isfinite(low.mean) || !std::isfinite(high.mean))
    return {Verdict::not_decided, "a run ended without a finite number"};
  const double p = welch_p_value(low, high);
  const Verdict as_seen = low.mean < high.mean ? Verdict::holds : Verdict::does_not;
  if (std::isnan(p) && lower[0] == higher[0]) return {Verdict::not_decided, "all seeds of both are equal"};
  const std::string seeds = to_text(lower.size(), " and ", higher.size(), " seeds");
  if (std::isnan(p)) return {as_seen, to_text("no test: each of ", seeds, " gave the same, which differ")};
  return {p < 0.05 ? as_seen : Verdict::not_decided, to_text("Welch's test, ", seeds, ": ", probability(p))};
}

bool is_of(const GridCell& cell, const Method& method) {
  return cell.scheme == method.scheme && lies_at(cell, method.at);
}

void require_cells(const PaperTable& table, const Preset& preset, const std::vector<Grid>& grids) {
  for (const Method& method : table.methods) {
    for (const Column& column : table.columns) {
      if (!has_method(preset, method) || !has_column(table, preset, column)) continue;
      bool found = false;
      for (const Grid& grid : grids)
        for (const GridCell& cell : grid.cells)
          if (stands_at(cell, method, column)) found = column.step > 0 || !set_of(cell, column).empty();
      if (!found) throw Error(table.name, ": ", method.name, ", ", column.name, " has no cell in the grid");
    }
  }
}

Measurement measured(const PaperTable& table, const std::vector<Grid>& grids) {
  Measurement found;
  std::vector<Outcome> outcomes;
  for (const Grid& grid : grids) outcomes.emplace_back(grid, table.measure);
  found.measure = outcomes[0].measure, found.digits = outcomes[0].digits;
  for (const Method& method : table.methods) {
    for (const Column& column : table.columns) {
      Measured each{method.name, column.name, {}};
      for (const Outcome& outcome : outcomes)
        for (const GridCell& cell : outcome.grid.cells)
          if (stands_at(cell, method, column))
            if (const auto value = value_at(outcome, cell, column)) each.values.push_back(*value);
      if (!each.values.empty()) found.all.push_back(std::move(each));
    }
  }
  for (const Column& column : table.columns)
    for (const Outcome& outcome : outcomes)
      if (column.task.empty() || column.task == outcome.grid.task)
        if (const double guess = guess_at(outcome, column); !std::isnan(guess))
          found.all.push_back({best_guess, column.name, {guess}});
  return found;
}

std::vector<double> Measurement::of(const std::string& method, const std::string& column) const {
  for (const Measured& each : all)
    if (each.method == method && each.column == column) return each.values;
  return {};
}

std::vector<Judged> judged(const PaperTable& table, const Preset& preset, const Measurement& measurement) {
  std::vector<Judged> all;
  for (const Claim& claim : table.claims) {
    const bool there = has_method(preset, *find_named(table.methods, claim.better)) &&
                       has_method(preset, *find_named(table.methods, claim.worse)) &&
                       has_column(table, preset, *find_named(table.columns, claim.column));
    if (!there) continue;
    std::vector<double> lower = measurement.of(claim.better, claim.column),
                        higher = measurement.of(claim.worse, claim.column);
    if (table.higher_is_better) std::swap(lower, higher);
    all.push_back({claim, decide(lower, higher), test_of_printed(table, claim)});
  }
  return all;
}

PaperTable with_rows(const PaperTable& table, const std::vector<std::string>& methods) {
  PaperTable kept = table;
  if (methods.empty()) return kept;
  for (const std::string& name : methods)
    if (!find_named(table.methods, name))
      throw InputError("--row: ", in_quotes(name), " given; one of those of ", table.name, " required");
  const auto is_left_out = [&](const std::string& name) { return std::ranges::count(methods, name) == 0; };
  std::erase_if(kept.methods, [&](const Method& method) { return is_left_out(method.name); });
  std::erase_if(kept.claims, [&](const Claim& claim) { return is_left_out(claim.better) || is_left_out(claim.worse); });
  return kept;
}

Table beside_paper(const PaperTable& table, const Measurement& measurement) {
  Table beside({"method", "column", "ours, mean (s.d.)", "seeds", "paper"});
  for (const Method& method : table.methods) {
    for (const Column& column : table.columns) {
      const Summary ours = summary(measurement.of(method.name, column.name));
      const std::string printed = printed_text(table, method.name, column.name);
      if (ours.count > 0 || printed != "-")
        beside.row({method.name, column.name, mean_and_deviation(ours, measurement.digits), std::to_string(ours.count),
            printed});
    }
  }
  for (const Measured& each : measurement.all)
    if (each.method == best_guess)
      beside.row({best_guess, each.column, fixed(each.values[0], measurement.digits), "-", "-"});
  return beside;
}

Table printed_figures(const PaperTable& table) {
  std::vector<std::string> head{"the paper's"};
  for (const Column& column : table.columns) head.push_back(column.name);
  Table figures(head);
  for (const Method& method : table.methods) {
    std::vector<std::string> row{method.name};
    for (const Column& column : table.columns) row.push_back(printed_text(table, method.name, column.name));
    figures.row(std::move(row));
  }
  return figures;
}

Table verdicts(const PaperTable& table, const Preset& preset, const Measurement& measurement) {
  Table found({"the paper's comparison", "column", "here", "test", "the paper's own figures"});
  for (const Judged& each : judged(table, preset, measurement))
    found.row({to_text(each.claim.better, " better than ", each.claim.worse), each.claim.column,
        verdict_text(each.decision.verdict), each.decision.test, each.by_the_paper});
  return found;
}

}  // namespace whence::papers
