#include "examples/whence/papers/listing.h"

#include <algorithm>
#include <iostream>

#include "examples/whence/cli/text.h"
#include "tensor/suggest.h"
#include "examples/whence/papers/runs.h"
#include "examples/whence/papers/short_trainings.h"
#include "nn/io/files.h"
#include "tensor/cpu/instruction_set.h"
#include "tensor/error.h"

namespace whence::papers {
namespace {

namespace fs = std::filesystem;

std::string recorded_text(const PaperTable& table, const std::vector<Record>& records) {
  std::string text;
  for (const Record& record : records) {
    if (record.table != table.name) continue;
    const Count count = count_of(judged_of(record));
    text += to_text("; recorded ", record.preset, " ", one_line(record.date.substr(0, 10)),
        count.all() > 0 ? to_text(": ", count.holds, " of ", count.all(), " hold") : "");
  }
  return text;
}

std::string cost_of(const PaperTable& table, const std::vector<Record>& records) {
  std::string text;
  for (const Preset& preset : table.presets) {
    std::string cost;
    for (const Record& record : records)
      if (record.table == table.name && (cost.empty() || record.preset == preset.name))
        cost = cost_text(record, preset.name);
    text += to_text(text.empty() ? ": " : ", ", preset.name, " ", cost.empty() ? "of unknown cost" : cost);
  }
  return text;
}

std::string how(const PaperTable& table) {
  switch (table.kind) {
    case Kind::compared: return "trained, compared";
    case Kind::commanded: return table.presets.empty() ? "commands" : "trained, then commands";
    case Kind::not_ours: return "lacks: " + table.note;
  }
  throw Error(table.name, ": of no kind");
}

// Lines of less than 120 columns, each but the first after `indent` blanks.
std::string indented(const std::string& text, std::size_t indent) {
  return joined(wrapped(text, 119 - indent), std::identity(), '\n' + std::string(indent, ' ')) + '\n';
}

// Why a record would come out otherwise now; empty: it would not. `bits`: of this program.
std::string staleness(const Record& record, const PaperTable& table, const Bits& bits) {
  if (!table.presets.empty()) {
    const Asked asked{.preset = record.preset,
        .set = record.set,
        .text = record.text.substr(0, record.text.find(',')),
        .code = record.text.substr(0, record.text.find(',')),
        .device = {},
        .methods = {},
        .seeds = record.seeds,
        .folder = {}};
    if (lab_command(table, asked) != record.lab) return "its preset has other options now";
  }
  std::string differ;
  for (const auto& [trained, now] : bits) {
    const auto then = record.bits.find(trained);
    const std::string was = then == record.bits.end() ? "nothing" : then->second;
    if (was != now) differ += to_text("\n  bits ", now, " ", trained, "; recorded ", was);
  }
  return differ.empty() ? "" : "short trainings give other bits:" + differ;
}

}  // namespace

void print_list(const std::vector<Record>& records) {
  constexpr std::size_t indent = 28;
  std::cout << "Costs are on two cores.\n";
  for (const PaperTable& table : all_papers().tables) {
    std::string name = table.name;
    name.resize(std::max(indent, name.size() + 1), ' ');
    std::cout << name << indented(to_text(table.what, " (", table.place, ")"), indent) << std::string(indent, ' ')
              << indented(how(table) + cost_of(table, records) + recorded_text(table, records), indent);
  }
}

void print_staleness(const std::vector<Record>& records, const fs::path& folder, int jobs, const TrainCheck& check) {
  const std::string vectors = to_string(instruction_set());
  std::vector<ShortTraining> trainings;
  std::vector<const Record*> told;
  std::size_t stale = 0;
  const auto say = [&](const Record& record, const std::string& why) {
    if (why.empty()) return;
    ++stale;
    std::cout << "STALE: " << one_line(to_text(record.table, ", ", record.preset, ", of ", record.date.substr(0, 10)))
              << ": " << terminal_text(why) << '\n';
  };
  for (const Record& record : records) {
    const auto& tables = all_papers().tables;
    const auto table = std::ranges::find(tables, record.table, &PaperTable::name);
    const bool there = table != tables.end() &&
                       (table->presets.empty() || std::ranges::count(table->presets, record.preset, &Preset::name) > 0);
    if (!there) {
      say(record, "there is no such table or preset now");
    } else if (record.vectors == vectors || table->presets.empty()) {
      trainings.push_back({&*table, record.preset, record.set});
      told.push_back(&record);
    }
  }
  if (fs::exists(folder)) remove_whole(folder.string());
  const auto bits = bits_of(trainings, folder, jobs, check);
  remove_whole(folder.string());
  for (std::size_t k = 0; k < told.size(); ++k) say(*told[k], staleness(*told[k], *trainings[k].table, bits[k]));
  std::cout << records.size() << " results recorded, " << stale << " that this program would not give";
  if (const std::size_t other = records.size() - told.size(); other > 0)
    std::cout << ", " << other << " of which it cannot tell: they are not of " << vectors << " or not of its tables";
  std::cout << '\n';
}

}  // namespace whence::papers
