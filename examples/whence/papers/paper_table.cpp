#include "examples/whence/papers/paper_table.h"

#include <cmath>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/papers/text_lines.h"
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence::papers {
namespace {

// "6.8 (6.9)" as a mean and a standard deviation, or a mean alone.
Printed figure_of(const Line& line, const std::string& text) {
  const std::size_t open = std::min(text.find(" ("), text.size());
  const bool alone = open == text.size();
  const auto mean = parse_number<double>(text.substr(0, open));
  const auto deviation = alone || !text.ends_with(')')
                             ? std::nullopt
                             : parse_number<double>(text.substr(open + 2, text.size() - open - 3));
  if (!mean || (!alone && !deviation)) line.refuse(in_quotes(text), "a figure, as 6.8 (6.9) or 6.8, or -");
  Printed printed{.method = {}, .column = {}, .mean = *mean};
  if (deviation) printed.deviation = *deviation;
  return printed;
}

int whole(const Line& line, const std::string& text) {
  const auto number = parse_number<int>(text);
  if (!number) line.refuse(in_quotes(text), "a whole number");
  return *number;
}

bool one_of(const Line& line, const std::string& first, const std::string& second) {
  if (line.value != first && line.value != second) line.refuse(in_quotes(line.value), first + " or " + second);
  return line.value == first;
}

std::vector<std::string> schemes_in(const std::string& text) {
  std::vector<std::string> schemes;
  for (const std::string& scheme : list_of(text)) schemes.push_back(canonical_text(parse_schemes(scheme)));
  return schemes;
}

// A row of a table, and where it stands.
struct Row {
  const Line* line;
  Cells cells;
};

// Rows and columns exchanged: papers print some tables so.
std::vector<Row> turned(const std::vector<Row>& rows) {
  std::vector<Row> result(rows[0].cells.size(), {rows[0].line, {}});
  for (const Row& row : rows) {
    if (row.cells.size() != result.size())
      row.line->refuse("rows of unequal lengths", to_text(result.size(), " cells in each"));
    for (std::size_t k = 0; k < result.size(); ++k) result[k].cells.push_back(row.cells[k]);
  }
  return result;
}

// One file.
class Reader {
 public:
  explicit Reader(Papers& papers) : papers_(papers) {}

  void read(const std::vector<Line>& lines) {
    for (const Line& line : lines) {
      if (!line.indented)
        begin_block(line);
      else if (sizes_)
        read_preset(*sizes_, line);
      else if (table_)
        read_field(line);
      else
        line.refuse(in_quotes(line.key), "a line without indentation");
      if (&line == &lines.back() || !(&line + 1)->indented) end_block(line);
    }
    for (const Borrowed& borrowed : borrowed_) take_figures(borrowed);
  }

 private:
  // Figures of another table, which may stand behind this one.
  struct Borrowed {
    const Line* line;
    std::size_t table;
    std::string method, place;
  };

  // ---- Blocks

  void begin_block(const Line& line) {
    const std::size_t blank = std::min(line.value.find(' '), line.value.size());
    const std::string name = line.value.substr(0, blank), rest = trimmed(line.value.substr(blank));
    if (name.empty()) line.refuse(in_quotes(line.key), "a name behind it");
    if (line.key == "paper")
      papers_.titles.emplace_back(name, rest);
    else if (line.key == "let")
      papers_.texts[name] = with_texts(line, rest);
    else if (line.key == "sizes")
      sizes_ = &papers_.sizes[name];
    else if (line.key != "table")
      line.refuse(in_quotes(line.key), "paper, let, sizes or table");
    else if (find_named(papers_.tables, name))
      line.refuse(to_text("a second table ", name), "a name of its own");
    else
      table_ = &papers_.tables.emplace_back(PaperTable{.name = name});
  }

  void end_block(const Line& last) {
    if (table_) end_table(last);
    table_ = nullptr, sizes_ = nullptr;
    rows_.clear(), claims_.clear(), set_of_all_.clear();
    accuracy_ = false;
  }

  // "$NAME" is what `let NAME` says.
  std::string with_texts(const Line& line, const std::string& text) const {
    const std::size_t dollar = text.find('$');
    if (dollar == std::string::npos) return text;
    std::size_t end = dollar + 1;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
    const auto found = papers_.texts.find(text.substr(dollar + 1, end - dollar - 1));
    if (found == papers_.texts.end()) line.refuse(text.substr(dollar, end - dollar), "a name of `let` before it");
    return text.substr(0, dollar) + found->second + with_texts(line, text.substr(end));
  }

  // ---- Presets: "mini.set steps=300"; with "+" behind it, more of what it was

  void read_preset(std::vector<Preset>& presets, const Line& line) const {
    const bool more = line.key.ends_with('+');
    const std::string key = line.key.substr(0, line.key.size() - more);
    const std::size_t dot = std::min(key.find('.'), key.size());
    const std::string name = key.substr(0, dot), field = key.substr(std::min(dot + 1, key.size()));
    auto preset = std::ranges::find(presets, name, &Preset::name);
    if (preset == presets.end())
      preset = presets.insert(preset, {.name = name, .lab = name == "mini" ? "mini" : "paper"});
    const std::string text = with_texts(line, line.value);
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
      preset->seeds = whole(line, text);
    } else {
      line.refuse(in_quotes(key), "set, why, lab, schemes, tasks or seeds of a preset");
    }
  }

  // "NAME" or "NAME mini small": all presets of a name of `sizes`, or these.
  void take_sizes(const Line& line) const {
    const Cells words = words_in(line.value);
    const auto found = papers_.sizes.find(words.empty() ? "" : words[0]);
    if (found == papers_.sizes.end()) line.refuse(in_quotes(line.value), "a name of `sizes` before it");
    for (const Preset& preset : found->second)
      if (words.size() == 1 || std::ranges::count(words, preset.name) > 0) table_->presets.push_back(preset);
  }

  // ---- Fields of a table

  void read_field(const Line& line) {
    PaperTable& table = *table_;
    const std::map<std::string, std::string*> texts{{"what", &table.what}, {"place", &table.place},
        {"note", &table.note}, {"measure", &table.measure}, {"set", &set_of_all_}};
    const std::map<std::string, std::vector<std::string>*> lists{{"task", &table.tasks}, {"vary", &table.vary}};
    if (const auto text = texts.find(line.key); text != texts.end())
      *text->second = with_texts(line, line.value);
    else if (const auto list = lists.find(line.key); list != lists.end())
      *list->second = words_in(line.value);
    else if (line.key == "schemes")
      table.schemes = schemes_in(line.value);
    else if (line.key == "|")
      rows_.push_back({&line, line.cells()});
    else if (line.key == "reads")
      table.reads = one_of(line, "text", "code") ? Reads::text : Reads::code;
    else if (line.key == "same-tokens")
      table.same_tokens = one_of(line, "yes", "no");
    else if (line.key == "higher-is-better")
      table.higher_is_better = one_of(line, "yes", "no");
    else if (line.key == "figures")
      accuracy_ = one_of(line, "accuracy", "error");
    else if (line.key == "columns")
      table.columns = other_table(line, line.value).columns;
    else if (line.key == "sizes")
      take_sizes(line);
    else if (line.key == "better")
      claims_.push_back(&line);
    else if (line.key == "run")
      table.commands.push_back(line.value);
    else if (line.key.find('.') != std::string::npos)
      read_preset(table.presets, line);
    else
      line.refuse(in_quotes(line.key), "a field of a table");
  }

  const PaperTable& other_table(const Line& line, const std::string& name) const {
    const PaperTable* found = find_named(papers_.tables, name);
    if (!found) line.refuse(in_quotes(name), "the name of another table");
    return *found;
  }

  // ---- The figures

  // | | scheme | COLUMN | ..., below it | task, set, times, step or an axis | | VALUE | ..., then
  // | METHOD | SCHEME | FIGURE | ...
  void read_rows() {
    if (rows_.size() > 1 && rows_[1].cells[0] == "scheme") rows_ = turned(rows_);
    const std::size_t shared = table_->columns.size();
    for (const auto& [line, cells] : rows_) {
      if (cells.size() < 2) line->refuse("a row of one cell", "a name and a scheme");
      if (cells[0].empty() && cells[1] == "scheme")
        for (std::size_t k = 2; k < cells.size(); ++k) table_->columns.push_back({.name = cells[k]});
      else if (cells[1].empty())
        for (std::size_t k = 2; k < cells.size(); ++k) place_column(*line, cells[0], cells[k], shared + k - 2);
      else
        read_method(*line, cells);
    }
  }

  void place_column(const Line& line, const std::string& what, const std::string& value, std::size_t column) const {
    if (value == "-") return;
    if (column >= table_->columns.size()) line.refuse(in_quotes(value), "a column above it");
    Column& found = table_->columns[column];
    if (what == "task")
      found.task = value;
    else if (what == "set")
      found.set = value;
    else if (what == "times" || what == "step")
      (what == "times" ? found.times : found.step) = whole(line, value);
    else
      found.at.emplace_back(what, value);
  }

  // The scheme may have axes behind it: "rope; length=32". In place of figures, "of METHOD in TABLE" takes those that
  // another table has in columns of equal names.
  void read_method(const Line& line, const Cells& row) {
    const Cells scheme = split_at(row[1], ";");
    Method& method = table_->methods.emplace_back(Method{row[0], canonical_text(parse_schemes(scheme[0]))});
    for (std::size_t k = 1; k < scheme.size(); ++k) {
      const Cells axis = split_at(scheme[k], "=");
      if (axis.size() != 2) line.refuse(in_quotes(scheme[k]), "AXIS=VALUE");
      method.at.emplace_back(axis[0], axis[1]);
    }
    if (row.size() == 3 && row[2].starts_with("of ")) {
      borrowed_.push_back({&line, papers_.tables.size() - 1, row[0], row[2].substr(3)});
      return;
    }
    if (row.size() != 2 && row.size() != table_->columns.size() + 2)
      line.refuse(to_text(row.size() - 2, " figures of ", row[0]), to_text("none, or ", table_->columns.size()));
    for (std::size_t k = 2; k < row.size(); ++k) {
      if (row[k] == "-") continue;
      Printed& printed = table_->printed.emplace_back(figure_of(line, row[k]));
      printed.method = row[0], printed.column = table_->columns[k - 2].name;
      if (accuracy_) printed.mean = std::round((100 - printed.mean) * 100) / 100;
    }
  }

  void take_figures(const Borrowed& borrowed) {
    const std::size_t in = borrowed.place.rfind(" in ");
    if (in == std::string::npos) borrowed.line->refuse(in_quotes(borrowed.place), "of METHOD in TABLE");
    const std::string other = borrowed.place.substr(0, in);
    const std::vector<Printed> printed = other_table(*borrowed.line, borrowed.place.substr(in + 4)).printed;
    if (std::ranges::count(printed, other, &Printed::method) == 0)
      borrowed.line->refuse(in_quotes(other), "a method of that table");
    PaperTable& table = papers_.tables[borrowed.table];
    for (Printed each : printed) {
      if (each.method != other || !find_named(table.columns, each.column)) continue;
      each.method = borrowed.method;
      table.printed.push_back(each);
    }
  }

  // "CoPE > RoPE & ALiBi | In-dist | OOD", or "| *" for all columns
  void read_claim(const Line& line) const {
    Cells columns = split_at(line.value, " | ");
    const Cells sides = split_at(columns[0], " > ");
    columns.erase(columns.begin());
    if (sides.size() != 2 || columns.empty())
      line.refuse(in_quotes(line.value), "METHOD > METHOD & METHOD | COLUMN | ...");
    if (columns[0] == "*") {
      columns.clear();
      for (const Column& column : table_->columns) columns.push_back(column.name);
    }
    const Cells worse = split_at(sides[1], " & ");
    for (const std::string& column : columns)
      for (const std::string& method : worse) table_->claims.push_back({sides[0], method, column});
    for (const auto& [better, method, column] : table_->claims) {
      if (!find_named(table_->columns, column)) line.refuse(in_quotes(column), "a column of the table");
      for (const std::string& name : {better, method})
        if (!find_named(table_->methods, name)) line.refuse(in_quotes(name), "a method of the table");
    }
  }

  void end_table(const Line& last) {
    PaperTable& table = *table_;
    read_rows();
    for (Column& column : table.columns) {
      if (table.presets.empty() || !column.set.empty() || column.times > 0 || column.step > 0) continue;
      if (set_of_all_.empty()) last.refuse(to_text("column ", column.name), "set, times or step of each column");
      column.set = set_of_all_;
    }
    for (const Line* claim : claims_) read_claim(*claim);
    const auto add_new = [](std::vector<std::string>& to, const std::string& each) {
      if (!each.empty() && std::ranges::count(to, each) == 0) to.push_back(each);
    };
    for (const Column& column : table.columns) add_new(table.tasks, column.task);
    for (const Method& method : table.methods) add_new(table.schemes, method.scheme);
    if (!table.presets.empty() && !table.methods.empty())
      table.kind = Kind::compared;
    else if (!table.commands.empty())
      table.kind = Kind::commanded;
    if (table.what.empty() || table.place.empty()) last.refuse("the end of " + table.name, "what and place before it");
    if (table.presets.empty() != table.tasks.empty())
      last.refuse("the end of " + table.name, "a task and presets, or neither, before it");
  }

  Papers& papers_;
  std::vector<Preset>* sizes_ = nullptr;
  std::vector<Borrowed> borrowed_;
  // Of the table that is read.
  PaperTable* table_ = nullptr;
  std::vector<Row> rows_;
  std::vector<const Line*> claims_;  // read behind the figures, whose names they have
  std::string set_of_all_;
  bool accuracy_ = false;  // is printed, whence measures error
};

}  // namespace

void read_tables(const std::string& file, std::string_view text, Papers& papers) {
  Reader(papers).read(lines_of(file, text));
}

const PaperTable& table_named(const std::string& name) {
  const PaperTable* found = find_named(all_papers().tables, name);
  if (!found) throw Error("papers: no table ", name);
  return *found;
}

}  // namespace whence::papers
