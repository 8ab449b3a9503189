// The page of all records: what the papers claim, and what of it holds here.
#include <algorithm>
#include <map>
#include <sstream>

#include "examples/whence/cli/text.h"
#include "examples/whence/lab/outcome.h"
#include "examples/whence/papers/record.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence::papers {
namespace {

struct Paper {
  std::string prefix, title;
};

std::vector<Paper> titles() {
  std::vector<Paper> all;
  for (const auto& [name, title] : all_papers().titles) all.push_back({name + "/", title});
  return all;
}

constexpr const char* title = "# The papers' tables and figures, ours beside theirs";

std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

// A row of Markdown.
std::string row(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& each : cells) text += " " + cell(each) + " |";
  return text + "\n";
}

std::string rule(std::size_t columns) {
  std::string text = "|";
  for (std::size_t k = 0; k < columns; ++k) text += "---|";
  return text + "\n";
}

bool is_in(const std::vector<Judged>& all, const Method& method) {
  return std::ranges::any_of(
      all, [&](const Judged& each) { return each.claim.better == method.name || each.claim.worse == method.name; });
}

std::string shown_mean(const std::vector<double>& values, const Measurement& measurement) {
  return values.empty() ? "-" : mean_and_deviation(summary(values), measurement.digits);
}

// By method and column: ours, and behind a stroke what the paper prints.
std::string numbers_of(const PaperTable& table, const Measurement& measurement, const std::vector<Judged>& all) {
  std::vector<std::string> head{measurement.measure};
  std::vector<const Column*> columns;
  for (const Column& column : table.columns) {
    const bool there =
        std::ranges::any_of(measurement.all, [&](const Measured& each) { return each.column == column.name; });
    if (there) columns.push_back(&column), head.push_back(column.name);
  }
  std::string text = row(head) + rule(head.size());
  for (const Method& method : table.methods) {
    std::vector<std::string> cells{method.name};
    bool any = false;
    for (const Column* column : columns) {
      const std::vector<double> values = measurement.of(method.name, column->name);
      const std::string printed = printed_text(table, method.name, column->name);
      any = any || !values.empty();
      cells.push_back(shown_mean(values, measurement) + (printed == "-" ? "" : " / " + printed));
    }
    if (any || is_in(all, method)) text += row(cells);
  }
  std::vector<std::string> guesses{best_guess};
  for (const Column* column : columns)
    guesses.push_back(shown_mean(measurement.of(best_guess, column->name), measurement));
  const bool guessed =
      std::ranges::any_of(guesses, [](const std::string& each) { return each != best_guess && each != "-"; });
  return text + (guessed ? row(guesses) : "");
}

std::string verdicts_of(const std::vector<Judged>& all) {
  std::string text = row({"the paper's comparison", "column", "here", "test", "the paper's own figures"}) + rule(5);
  for (const Judged& each : all)
    text += row({to_text(each.claim.better, " better than ", each.claim.worse), each.claim.column,
        (each.decision.verdict == Verdict::holds ? "**holds**" : verdict_text(each.decision.verdict)),
        each.decision.test, each.by_the_paper.empty() ? "-" : each.by_the_paper});
  return text;
}

// Lines that a page has room for; the record has them whole.
std::string cut_lines(const std::string& text) {
  std::istringstream lines(text);
  std::string cut;
  for (std::string line; std::getline(lines, line);) {
    const std::string shown = cut_to_width(line, 240);
    cut += shown + (shown.size() < line.size() ? " ..." : "") + "\n";
  }
  return cut;
}

// Folded, as they may be long; of many commands in one piece.
std::string outputs_of(const Record& record) {
  std::string text;
  const auto fold = [&](const std::string& head, const std::string& body) {
    text += to_text("\n<details><summary>", head, "</summary>\n\n```\n", body, "```\n\n</details>\n");
  };
  std::string all;
  for (const Said& said : record.said) {
    const std::string output = cut_lines(said.output);
    const std::string end = said.exit_code == 0 ? "" : to_text(", exit code ", said.exit_code);
    if (record.said.size() <= 3)
      fold(to_text("<code>", said.command, "</code>, ", fixed(said.seconds, 1), " s", end), output);
    all += to_text("$ ", said.command, end, "\n", output);
  }
  if (record.said.size() > 3) fold(to_text(record.said.size(), " commands"), all);
  return text;
}

// As it is typed; of several tasks with the same words one line with all their names.
std::string lab_of(const Record& record) {
  std::vector<std::pair<std::string, std::string>> tasks_by_words;
  for (const std::string& command : record.lab) {
    const std::string rest = command.substr(std::string("whence lab ").size());
    const std::string task = rest.substr(0, rest.find(' ')), words = rest.substr(rest.find(' '));
    const auto same = std::ranges::find(tasks_by_words, words, &std::pair<std::string, std::string>::second);
    if (same == tasks_by_words.end())
      tasks_by_words.emplace_back(task, words);
    else
      same->first += " " + task;
  }
  std::string text;
  for (const auto& [tasks, words] : tasks_by_words) text += "\n    whence lab " + tasks + words + "\n";
  return text;
}

