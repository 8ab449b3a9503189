#include "examples/whence/papers/record.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "examples/whence/cli/child.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/papers/runs.h"
#include "examples/whence/run/code_hash.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/suggest.h"

namespace whence::papers {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json json_of(const Record& record) {
  Json numbers = Json::array(), said = Json::array();
  for (const Measured& each : record.measurement.all)
    numbers.push_back({{"method", each.method}, {"column", each.column}, {"values", each.values}});
  for (const Said& each : record.said)
    said.push_back(
        {{"command", each.command}, {"exit_code", each.exit_code}, {"seconds", each.seconds}, {"output", each.output}});
  return {{"table", record.table}, {"preset", record.preset}, {"command", record.command}, {"lab", record.lab},
      {"set", record.set}, {"code", record.code}, {"commit", record.commit}, {"machine", record.machine},
      {"date", record.date}, {"text", record.text}, {"seeds", record.seeds}, {"runs", record.runs},
      {"failed", record.failed}, {"processor_seconds", record.processor_seconds}, {"operations", record.operations},
      {"measure", record.measurement.measure}, {"digits", record.measurement.digits}, {"numbers", numbers},
      {"said", said}, {"figures", record.figures}, {"too_large", record.too_large}};
}

// A field of an object, as whatever it is to be; FileError with the field's name.
class Field {
 public:
  Field(const Json& object, const char* name) : name_(name) {
    const auto found = object.is_object() ? object.find(name) : object.end();
    if (found == object.end()) throw FileError("no field '", name, "'; it required");
    value_ = &*found;
  }
  template <class Value> operator Value() const {
    try {
      return value_->get<Value>();
    } catch (const Json::exception&) {
      throw FileError("field '", name_, "' of type ", value_->type_name(), "; another type required");
    }
  }
  const Json& list() const {
    if (!value_->is_array()) throw FileError("field '", name_, "' of type ", value_->type_name(), "; a list required");
    return *value_;
  }

 private:
  const char* name_;
  const Json* value_ = nullptr;
};

Record record_of(const Json& page) {
  const auto at = [&page](const char* name) { return Field(page, name); };
  Record record{at("table"), at("preset"), at("command"), at("lab"), at("set"), at("code"), at("commit"), at("machine"),
      at("date"), at("text"), at("seeds"), at("runs"), at("failed"), at("processor_seconds"), at("operations"),
      {at("measure"), at("digits"), {}}, {}, at("figures"), at("too_large")};
  for (const Json& each : at("numbers").list()) {
    Measured measured{Field(each, "method"), Field(each, "column"), {}};
    for (const Json& value : Field(each, "values").list()) {
      if (!value.is_null() && !value.is_number())
        throw FileError("values of type ", value.type_name(), "; numbers required");
      measured.values.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
    }
    record.measurement.all.push_back(std::move(measured));
  }
  for (const Json& each : at("said").list())
    record.said.push_back(
        {Field(each, "command"), Field(each, "output"), Field(each, "exit_code"), Field(each, "seconds"), {}});
  return record;
}

// What was read must be all that the file says: no field beside them, no 2.5 where a whole number is meant.
Record read_record(const fs::path& file) {
  const std::string text = read_file(file);
  try {
    const Json page = Json::parse(text);
    Record record = record_of(page);
    const Json same = json_of(record);
    for (const auto& [name, value] : page.items())
      if (!same.contains(name) || same[name].dump() != value.dump())
        throw FileError("field ", in_quotes(name), " is not as whence writes it");
    return record;
  } catch (const Json::parse_error& error) {
    const auto lines =
        std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte, text.size())), '\n');
    throw FileError(file.string(), ": line ", lines + 1, ": no record of a table: no JSON from there on");
  } catch (const Json::exception&) {
    throw FileError(file.string(), ": no record of a table: a number beyond what a computer's numbers hold");
  } catch (const FileError& error) { throw FileError(file.string(), ": no record of a table: ", error.what()); }
}

std::vector<std::string> lab_now(const PaperTable& table, const Record& record) {
  if (table.presets.empty()) return {};
  std::vector<std::string> commands;
  const Preset& preset = find_preset(table, record.preset);
  const Given given{record.set, record.text.substr(0, record.text.find(',')), record.seeds};
  for (const std::string& task : tasks_at(table, preset)) commands.push_back(lab_command(table, preset, task, given));
  return commands;
}

// Equal, where nan is like nan.
bool alike(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

}  // namespace

