#include "examples/whence/tasks/paper_figures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence::tasks {
namespace {

// Returns "cope(p_max=8)", "dape(alibi)", "cope + rope": no wrapper that only moves positions; options only if `sized`.
std::string family(const SchemeSpec& spec, bool sized) {
  const SchemeSpec* base = spec.base();
  if (!base) return sized ? spec.text() : spec.info().name;
  if (spec.info().name == "dape" || spec.info().name == "cdape")
    return sized ? spec.text() : to_text(spec.info().name, "(", family(*base, false), ")");
  return family(*base, sized);
}

std::string family(const std::string& schemes, bool sized) {
  std::string text;
  for (const SchemeSpec& spec : parse_schemes(schemes)) text += (text.empty() ? "" : " + ") + family(spec, sized);
  return text;
}

using Cells = std::vector<std::string>;

// Splits "| Absolute PE | absolute | 6.8 (6.9) |" into its cells.
Cells cells_of(const std::string& line) {
  Cells cells;
  std::istringstream rest(line.substr(line.find('|') + 1));
  for (std::string cell; std::getline(rest, cell, '|');) cells.push_back(trimmed(cell));
  if (!cells.empty() && cells.back().empty()) cells.pop_back();
  return cells;
}

// Reads the number at the beginning of a cell.
double number_in(const std::string& cell) {
  const std::string digits = cell.substr(0, cell.find_first_of(" )"));
  const auto number = parse_number<double>(digits);
  if (!number) throw Error("papers: '", cell, "' in a table; a figure, as 6.8 (6.9) or 6.8, required");
  return *number;
}

// A printed table: a row for each method, with its name and scheme before the figures. examples/whence/papers/README.md
// has the form of the files; examples/experiments/reproduce.py reads and checks all of it.
struct Printed {
  Cells columns;  // by name, or by task if a row of tasks names them
  std::vector<Cells> rows;
  bool accuracy = false;  // the paper prints accuracy, whence measures error
};

Printed printed_table(const std::string& name) {
  Printed found;
  std::vector<Cells> rows;
  for (const std::string_view text : paper_tables) {
    std::istringstream lines{std::string(text)};
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty() && line[0] != ' ' && line[0] != '#') inside = line == "table " + name;
      std::istringstream words(line);
      std::string key, value;
      words >> key >> value;
      if (!inside || key.empty()) continue;
      if (line.starts_with("  |")) rows.push_back(cells_of(line));
      if (key == "figures") found.accuracy = value == "accuracy";
      if (key == "columns") found.columns = printed_table(value).columns;
    }
  }
  if (rows.empty()) throw Error("papers: no table ", name);
  if (rows.size() > 1 && rows[1][0] == "scheme") {  // papers print some tables with a column for each method
    std::vector<Cells> turned(rows[0].size());
    for (const Cells& row : rows)
      for (std::size_t k = 0; k < turned.size(); ++k) turned[k].push_back(row.at(k));
    rows = std::move(turned);
  }
  for (const Cells& row : rows)
    if (row[1] == "scheme" || row[0] == "task")
      found.columns = row;
    else if (!row[1].empty())
      found.rows.push_back(row);
  return found;
}

}  // namespace

std::vector<PaperFigure> printed_in(const std::string& table, const std::string& column) {
  const Printed found = printed_table(table);
  const auto place = std::ranges::find(found.columns, column);
  std::vector<PaperFigure> figures;
  if (place == found.columns.end()) return figures;
  const auto k = static_cast<std::size_t>(place - found.columns.begin());
  for (const Cells& row : found.rows) {
    if (row.size() <= k || row[k] == "-" || row[k].starts_with("of ")) continue;
    const std::size_t open = row[k].find(" (");
    const double mean = number_in(row[k]);
    figures.push_back({family(row[1].substr(0, row[1].find(';')), false),
        found.accuracy ? std::round((100 - mean) * 100) / 100 : mean,
        open == std::string::npos ? std::numeric_limits<double>::quiet_NaN() : number_in(row[k].substr(open + 2))});
  }
  return figures;
}

const PaperFigure* figure_of(
    const std::vector<PaperFigure>& figures, const std::string& scheme, const std::string& own) {
  const std::string wanted = family(scheme, false), sized = family(scheme, true);
  for (const PaperFigure& figure : figures)
    if (figure.scheme == wanted && (sized == wanted || sized == family(own, true))) return &figure;
  return nullptr;
}

std::string figure_text(const PaperFigure* figure) {
  if (!figure) return "-";
  return std::isnan(figure->deviation) ? exact(figure->mean)
                                       : to_text(exact(figure->mean), " (", exact(figure->deviation), ")");
}

}  // namespace whence::tasks
