// The page of all records: what the papers claim, and what of it holds here.
#include <array>
#include <set>

#include "examples/whence/lab/outcome.h"
#include "examples/whence/papers/record.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence::papers {
namespace {

// A row of Markdown.
std::string row(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& each : cells) text += " " + each + " |";
  return text + "\n";
}

std::string head(const std::vector<std::string>& names) {
  std::string rule = "|";
  for (std::size_t k = 0; k < names.size(); ++k) rule += "---|";
  return row(names) + rule + "\n";
}

// The record of the smallest preset; nullptr: nothing is recorded.
const Record* smallest(const PaperTable& table, const std::vector<Record>& records) {
  for (const Preset& preset : table.presets)
    if (const Record* record = find_record(records, table.name, preset.name)) return record;
  return table.presets.empty() ? find_record(records, table.name, "mini") : nullptr;
}

std::vector<const PaperTable*> tables_of(const std::string& paper) {
  std::vector<const PaperTable*> tables;
  for (const PaperTable& table : all_papers().tables)
    if (table.name.starts_with(paper + "/")) tables.push_back(&table);
  return tables;
}

// How many comparisons there are, and how many of them hold, do not, and are not decided.
using Counts = std::array<int, 4>;
Counts counts_of(const Record* record) {
  Counts counts{};
  if (!record) return counts;
  for (const Judged& each : judged_of(*record))
    ++counts[0], ++counts[1 + static_cast<std::size_t>(each.decision.verdict)];
  return counts;
}

// Tables, records and verdicts of each paper.
std::string sums_of(const std::vector<Record>& records) {
  std::string text = head({"paper", "tables and figures", "recorded", "comparisons", "hold", "do not",
      "not decided at this size", "two cores"});
  for (const auto& [paper, title] : all_papers().titles) {
    int recorded = 0;
    double seconds = 0;
    Counts sums{};
    const std::vector<const PaperTable*> tables = tables_of(paper);
    for (const PaperTable* table : tables) {
      const Record* record = smallest(*table, records);
      const Counts counts = counts_of(record);
      for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += counts[k];
      if (record) ++recorded, seconds += record->core_seconds / 2;
    }
    std::vector<std::string> cells{title, std::to_string(tables.size()), std::to_string(recorded)};
    for (const int sum : sums) cells.push_back(std::to_string(sum));
    cells.push_back(time_text(seconds));
    text += row(cells);
  }
  return text;
}

// "CoPE over RoPE (In-dist, OOD), over Absolute PE (In-dist)"
std::string comparisons_of(std::vector<Judged> all, Verdict verdict) {
  std::erase_if(all, [&](const Judged& each) { return each.decision.verdict != verdict; });
  const auto sides_of = [](const Judged& each) { return std::pair(each.claim.better, each.claim.worse); };
  std::string text;
  for (const auto& [sides, claims] : parts_by(all, sides_of)) {
    const std::string columns = joined(
        claims, [](const Judged* each) { return each->claim.column; }, "; ");
    text += to_text(text.empty() ? "" : ", ", sides.first, " over ", sides.second, " (", columns, ")");
  }
  return text;
}

// A line for each table of the paper: what is recorded of it, or why nothing is.
std::string index_of(const std::string& paper, const std::vector<Record>& records) {
  std::string text =
      head({"table or figure", "what it asks", "comparisons", "hold", "do not", "not decided", "two cores"});
  for (const PaperTable* table : tables_of(paper)) {
    const Record* record = smallest(*table, records);
    const std::string lacks = record || table->kind != Kind::not_ours ? "" : "; lacks: " + table->note;
    std::vector<std::string> cells{table->name, table->what + lacks};
    const Counts counts = counts_of(record);
    for (const int count : counts) cells.push_back(counts[0] == 0 ? "-" : std::to_string(count));
    cells.push_back(record ? time_text(record->core_seconds / 2) : "-");
    text += row(cells);
  }
  return text;
}

// A line for each table with comparisons.
std::string verdicts_of(const std::string& paper, const std::vector<Record>& records) {
  std::string text;
  for (const PaperTable* table : tables_of(paper)) {
    const Record* record = smallest(*table, records);
    const std::vector<Judged> all = record ? judged_of(*record) : std::vector<Judged>();
    if (all.empty()) continue;
    text += "\n- " + table->name;
    for (const auto& [verdict, words] : {std::pair(Verdict::holds, "holds"), {Verdict::does_not, "**does not hold**"},
             {Verdict::not_decided, "not decided"}})
      if (const std::string found = comparisons_of(all, verdict); !found.empty())
        text += to_text(text.ends_with(table->name) ? ": " : ". ", words, ": ", found);
    text += ".";
  }
  return text + "\n";
}

std::string facts_of(const std::vector<Record>& records) {
  std::set<std::string> machines, dates, programs, texts;
  for (const Record& record : records) {
    machines.insert(record.machine + ", " + record.vectors), dates.insert(record.date.substr(0, 10));
    programs.insert(record.program);
    if (!record.text.empty()) texts.insert(record.text);
  }
  return to_text("Machine: ", joined(machines, std::identity{}, "; "), ". Date: ", joined(dates, std::identity{}, "; "),
      ". Program: ", joined(programs, std::identity{}, "; "), ". Texts: ", joined(texts, std::identity{}, "; "),
      ". Times are those of all runs of a table on two cores that do nothing else; runs that two tables share are in "
      "both, but were trained once.\n\n");
}

constexpr const char* how_to = R"(# The papers' tables and figures, ours beside theirs

    whence reproduce --list                                   # what each asks, how it is had here, what it costs
    whence reproduce cope/table3                              # ours beside the paper's, with verdicts
    whence reproduce all --data TEXT --code FOLDER --record MINE   # every table, kept with its figures in MINE
    whence reproduce --stale                                  # would this program give the recorded numbers?
    whence reproduce cope/table3 --check                      # the numbers must be those recorded

[recorded.txt](recorded.txt) has the number of every seed; this page is written from it. A comparison that a paper makes
*holds* or *does not* where Welch's test over the seeds says so (two-sided, p < 0.05), or where all seeds of both sides agree
exactly; else it is *not decided at this size*. Some comparisons stand in several tables, on the same runs. Where a table is
recorded at several sizes, the smallest is counted. The papers' own tables are text: [cope.table](cope.table),
[dape.table](dape.table), [dape_v2.table](dape_v2.table).

)";

}  // namespace

std::string summary_page(const std::vector<Record>& records) {
  std::string text = how_to + facts_of(records) + sums_of(records);
  for (const auto& [paper, title] : all_papers().titles)
    text += to_text("\n## ", title, "\n\n", index_of(paper, records), verdicts_of(paper, records));
  return text;
}

}  // namespace whence::papers
