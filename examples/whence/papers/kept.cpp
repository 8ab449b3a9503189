#include "examples/whence/papers/kept.h"

#include <algorithm>

#include "examples/whence/cli/json.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence::papers {
namespace {

namespace fs = std::filesystem;

// "cope-table3-mini"
std::string name_of(const Record& record) {
  std::string name = record.table + "-" + record.preset;
  std::ranges::replace(name, '/', '-');
  return name;
}

std::string json_of(const Record& record, const std::vector<Said>& said) {
  Json::List numbers, commands;
  for (const Measured& each : record.measurement.all)
    numbers.push_back({{"method", each.method}, {"column", each.column}, {"values", each.values}});
  for (const Said& each : said)
    commands.push_back(
        {{"command", each.command}, {"exit_code", each.exit_code}, {"seconds", each.seconds}, {"output", each.output}});
  const Json page{{"table", record.table}, {"preset", record.preset}, {"date", record.date},
      {"program", record.program}, {"machine", record.machine}, {"vectors", record.vectors}, {"lab", record.lab},
      {"text", record.text}, {"seeds", record.seeds}, {"measure", record.measurement.measure}, {"numbers", numbers},
      {"commands", commands}};
  return page.page(1) + "\n";
}

std::string fenced(const std::string& text) { return "\n```\n" + text + "```\n"; }

std::string page_of(const PaperTable& table, const Record& record, const std::vector<Said>& said) {
  std::string text = to_text("# ", table.name, ": ", table.what, "\n\n", table.place, ".\n\n", table.note, '\n');
  for (const Preset& preset : table.presets) {
    if (preset.name != record.preset) continue;
    text += to_text("\nWhy these sizes: ", preset.why, "\n");
    text += "\n    " + record.lab + "\n";
    if (!table.methods.empty())
      text += fenced(beside_paper(table, record.measurement).text()) +
              fenced(verdicts(table, preset, record.measurement).text());
  }
  for (const Said& each : said) {
    text += fenced("$ " + each.command + "\n" + terminal_text(each.output));
    for (const std::string& figure : each.figures)
      text += to_text("\n![", figure, "](figures/", name_of(record), "/", figure, ")\n");
  }
  return text;
}

}  // namespace

void require_own_page(const fs::path& folder) {
  const fs::path page = folder / "README.md";
  const std::string own = summary_page({});
  if (fs::exists(page) && !read_file(page).starts_with(own.substr(0, own.find('\n'))))
    throw InputError("--record: ", page.string(), " is there and is no page of records; another folder required");
}

std::vector<Record> records_in(const fs::path& folder) {
  const fs::path file = folder / "recorded.txt";
  return fs::exists(file) ? read_records(file.string(), read_file(file)) : std::vector<Record>();
}

void keep(const fs::path& folder, const PaperTable& table, const Record& record, const std::vector<Said>& said,
    const fs::path& drawn) {
  const fs::path figures = folder / "figures" / name_of(record);
  for (const Said& each : said) {
    if (!each.figures.empty()) ensure_output_folder(figures);
    for (const std::string& figure : each.figures) write_file((figures / figure).string(), read_file(drawn / figure));
  }
  write_file((folder / (name_of(record) + ".json")).string(), json_of(record, said));
  write_file((folder / (name_of(record) + ".md")).string(), page_of(table, record, said));
  std::vector<Record> records = records_in(folder);
  std::erase_if(
      records, [&](const Record& other) { return other.table == record.table && other.preset == record.preset; });
  records.push_back(record);
  write_records(folder, records);
}

void write_records(const fs::path& folder, const std::vector<Record>& records) {
  require_own_page(folder);
  write_file((folder / "recorded.txt").string(), text_of(records));
  write_file((folder / "README.md").string(), summary_page(records));
}

}  // namespace whence::papers
