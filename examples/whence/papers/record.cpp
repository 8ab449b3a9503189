#include "examples/whence/papers/record.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <variant>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/papers/text_lines.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence::papers {
namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

// The place of a record's table and preset in the papers; behind all where there is none.
std::pair<std::size_t, std::size_t> place_of(const Record& record) {
  const auto& tables = all_papers().tables;
  const auto table = std::ranges::find(tables, record.table, &PaperTable::name);
  if (table == tables.end()) return {tables.size(), 0};
  const auto preset = std::ranges::find(table->presets, record.preset, &Preset::name);
  return {table - tables.begin(), preset - table->presets.begin()};
}

std::string numbers_text(const std::vector<double>& values) { return joined(values, exact, " "); }

// The fields of one value, in their order.
using Field = std::pair<const char*, std::variant<std::string*, int*, double*>>;
std::vector<Field> fields_of(Record& record) {
  return {{"date", &record.date}, {"program", &record.program}, {"machine", &record.machine},
      {"vectors", &record.vectors}, {"set", &record.set}, {"text", &record.text}, {"lab", &record.lab},
      {"seeds", &record.seeds}, {"runs", &record.runs}, {"failed", &record.failed},
      {"digits", &record.measurement.digits}, {"core-seconds", &record.core_seconds},
      {"measure", &record.measurement.measure}};
}

// Empty where there is nothing to say.
std::string text_of(const Field& field) {
  const auto& value = field.second;
  if (const auto* text = std::get_if<std::string*>(&value)) return **text;
  if (const auto* seconds = std::get_if<double*>(&value)) return fixed(**seconds, 1);
  const int count = **std::get_if<int*>(&value);
  return count == 0 ? "" : std::to_string(count);
}

double number_of(const Line& line, const std::string& text) {
  const auto found = parse_number<double>(text);
  if (!found) line.refuse(in_quotes(text), "a number");
  return *found;
}

void read_numbers(Record& record, const Line& line) {
  const Cells cells = line.cells();
  if (cells.size() != 3) line.refuse(to_text(cells.size(), " cells"), "| METHOD | COLUMN | NUMBERS |");
  Measured& measured = record.measurement.all.emplace_back(Measured{cells[0], cells[1], {}});
  for (const std::string& word : words_in(cells[2]))
    measured.values.push_back(word == exact(not_a_number) ? not_a_number : number_of(line, word));
}

void read_field(Record& record, const Line& line) {
  for (const auto& [key, value] : fields_of(record)) {
    if (line.key != key) continue;
    if (auto* const* text = std::get_if<std::string*>(&value)) return void(**text = line.value);
    const double number = number_of(line, line.value);
    if (auto* const* count = std::get_if<int*>(&value)) return void(**count = static_cast<int>(number));
    return void(*std::get<double*>(value) = number);
  }
  const Cells words = words_in(line.value);
  if (line.key == "operations" && words.size() == 2)
    record.operations[words[0]] = number_of(line, words[1]);
  else if (line.key == "bits" && words.size() >= 3)
    record.bits[line.value.substr(words[0].size() + 1)] = words[0];
  else if (line.key == "|")
    read_numbers(record, line);
  else
    line.refuse(line.key, "a field of a record");
}

// Equal, where nan is like nan.
bool alike(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

}  // namespace

std::string text_of(std::vector<Record> records) {
  std::ranges::stable_sort(records, {}, place_of);
  std::string text = "# Written by `whence reproduce --record`: no number was typed by hand.\n";
  for (Record& record : records) {
    text += to_text("\nrecord ", record.table, ' ', record.preset, '\n');
    const auto put = [&](const char* key, const std::string& value) {
      if (!value.empty()) text += to_text("  ", key, ' ', one_line(value), '\n');
    };
    for (const Field& field : fields_of(record)) put(field.first, text_of(field));
    for (const auto& [preset, count] : record.operations) put("operations", preset + " " + exact(count));
    for (const auto& [trained, bits] : record.bits) put("bits", bits + " " + trained);
    for (const Measured& each : record.measurement.all)
      put("|", to_text(each.method, " | ", each.column, " | ", numbers_text(each.values), " |"));
  }
  return text;
}

std::vector<Record> read_records(const std::string& file, std::string_view text) {
  std::vector<Record> records;
  for (const Line& line : lines_of(file, text)) {
    const Cells words = words_in(line.value);
    if (line.indented && records.empty()) line.refuse(line.key, "record TABLE PRESET before it");
    if (line.indented)
      read_field(records.back(), line);
    else if (line.key != "record" || words.size() != 2)
      line.refuse(line.key, "record TABLE PRESET");
    else
      records.push_back(Record{.table = words[0], .preset = words[1]});
  }
  return records;
}

const Record* find_record(const std::vector<Record>& records, const std::string& table, const std::string& preset) {
  for (const Record& record : records)
    if (record.table == table && record.preset == preset) return &record;
  return nullptr;
}

std::vector<Judged> judged_of(const Record& record) {
  const PaperTable* table = find_named(all_papers().tables, record.table);
  const Preset* preset = table ? find_named(table->presets, record.preset) : nullptr;
  return preset ? judged(*table, *preset, record.measurement) : std::vector<Judged>();
}

std::vector<std::string> differences(const Record& now, const Record& recorded, const std::vector<std::string>& rows) {
  std::vector<std::string> found;
  const auto list = [](const std::vector<double>& values) { return values.empty() ? "nothing" : numbers_text(values); };
  for (const Measured& kept : recorded.measurement.all) {
    if (!rows.empty() && std::ranges::count(rows, kept.method) == 0) continue;
    const std::vector<double> values = now.measurement.of(kept.method, kept.column);
    if (!alike(values, kept.values))
      found.push_back(to_text(kept.method, ", ", kept.column, ": ", list(values), "; recorded: ", list(kept.values)));
  }
  for (const Measured& each : now.measurement.all)
    if (recorded.measurement.of(each.method, each.column).empty())
      found.push_back(to_text(each.method, ", ", each.column, ": ", list(each.values), "; recorded: nothing"));
  return found;
}

std::string time_text(double seconds) {
  constexpr std::pair<double, const char*> units[] = {
      {365 * 86400, "years"}, {86400, "days"}, {3600, "h"}, {60, "min"}};
  for (const auto& [unit, name] : units)
    if (seconds >= 1.5 * unit) return to_text(fixed(seconds / unit, seconds < 10 * unit ? 1 : 0), " ", name);
  return to_text(fixed(seconds, 0), " s");
}

std::string cost_text(const Record& record, const std::string& preset) {
  if (preset == record.preset) return time_text(record.core_seconds / 2);
  const auto own = record.operations.find(record.preset), other = record.operations.find(preset);
  if (own == record.operations.end() || other == record.operations.end()) return "";
  return "about " + time_text(record.core_seconds / 2 * other->second / own->second);
}

}  // namespace whence::papers
