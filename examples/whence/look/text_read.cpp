// The text as lines of a terminal, each token shaded by one row of a quantity of pairs.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "examples/whence/cli/terminal.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/wanted.h"
#include "examples/whence/look/written.h"
#include "examples/whence/report/encode.h"
#include "tensor/error.h"

namespace whence::look {
namespace {

int axis_of(const Quantity& quantity, char letter) { return static_cast<int>(quantity.probe->axes.find(letter) / 2); }

// "[0,1,30,all]"
std::string place_of(const Wanted& wanted) {
  std::string place;
  for (int axis = 0; axis < wanted.at.rank(); ++axis)
    place += to_text(axis ? "," : "", axis == axis_of(*wanted.quantity, 'j') ? "all" : std::to_string(wanted.at[axis]));
  return '[' + place + ']';
}

// What one query makes of each token.
struct Row {
  std::vector<double> values;
  std::vector<bool> hidden;  // by the mask
  double largest = 0;        // |value| of those that are not hidden and finite
  bool falls = false;        // some are below 0
  bool overflows = false;    // some are NaN or infinite
};

Row row_of(const Inspection& inspection, const Wanted& wanted) {
  const Quantity& quantity = *wanted.quantity;
  const std::vector<double> numbers = (wanted.gradient ? quantity.gradient : quantity.value).to_vector();
  const int axis = axis_of(quantity, 'j');
  Shape at = wanted.at;
  Row row;
  // Some have columns behind the last key; the text ends before them.
  const index_t keys = std::min(quantity.value.size(axis), static_cast<index_t>(inspection.subject().texts.size()));
  for (at[axis] = 0; at[axis] < keys; ++at[axis]) {
    const std::size_t element = element_at(at, quantity.value.shape());
    row.values.push_back(numbers[element] + 0.0);  // no -0
    row.hidden.push_back(inspection.reasons()[quantity.reasons[element]].stop == Stop::masked);
    if (row.hidden.back()) continue;
    if (!std::isfinite(numbers[element])) {
      row.overflows = true;
      continue;
    }
    row.largest = std::max(row.largest, std::abs(numbers[element]));
    row.falls = row.falls || numbers[element] < 0;
  }
  return row;
}

// 0 to 9 of the largest, with its sign.
int level_of(const Row& row, std::size_t key) {
  if (row.hidden[key] || !(row.largest > 0) || !std::isfinite(row.values[key])) return 0;
  return static_cast<int>(std::lround(9 * row.values[key] / row.largest));
}

char mark_of(const Row& row, std::size_t key) {
  if (row.hidden[key]) return '.';
  if (!std::isfinite(row.values[key])) return '?';
  const int level = level_of(row, key);
  return static_cast<char>(level < 0 ? 'a' - 1 - level : '0' + level);
}

// Black on what lies between white and orange, or white and blue: to be read on light and dark terminals alike.
std::string coloured(const std::string& text, int level) {
  if (level == 0) return text;
  const auto towards = [&](int end) { return 255 + (end - 255) * std::abs(level) / 9; };
  const std::string background =
      level > 0 ? to_text("255;", towards(140), ';', towards(30)) : to_text(towards(90), ';', towards(150), ";255");
  return to_text("\x1b[38;2;0;0;0;48;2;", background, 'm', text, "\x1b[0m");
}

// Lines of the text, with lines of marks below where there are no colours.
class Lines {
 public:
  Lines(const Row& row, const TextStyle& style)
      : row_(row), style_(style), columns_(std::max<std::size_t>(style.columns, 20)) {}

  void add(std::size_t key, const std::string& token) {
    std::string rest = one_line(token);
    if (display_width(rest) == 0) rest = rest.empty() ? "<>" : "\u25CC" + rest;  // marks that combine need a letter
    if (used_ + display_width(rest) > columns_) end();
    while (!rest.empty()) {
      const std::string piece = cut_to_width(rest, columns_);
      place(key, piece);
      rest.erase(0, piece.size());
      if (!rest.empty()) end();
    }
    if (token.ends_with('\n')) end();
  }

  std::string text() {
    end();
    return std::move(out_);
  }

 private:
  void place(std::size_t key, const std::string& piece) {
    const std::size_t width = display_width(piece);
    line_ += style_.colours ? coloured(piece, level_of(row_, key)) : piece;
    marks_ += mark_of(row_, key) + std::string(width - 1, ' ');
    used_ += width;
  }

  void end() {
    if (used_ == 0) return;
    out_ += line_ + '\n';
    if (!style_.colours) out_ += marks_.substr(0, marks_.find_last_not_of(' ') + 1) + '\n';
    line_.clear(), marks_.clear(), used_ = 0;
  }

  const Row& row_;
  const TextStyle& style_;
  std::size_t columns_, used_ = 0;
  std::string line_, marks_, out_;
};

std::string legend_of(const Row& row, const TextStyle& style) {
  const std::string most = report::number(row.largest, 4);
  const bool hides = std::ranges::find(row.hidden, true) != row.hidden.end();
  if (style.colours)
    return to_text("orange: up to ", most, row.falls ? to_text("; blue: down to -", most) : "", "; none: next to 0",
        hides ? ", masked," : "", row.overflows ? " or no finite number" : "", '\n');
  return to_text("0 to 9 below a token: 0 to ", most, row.falls ? to_text("; a to i: down to -", most) : "",
      hides ? "; .: masked" : "", row.overflows ? "; ?: NaN or infinite" : "", '\n');
}

Table strongest(const Subject& subject, const Row& row, const std::string& name) {
  std::vector<std::size_t> keys(row.values.size());
  std::iota(keys.begin(), keys.end(), std::size_t{0});
  std::erase_if(keys, [&](std::size_t key) { return row.hidden[key]; });
  std::ranges::stable_sort(
      keys, [&](std::size_t a, std::size_t b) { return std::abs(row.values[a]) > std::abs(row.values[b]); });
  Table table({"j", "token", name});
  for (std::size_t k = 0; k < std::min<std::size_t>(keys.size(), 10); ++k)
    table.row({std::to_string(keys[k]), in_quotes(subject.texts[keys[k]]), report::number(row.values[keys[k]], 6)});
  return table;
}

}  // namespace

TextStyle TextStyle::for_standard_output() {
  return {static_cast<std::size_t>(terminal_columns(STDOUT_FILENO)), shows_colours(STDOUT_FILENO)};
}

std::string text_read(const Inspection& inspection, const std::string& what, const TextStyle& style) {
  const Wanted wanted = wanted_row_of(inspection, what, "--read");
  const Quantity& quantity = *wanted.quantity;
  if (wanted.gradient && !quantity.gradient.defined())
    throw InputError("--read: dLoss/d", quantity.name, " given, which no gradient is taken of; another required");
  const Subject& subject = inspection.subject();
  const Row row = row_of(inspection, wanted);
  const std::string name = (wanted.gradient ? "dLoss/d" : "") + quantity.probe->name;
  const auto i = static_cast<std::size_t>(wanted.at[axis_of(quantity, 'i')]);
  std::string out = to_text(wanted.gradient ? "dLoss/d " : "", quantity.path, place_of(wanted), ", query ", i, ' ',
      in_quotes(subject.texts.at(i)), ": ", quantity.probe->caption, '\n', legend_of(row, style), '\n');
  Lines lines(row, style);
  for (std::size_t token = 0; token < row.values.size(); ++token) lines.add(token, subject.texts[token]);
  return out + lines.text() + '\n' + strongest(subject, row, name).text();
}

}  // namespace whence::look