std::string record_name(const std::string& table, const std::string& preset) {
  std::string name = table + "-" + preset;
  std::ranges::replace(name, '/', '-');
  return name;
}

void write_record(const fs::path& folder, const Record& record) {
  ensure_output_folder(folder / "results");
  write_file((folder / "results" / (record_name(record.table, record.preset) + ".json")).string(),
      json_of(record).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::vector<Record> read_records(const fs::path& folder) {
  std::vector<Record> found;
  if (!fs::is_directory(folder / "results")) return found;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder / "results"))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<Record> read;
  for (const fs::path& file : files) read.push_back(read_record(file));
  const auto known = [](const Record& record) {
    return std::ranges::count(all_papers().tables, record.table, &PaperTable::name) > 0;
  };
  for (const PaperTable& table : all_papers().tables)
    std::ranges::copy_if(
        read, std::back_inserter(found), [&](const Record& record) { return record.table == table.name; });
  std::ranges::remove_copy_if(read, std::back_inserter(found), known);
  return found;
}

bool has_place(const Record& record) {
  const std::vector<PaperTable> tables = all_papers().tables;
  const auto table = std::ranges::find(tables, record.table, &PaperTable::name);
  if (table == tables.end()) return false;
  return table->presets.empty() || std::ranges::count(table->presets, record.preset, &Preset::name) > 0;
}

std::vector<Judged> judged_of(const Record& record) {
  const PaperTable table = find_table(record.table);
  if (table.presets.empty()) return {};
  return judged(table, find_preset(table, record.preset), record.measurement);
}

std::string staleness(const Record& record) {
  if (!has_place(record)) return "there is no such table or preset now";
  if (record.code != code_hash()) return to_text("is of code ", record.code, ", this is ", code_hash());
  return record.lab == lab_now(find_table(record.table), record) ? "" : "its preset has other options now";
}

std::vector<std::string> differences(const Record& now, const Record& recorded, const std::vector<std::string>& rows) {
  std::vector<std::string> found;
  const auto list = [](const std::vector<double>& values) {
    return values.empty() ? "nothing" : joined(values, [](double value) { return number_text(value); });
  };
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

double cost_of(const Record& record) {
  double seconds = record.processor_seconds / 2;
  for (const Said& said : record.said) seconds += said.seconds;
  return seconds;
}

std::string time_text(double seconds) {
  constexpr std::pair<double, const char*> units[] = {
      {365 * 86400, "years"}, {86400, "days"}, {3600, "h"}, {60, "min"}};
  for (const auto& [unit, name] : units)
    if (seconds >= 1.5 * unit) return to_text(fixed(seconds / unit, seconds < 10 * unit ? 1 : 0), " ", name);
  return to_text(fixed(seconds, 0), " s");
}

std::string cost_text(const Record& record) { return time_text(cost_of(record)); }

std::string cost_text(const Record& record, const std::string& preset) {
  if (preset == record.preset) return cost_text(record);
  const auto own = record.operations.find(record.preset), other = record.operations.find(preset);
  if (own == record.operations.end() || other == record.operations.end()) return "";
  return "about " + time_text(record.processor_seconds / 2 * other->second / own->second);
}

std::string commit_of(const fs::path& folder, const fs::path& said) {
  const auto ask = [&](std::vector<std::string> words) -> std::optional<std::string> {
    words.insert(words.begin(), {"git", "-C", folder.string()});
    if (wait_for_child(start_child(words, said.string(), Errors::in_the_file)) != 0) return std::nullopt;
    const std::string text = read_file(said.string());
    return text.substr(0, text.find('\n'));
  };
  const auto commit = ask({"rev-parse", "--short=10", "HEAD"});
  if (!commit || !ask({"cat-file", "-e", "HEAD:examples/whence/papers/paper_table.h"})) return "unknown";
  const auto changed = ask({"status", "--porcelain", "--untracked-files=no", "--", ":/tensor", ":/autograd", ":/nn",
      ":/examples/whence/tasks", ":/examples/whence/language", ":/examples/whence/run"});
  return *commit + (changed && !changed->empty() ? "+" : "");
}

std::string machine_of(const DeviceChoice& choice) {
  std::ifstream file("/proc/cpuinfo");
  std::string model = "unknown processor";
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) {
      model = line.substr(line.find(": ") + 2);
      break;
    }
  return to_text(model, ", ", threads(), " threads", choice.device.is_cpu() ? "" : "; " + choice.sentence);
}

}  // namespace whence::papers
