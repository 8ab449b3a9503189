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
  return word.empty() || word == "-" || word == "–" || word == "nan" || word == "inf" || word == "-inf" ||
         parse_number<double>(word).has_value();
}

std::string padded(const std::string& cell, std::size_t width, bool to_the_right) {
  const std::string blanks(width - std::min(width, display_width(cell)), ' ');
  return to_the_right ? blanks + cell : cell + blanks;
}

// Quotes a cell with a comma, a quotation mark, a line end or outer blanks, and doubles its quotation marks. An apostrophe
// precedes a cell that spreadsheets would read as a formula.
std::string csv_cell(const std::string& cell) {
  if (!cell.empty() && std::string_view("=+-@\t\r").find(cell[0]) != std::string_view::npos && !looks_like_number(cell))
    return csv_cell('\'' + cell);
  const bool blank_ends = !cell.empty() && (cell.front() == ' ' || cell.back() == ' ');
  if (cell.find_first_of(",\"\r\n") == std::string::npos && !blank_ends) return cell;
  std::string text = "\"";
  for (const char c : cell) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + '"';
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += ',';
    line += csv_cell(cells[i]);
  }
  return line + '\n';
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
  for (std::size_t column = 0; column < header_.size(); ++column) {
    widths.push_back(display_width(header_[column]));
    for (const auto& cells : rows_) widths[column] = std::max(widths[column], display_width(cells[column]));
  }
  const std::vector<bool> numeric = numeric_columns();
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string result;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) result += "  ";
      result += padded(one_line(cells[i]), widths[i], numeric[i]);
    }
    return result.substr(0, result.find_last_not_of(' ') + 1) + '\n';
  };
  std::vector<std::string> rule;
  for (const std::size_t width : widths) rule.emplace_back(width, '-');
  std::string result = line(header_) + line(rule);
  for (const auto& cells : rows_) result += line(cells);
  return result;
}

std::string Table::csv() const {
  std::string result = csv_line(header_);
  for (const auto& cells : rows_) result += csv_line(cells);
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
  const auto cell = [&numeric](const std::string& tag, std::size_t column, const std::string& text) {
    const std::string name = tag.substr(0, 2), style = numeric[column] ? " class=\"n\"" : "";
    return "<" + tag + style + ">" + report::escape(text) + "</" + name + ">";
  };
  std::string out = "<table><thead><tr>";
  for (std::size_t column = 0; column < header_.size(); ++column)
    out += cell("th scope=\"col\"", column, header_[column]);
  out += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : rows_) {
    out += "<tr>";
    for (std::size_t column = 0; column < row.size(); ++column)
      out += cell(column == 0 ? "th scope=\"row\"" : "td", column, row[column]);
    out += "</tr>\n";
  }
  return out + "</tbody></table>";
}

}  // namespace whence
