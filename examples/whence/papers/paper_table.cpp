#include "examples/whence/papers/paper_table.h"

#include <algorithm>
#include <cmath>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/papers/text_lines.h"
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence::papers {
namespace {

// One file. Every error is thrown with the number of the line that is being read.
class Reader {
 public:
  Reader(const std::string& file, std::string_view text, Papers& papers)
      : file_(file), papers_(papers), lines_(lines_of(file, text)) {}

  void read() {
    for (const Line& line : lines_) {
      at_ = line.number;
      if (!line.indented)
        begin_block(line);
      else if (sizes_)
        read_preset(*sizes_, line.key, line.value);
      else if (table_)
        read_field(line);
      else
        refuse(in_quotes(line.key), "a line without indentation");
    }
    end_table();
    for (const Borrowed& borrowed : borrowed_) take_figures(borrowed);
  }

 private:
  // Figures of another table, which may stand behind this one.
  struct Borrowed {
    std::size_t line, table;
    std::string method, place;
  };

  [[noreturn]] void refuse(const std::string& found, const std::string& required) const {
    refuse_line(file_, at_, found, required);
  }

  // ---- Blocks

  void begin_block(const Line& line) {
    end_table();
    sizes_ = nullptr;
    const std::size_t blank = std::min(line.value.find(' '), line.value.size());
    const std::string name = line.value.substr(0, blank), rest = trimmed(line.value.substr(blank));
    if (name.empty()) refuse(in_quotes(line.key), "a name behind it");
    if (line.key == "paper")
      papers_.titles.emplace_back(name, rest);
    else if (line.key == "let")
      papers_.texts[name] = with_texts(rest);
    else if (line.key == "sizes")
      sizes_ = &papers_.sizes[name];
    else if (line.key != "table")
      refuse(in_quotes(line.key), "paper, let, sizes or table");
    else if (std::ranges::count(papers_.tables, name, &PaperTable::name) > 0)
      refuse(to_text("a second table ", name), "a name of its own");
    else
      table_ = &papers_.tables.emplace_back(PaperTable{.name = name});
  }

  // "$NAME" is what `let NAME` says.
  std::string with_texts(const std::string& text) const {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
      if (text[at] != '$') {
        result += text[at++];
        continue;
      }
      std::size_t end = at + 1;
      while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
      const auto found = papers_.texts.find(text.substr(at + 1, end - at - 1));
      if (found == papers_.texts.end()) refuse(text.substr(at, end - at), "a name of `let` before it");
      result += found->second;
      at = end;
    }
    return result;
  }

  std::vector<std::string> schemes_in(const std::string& text) const {
    std::vector<std::string> schemes;
    for (const std::string& scheme : list_of(text)) schemes.push_back(canonical_text(parse_schemes(scheme)));
    return schemes;
  }

  // ---- Presets: "mini.set steps=300"; with "+" behind it, more of what it was

  void read_preset(std::vector<Preset>& presets, std::string key, const std::string& value) const {
    const bool more = key.ends_with('+');
    if (more) key.pop_back();
    const std::size_t dot = std::min(key.find('.'), key.size());
    const std::string name = key.substr(0, dot), field = key.substr(std::min(dot + 1, key.size()));
    auto preset = std::ranges::find(presets, name, &Preset::name);
    if (preset == presets.end())
      preset = presets.insert(preset, {.name = name, .lab = name == "mini" ? "mini" : "paper"});
    const std::string text = with_texts(value);
    if (field == "set" || field == "why") {
      std::string& old = field == "set" ? preset->set : preset->why;
      old = more && !old.empty() ? old + " " + text : text;
    } else if (field == "lab") {
      preset->lab = text;
    } else if (field == "schemes") {
      preset->schemes = schemes_in(text);
    } else if (field == "tasks") {
      preset->tasks = words_in(text);
    } else if (field == "seeds") {
      preset->seeds = whole(text);
    } else {
      refuse(in_quotes(key), "set, why, lab, schemes, tasks or seeds of a preset");
    }
  }

  // "NAME" or "NAME mini small": all presets of a name of `sizes`, or these.
  void take_sizes(const std::string& value) const {
    const Cells words = words_in(value);
    const auto found = papers_.sizes.find(words.empty() ? "" : words[0]);
    if (found == papers_.sizes.end()) refuse(in_quotes(value), "a name of `sizes` before it");
    for (const Preset& preset : found->second)
      if (words.size() == 1 || std::ranges::count(words, preset.name) > 0) table_->presets.push_back(preset);
  }

  // ---- Fields of a table

  void read_field(const Line& line) {
    PaperTable& table = *table_;
    const std::map<std::string, std::string*> texts{{"what", &table.what}, {"place", &table.place},
        {"note", &table.note}, {"measure", &table.measure}, {"set", &set_of_all_}};
    if (const auto text = texts.find(line.key); text != texts.end())
      *text->second = with_texts(line.value);
    else if (line.key == "|")
      rows_.push_back(cells_of(file_, line));
    else if (line.key == "task")
      table.grid.tasks = words_in(line.value);
    else if (line.key == "schemes")
      table.grid.schemes = schemes_in(line.value);
    else if (line.key == "vary")
      table.grid.vary = words_in(line.value);
    else if (line.key == "reads")
      table.grid.reads = one_of(line.value, "text", "code") ? Reads::text : Reads::code;
    else if (line.key == "same-tokens")
      table.grid.same_tokens = one_of(line.value, "yes", "no");
    else if (line.key == "higher-is-better")
      table.higher_is_better = one_of(line.value, "yes", "no");
    else if (line.key == "figures")
      accuracy_ = one_of(line.value, "accuracy", "error");
    else if (line.key == "columns")
      table.columns = find_table(line.value).columns;
    else if (line.key == "sizes")
      take_sizes(line.value);
    else if (line.key == "better")
      claims_.push_back(line);
    else if (line.key == "run")
      table.commands.push_back(line.value);
    else if (line.key.find('.') != std::string::npos)
      read_preset(table.presets, line.key, line.value);
    else
      refuse(in_quotes(line.key), "a field of a table");
  }

  bool one_of(const std::string& value, const std::string& first, const std::string& second) const {
    if (value != first && value != second) refuse(in_quotes(value), to_text(first, " or ", second));
    return value == first;
  }

  int whole(const std::string& text) const {
    const auto number = parse_number<int>(text);
    if (!number) refuse(in_quotes(text), "a whole number");
    return *number;
  }

  const PaperTable& find_table(const std::string& name) const {
    const auto found = std::ranges::find(papers_.tables, name, &PaperTable::name);
    if (found == papers_.tables.end()) refuse(in_quotes(name), "the name of another table");
    return *found;
  }

  // ---- The figures

  // Rows and columns exchanged: papers print some tables so.
  static std::vector<Cells> turned(const std::vector<Cells>& rows) {
    std::vector<Cells> result(rows[0].size());
    for (const Cells& row : rows)
      for (std::size_t k = 0; k < row.size(); ++k) result[k].push_back(row[k]);
    return result;
  }

  // | | scheme | COLUMN | ..., | task, set, times, step or an axis | | VALUE | ..., then | METHOD | SCHEME | FIGURE | ...
  void read_rows() {
    if (rows_.empty()) return;
    const std::size_t width = rows_[0].size();
    if (rows_.size() > 1 && rows_[1][0] == "scheme") {
      if (std::ranges::any_of(rows_, [&](const Cells& row) { return row.size() != width; }))
        refuse("rows of unequal lengths", to_text(width, " cells in each"));
      rows_ = turned(rows_);
    }
    const std::size_t shared = table_->columns.size();
    for (const Cells& row : rows_) {
      if (row.size() < 2) refuse("a row of one cell", "a name and a scheme");
      if (row[0].empty() && row[1] == "scheme")
        for (std::size_t k = 2; k < row.size(); ++k) table_->columns.push_back({.name = row[k]});
      else if (row[1].empty())
        for (std::size_t k = 2; k < row.size(); ++k) place_column(row[0], row[k], shared + k - 2);
      else
        read_method(row);
    }
    if (table_->presets.empty()) return;  // the paper's figures alone
    for (Column& column : table_->columns) {
      const bool own = !column.set.empty() || column.times > 0 || column.step > 0;
      if (!own && set_of_all_.empty()) refuse(to_text("column ", column.name), "set, times or step of each column");
      if (!own) column.set = set_of_all_;
    }
  }

  void place_column(const std::string& what, const std::string& value, std::size_t column) const {
    if (value == "-") return;
    if (column >= table_->columns.size()) refuse(in_quotes(value), "a column above it");
    Column& found = table_->columns[column];
    if (what == "task")
      found.task = value;
    else if (what == "set")
      found.set = value;
    else if (what == "times" || what == "step")
      (what == "times" ? found.times : found.step) = whole(value);
    else
      found.at.emplace_back(what, value);
  }

  // The scheme may have axes behind it: "rope; length=32". In place of figures, "of METHOD in TABLE" takes those that
  // another table has in columns of equal names.
  void read_method(const Cells& row) {
    const Cells scheme = split_at(row[1], ";");
    Method& method = table_->methods.emplace_back(Method{row[0], canonical_text(parse_schemes(scheme[0]))});
    for (std::size_t k = 1; k < scheme.size(); ++k) {
      const Cells axis = split_at(scheme[k], "=");
      if (axis.size() != 2) refuse(in_quotes(scheme[k]), "AXIS=VALUE");
      method.at.emplace_back(axis[0], axis[1]);
    }
    if (row.size() == 3 && row[2].starts_with("of ")) {
      borrowed_.push_back({at_, papers_.tables.size() - 1, row[0], row[2].substr(3)});
      return;
    }
    if (row.size() != 2 && row.size() != table_->columns.size() + 2)
      refuse(to_text(row.size() - 2, " figures of ", row[0]), to_text("none, or ", table_->columns.size()));
    for (std::size_t k = 2; k < row.size(); ++k)
      if (row[k] != "-") table_->printed.push_back(figure(row[0], table_->columns[k - 2].name, row[k]));
  }

  void take_figures(const Borrowed& borrowed) {
    at_ = borrowed.line;
    const std::size_t in = borrowed.place.rfind(" in ");
    if (in == std::string::npos) refuse(in_quotes(borrowed.place), "of METHOD in TABLE");
    const std::string other = borrowed.place.substr(0, in);
    const std::vector<Printed> printed = find_table(borrowed.place.substr(in + 4)).printed;
    if (std::ranges::count(printed, other, &Printed::method) == 0) refuse(in_quotes(other), "a method of that table");
    PaperTable& table = papers_.tables[borrowed.table];
    for (Printed each : printed) {
      const bool here = std::ranges::count(table.columns, each.column, &Column::name) > 0;
      if (each.method != other || !here) continue;
      each.method = borrowed.method;
      table.printed.push_back(each);
    }
  }

  // "6.8 (6.9)": mean and standard deviation.
  Printed figure(const std::string& method, const std::string& column, const std::string& text) const {
    const std::size_t open = std::min(text.find(" ("), text.size());
    const auto mean = parse_number<double>(text.substr(0, open));
    const bool alone = open == text.size();
    const auto deviation = alone || !text.ends_with(')')
                               ? std::nullopt
                               : parse_number<double>(text.substr(open + 2, text.size() - open - 3));
    if (!mean || (!alone && !deviation)) refuse(in_quotes(text), "a figure, as 6.8 (6.9) or 6.8, or -");
    Printed printed{method, column, accuracy_ ? std::round((100 - *mean) * 100) / 100 : *mean};
    if (deviation) printed.deviation = *deviation;
    return printed;
  }

  // "CoPE > RoPE & ALiBi | In-dist | OOD", or "| *" for all columns
  void read_claim(const std::string& value) const {
    Cells columns = split_at(value, " | ");
    const Cells sides = split_at(columns[0], " > ");
    columns.erase(columns.begin());
    if (sides.size() != 2 || columns.empty()) refuse(in_quotes(value), "METHOD > METHOD & METHOD | COLUMN | ...");
    if (columns[0] == "*") {
      columns.clear();
      for (const Column& column : table_->columns) columns.push_back(column.name);
    }
    const auto require = [&](const auto& known, auto name, const std::string& wanted, const std::string& what) {
      if (std::ranges::count(known, wanted, name) == 0) refuse(in_quotes(wanted), what + " of the table");
    };
    require(table_->methods, &Method::name, sides[0], "a method");
    for (const std::string& column : columns) {
      require(table_->columns, &Column::name, column, "a column");
      for (const std::string& worse : split_at(sides[1], " & ")) {
        require(table_->methods, &Method::name, worse, "a method");
        table_->claims.push_back({sides[0], worse, column});
      }
    }
  }

  void end_table() {
    if (!table_) return;
    PaperTable& table = *table_;
    read_rows();
    for (const Line& claim : claims_) at_ = claim.number, read_claim(claim.value);
    const auto add_new = [](std::vector<std::string>& to, const std::string& each) {
      if (!each.empty() && std::ranges::count(to, each) == 0) to.push_back(each);
    };
    for (const Column& column : table.columns) add_new(table.grid.tasks, column.task);
    for (const Method& method : table.methods) add_new(table.grid.schemes, method.scheme);
    if (!table.presets.empty() && !table.methods.empty())
      table.kind = Kind::compared;
    else if (!table.commands.empty())
      table.kind = Kind::commanded;
    if (table.what.empty() || table.place.empty()) refuse("the end of " + table.name, "what and place before it");
    if (table.presets.empty() != table.grid.tasks.empty())
      refuse("the end of " + table.name, "a task and presets, or neither, before it");
    table_ = nullptr;
    rows_.clear(), claims_.clear(), set_of_all_.clear();
    accuracy_ = false;
  }

  std::string file_;
  Papers& papers_;
  std::vector<Line> lines_;
  std::size_t at_ = 0;  // the line that is read
  std::vector<Preset>* sizes_ = nullptr;
  std::vector<Borrowed> borrowed_;
  // Of the table that is read.
  PaperTable* table_ = nullptr;
  std::vector<Cells> rows_;
  std::vector<Line> claims_;  // read behind the figures, whose names they have
  std::string set_of_all_;
  bool accuracy_ = false;  // is printed, whence measures error
};

}  // namespace

void read_tables(const std::string& file, std::string_view text, Papers& papers) { Reader(file, text, papers).read(); }

const PaperTable& table_named(const std::string& name) {
  const auto& tables = all_papers().tables;
  const auto found = std::ranges::find(tables, name, &PaperTable::name);
  if (found == tables.end()) throw Error("papers: no table ", name);
  return *found;
}

}  // namespace whence::papers
