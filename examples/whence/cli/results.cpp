#include "examples/whence/cli/results.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "examples/whence/cli/json_text.h"
#include "examples/whence/cli/text.h"
#include "tensor/error.h"

namespace whence {
namespace {

// "3.4", "12.5 %", "-" (nothing to show), "nan": what a reader compares digit below digit.
bool looks_like_number(std::string_view cell) {
  if (cell.ends_with('%')) cell.remove_suffix(1);
  while (cell.ends_with(' ')) cell.remove_suffix(1);
  if (cell.starts_with('+')) cell.remove_prefix(1);
  return cell.empty() || cell == "-" || cell == "nan" || cell == "inf" || cell == "-inf" ||
         parse_number<double>(cell).has_value();
}

std::string padded(const std::string& cell, std::size_t width, bool to_the_right) {
  const std::string blanks(width - std::min(width, display_width(cell)), ' ');
  return to_the_right ? blanks + cell : cell + blanks;
}

// A cell with a comma, a quotation mark, a line end or outer blanks goes between quotation marks, its own ones doubled.
// Behind an apostrophe what spreadsheets would take for a formula.
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

std::string text_of(bool value) { return json_truth(value); }
std::string text_of(std::int64_t value) { return std::to_string(value); }
std::string text_of(double value) { return json_number(value); }
std::string text_of(const std::string& value) { return json_string(value); }

std::string object_of(const LogRecord& record, JsonLayout layout) {
  JsonFields fields;
  for (const auto& [name, value] : record)
    fields.emplace_back(name, std::visit([](const auto& content) { return text_of(content); }, value));
  return json_object(fields, layout) + '\n';
}

}  // namespace

Table::Table(std::vector<std::string> header) : header_(std::move(header)) {}

Table& Table::row(std::vector<std::string> cells) {
  if (cells.size() != header_.size())
    throw Error("table: a row of ", cells.size(), " cells given; ", header_.size(), " required, as in the header");
  rows_.push_back(std::move(cells));
  return *this;
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  std::vector<bool> numeric;
  for (std::size_t column = 0; column < header_.size(); ++column) {
    widths.push_back(display_width(header_[column]));
    numeric.push_back(!rows_.empty());
    for (const auto& cells : rows_) {
      widths[column] = std::max(widths[column], display_width(cells[column]));
      numeric[column] = numeric[column] && looks_like_number(cells[column]);
    }
  }
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

std::string fixed(double value, int digits) {
  if (std::isnan(value)) return "nan";  // printf may write "-nan"
  std::array<char, 400> text{};         // the largest double has 309 digits before the point
  const int length = std::snprintf(text.data(), text.size(), "%.*f", std::clamp(digits, 0, 30), value);
  return {text.data(), static_cast<std::size_t>(length)};
}

std::string json_line(const LogRecord& record) { return object_of(record, JsonLayout::line); }

std::string json_page(const LogRecord& record) { return object_of(record, JsonLayout::page); }

JsonLog::JsonLog(const std::filesystem::path& path, Mode mode) : file_(path.string(), mode) {}

void JsonLog::append(const LogRecord& record) { file_.append(json_line(record)); }

}  // namespace whence