std::string part_of(const PaperTable& table, const Record& record) {
  std::string text = to_text("\n<a id=\"", record_name(record.table, record.preset), "\"></a>\n\n### ", table.name,
      ": ", table.what, "\n\n", table.place, ". `", record.command, "`");
  if (record.runs > 0)
    text += to_text(": ", record.runs, " runs", record.failed > 0 ? to_text(", ", record.failed, " failed") : "", ", ",
        cost_text(record));
  text += ".\n";
  if (!table.note.empty()) text += "\n" + table.note + "\n";
  if (!table.presets.empty()) {
    const std::string& why = find_preset(table, record.preset).why;
    if (!why.empty()) text += "\nWhy these sizes: " + why + "\n";
  }
  text += lab_of(record);
  if (!table.methods.empty()) {
    const std::vector<Judged> all = judged_of(record);
    text += "\n" + numbers_of(table, record.measurement, all);
    if (!all.empty()) text += "\n" + verdicts_of(all);
  }
  text += outputs_of(record);
  for (const std::string& figure : record.figures) text += to_text("\n![", figure, "](results/figures/", figure, ")\n");
  for (const std::string& figure : record.too_large) text += to_text("\nToo large to be kept here: ", figure, ".\n");
  return text;
}

// The record of the smallest preset; nullptr: nothing is recorded.
const Record* smallest(const PaperTable& table, const std::vector<Record>& records) {
  for (const Preset& preset : table.presets)
    for (const Record& record : records)
      if (record.table == table.name && record.preset == preset.name) return &record;
  const auto found = std::ranges::find(records, table.name, &Record::table);
  return found == records.end() ? nullptr : &*found;
}

// A line for each table of the paper: what is recorded of it, or why nothing is.
std::string index_of(const Paper& paper, const std::vector<Record>& records) {
  std::string text =
      row({"table or figure", "what it asks", "comparisons", "hold", "do not", "not decided", "two cores"}) + rule(7);
  for (const PaperTable& table : all_papers().tables) {
    if (!table.name.starts_with(paper.prefix)) continue;
    const Record* record = smallest(table, records);
    if (!record) {
      const std::string why = table.kind == Kind::not_ours ? "; lacks: " + table.note : "";
      text += row({table.name, table.what + why, "-", "-", "-", "-", "-"});
      continue;
    }
    const Count count = count_of(judged_of(*record));
    const auto shown_count = [&](int number) { return count.all() == 0 ? "-" : std::to_string(number); };
    text += row({to_text("[", table.name, "](#", record_name(record->table, record->preset), ")"), table.what,
        shown_count(count.all()), shown_count(count.holds), shown_count(count.does_not), shown_count(count.not_decided),
        cost_text(*record)});
  }
  return text;
}

// Rows, records and verdicts of each paper.
std::string counts_of(const std::vector<Record>& records) {
  std::string text = row({"paper", "tables and figures", "recorded", "comparisons", "hold", "do not",
                         "not decided at this size", "two cores"}) +
                     rule(8);
  for (const Paper& paper : titles()) {
    int rows = 0, recorded = 0;
    double seconds = 0;
    Count sum;
    for (const PaperTable& table : all_papers().tables) {
      if (!table.name.starts_with(paper.prefix)) continue;
      ++rows;
      const Record* record = smallest(table, records);
      if (!record) continue;
      const Count count = count_of(judged_of(*record));
      ++recorded, seconds += cost_of(*record), sum.holds += count.holds, sum.does_not += count.does_not,
          sum.not_decided += count.not_decided;
    }
    text += row({paper.title, std::to_string(rows), std::to_string(recorded), std::to_string(sum.all()),
        std::to_string(sum.holds), std::to_string(sum.does_not), std::to_string(sum.not_decided), time_text(seconds)});
  }
  return text;
}

std::string introduction_of(const std::vector<Record>& records) {
  std::map<std::string, int> machines, dates, commits, texts;
  for (const Record& record : records) {
    ++machines[record.machine], ++dates[record.date.substr(0, 10)], ++commits[record.commit];
    if (!record.text.empty()) ++texts[record.text];
  }
  const auto names = [](const std::map<std::string, int>& all) {
    std::string text;
    for (const auto& [name, count] : all) text += (text.empty() ? "" : "; ") + name;
    return text;
  };
  return to_text(title,
      "\n\nWritten by `whence reproduce --record` from [results](results): no number of ours was typed by hand. In "
      "each cell stands ours, the mean with the standard deviation over seeds, then behind a stroke what the paper "
      "prints. A comparison that the paper makes *holds* or *does not* where Welch's test over the seeds says so "
      "(two-sided, p < 0.05), or where all seeds of both sides agree exactly; else it is *not decided at this size*. "
      "The last column is the same test of the means and deviations that the paper prints, three seeds each. Some "
      "comparisons stand in several tables, on the same runs. Where a table is recorded at several sizes, the smallest "
      "is counted.\n\nMachine: ",
      names(machines), ". Date: ", names(dates), ". Commit: ", names(commits), ". Texts: ", names(texts),
      ". Times are half of the processor's time in all runs of a table, as on two cores that do nothing else; runs "
      "that two tables share are in both, but were trained once.\n\n");
}

}  // namespace

void require_own_page(const std::filesystem::path& folder) {
  const std::filesystem::path page = folder / "README.md";
  if (std::filesystem::exists(page) && !read_file(page.string()).starts_with(title))
    throw InputError("--record: ", page.string(), " is there and is no page of records; another folder required");
}

void write_page(const std::filesystem::path& folder) {
  require_own_page(folder);
  std::vector<Record> records = read_records(folder);
  std::erase_if(records, [](const Record& record) { return !has_place(record); });
  std::string text = introduction_of(records) + counts_of(records);
  for (const Paper& paper : titles()) {
    text += to_text("\n## ", paper.title, "\n");
    text += "\n" + index_of(paper, records);
    for (const Record& record : records)
      if (record.table.starts_with(paper.prefix)) text += part_of(find_table(record.table), record);
  }
  write_file((folder / "README.md").string(), text);
}

}  // namespace whence::papers
