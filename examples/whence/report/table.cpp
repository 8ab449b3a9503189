#include "examples/whence/report/table.h"

#include <algorithm>

#include "examples/whence/cli/json.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/report/encode.h"
#include "tensor/error.h"

namespace whence {
namespace {

// True for "3.4", "12.5 %", "38.2 ±1.1", "-" (no number), "nan": such columns are right-aligned.
bool looks_like_number(std::string_view cell) {
  std::string_view word = cell.substr(0, cell.find(' '));
  if (cell.substr(word.size()).find_first_not_of("0123456789.e+-±()% ") != cell.npos) return false;
  if (word.ends_with('%')) word.remove_suffix(1);
  if (word.starts_with('+')) word.remove_prefix(1);
  constexpr std::string_view others[] = {"", "-", "–", "nan", "inf", "-inf"};
  return std::ranges::count(others, word) > 0 || parse_number<double>(word).has_value();
}

}  // namespace

Table::Table(std::vector<std::string> header) : header_(std::move(header)) {}

Table& Table::row(std::vector<std::string> cells) {
  if (cells.size() != header_.size())
    throw Error("table: a row of ", cells.size(), " cells given; ", header_.size(), " required, as in the header");
  rows_.push_back(std::move(cells));
  return *this;
}

std::vector<bool> Table::numeric_columns() const {
  std::vector<bool> numeric;
  for (std::size_t column = 0; column < header_.size(); ++column)
    numeric.push_back(!rows_.empty() &&
                      std::ranges::all_of(rows_, [&](const auto& cells) { return looks_like_number(cells[column]); }));
  return numeric;
}

Table Table::without_dashes() const {
  std::vector<std::vector<std::string>> rows(rows_.size());
  std::vector<std::string> header;
  for (std::size_t column = 0; column < header_.size(); ++column) {
    if (std::ranges::all_of(rows_, [&](const auto& row) { return row[column] == "-"; })) continue;
    header.push_back(header_[column]);
    for (std::size_t k = 0; k < rows.size(); ++k) rows[k].push_back(rows_[k][column]);
  }
  Table kept(std::move(header));
  for (auto& row : rows) kept.row(std::move(row));
  return kept;
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  std::vector<std::string> rule;
  for (std::size_t column = 0; column < header_.size(); ++column) {
    widths.push_back(display_width(header_[column]));
    for (const auto& cells : rows_) widths[column] = std::max(widths[column], display_width(cells[column]));
    rule.emplace_back(widths[column], '-');
  }
  const std::vector<bool> numeric = numeric_columns();
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string result;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string cell = one_line(cells[i]), blanks(widths[i] - std::min(widths[i], display_width(cell)), ' ');
      result += (i > 0 ? "  " : "") + (numeric[i] ? blanks + cell : cell + blanks);
    }
    return result.substr(0, result.find_last_not_of(' ') + 1) + '\n';
  };
  std::string result = line(header_) + line(rule);
  for (const auto& cells : rows_) result += line(cells);
  return result;
}

std::string Table::json() const {
  std::string lines;
  for (const auto& cells : rows_) {
    Json row;
    for (std::size_t k = 0; k < cells.size(); ++k) {
      const auto whole = parse_number<std::int64_t>(cells[k]);
      const auto number = parse_number<double>(cells[k]);
      const bool none = cells[k] == "-" || cells[k].empty();
      row.add(header_[k], whole ? Json(*whole) : number ? Json(*number) : none ? Json() : Json(cells[k]));
    }
    lines += row.line() + '\n';
  }
  return lines;
}

std::string Table::html() const {
  const std::vector<bool> numeric = numeric_columns();
  const auto line = [&](const std::vector<std::string>& cells, const char* first, const char* other) {
    std::string row = "<tr>";
    for (std::size_t k = 0; k < cells.size(); ++k) {
      const std::string tag = k == 0 ? first : other;
      row +=
          to_text('<', tag, numeric[k] ? " class=\"n\">" : ">", report::escape(cells[k]), "</", tag.substr(0, 2), '>');
    }
    return row + "</tr>";
  };
  std::string out = "<table><thead>" + line(header_, "th scope=\"col\"", "th scope=\"col\"") + "</thead><tbody>\n";
  for (const std::vector<std::string>& row : rows_) out += line(row, "th scope=\"row\"", "td") + '\n';
  return out + "</tbody></table>";
}

}  // namespace whence
