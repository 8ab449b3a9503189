// score: multiple choice and cloze by log-likelihood, from a language model that `train lm` left.
#include <cmath>
#include <filesystem>
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/language/choices.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/machine/memory_plan.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/report/table.h"
#include "examples/whence/run/loading.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

using namespace whence::language;

struct Options {
  std::vector<std::string> runs;
  std::string data, too_long = "cut", out;
  std::int64_t length = 0;
  bool no_blank = false, quiet = false, accept_damaged = false;
  MachineOptions machine;
};

// A number for each question.
struct Totals {
  std::vector<double> by_sum, per_character, per_byte, chance;  // of multiple choice
  std::vector<double> greedy, log_probability;                  // of cloze
  std::int64_t readings = 0, cut = 0, unknown = 0;

  void add(const Question& question, const std::vector<ChoiceScore>& scores) {
    for (const ChoiceScore& score : scores) ++readings, cut += score.cut, unknown += score.unknown > 0;
    if (question.cloze()) {
      greedy.push_back(scores[0].greedy);
      log_probability.push_back(scores[0].log_probability);
      return;
    }
    by_sum.push_back(best_by_sum(scores) == question.answer);
    per_character.push_back(best_per_character(scores) == question.answer);
    per_byte.push_back(best_per_byte(scores) == question.answer);
    chance.push_back(1 / static_cast<double>(scores.size()));
  }
};

Table table_of(const Totals& totals) {
  Table table({"what", "value", "standard error", "questions", "by chance"});
  const auto percent = [&](const char* what, const std::vector<double>& values, double chance) {
    const Summary found = summary(values);
    if (found.count > 0)
      table.row({what, fixed(100 * found.mean, 2), fixed(100 * found.standard_error(), 2), std::to_string(found.count),
          fixed(100 * chance, 2)});
  };
  const double chance = summary(totals.chance).mean;
  percent("accuracy %, sum of log p", totals.by_sum, chance);
  percent("accuracy %, log p per character", totals.per_character, chance);
  percent("accuracy %, log p per byte", totals.per_byte, chance);
  percent("cloze: greedy answers %", totals.greedy, std::nan(""));
  if (!totals.greedy.empty())
    table.row({"cloze: perplexity of an answer", fixed(std::exp(-summary(totals.log_probability).mean), 3), "-",
        std::to_string(totals.greedy.size()), "-"});
  return table;
}

std::string line_of(const Question& question, const std::vector<ChoiceScore>& scores) {
  Json line{{"place", question.place}, {"answer", question.answer}};
  if (!question.cloze())
    line.add("by_sum", best_by_sum(scores))
        .add("per_character", best_per_character(scores))
        .add("per_byte", best_per_byte(scores));
  Json::List choices;
  for (const ChoiceScore& score : scores) {
    choices.push_back({{"log_probability", score.log_probability}, {"tokens", score.tokens},
        {"characters", score.characters}, {"bytes", score.bytes}, {"greedy", score.greedy}, {"cut", score.cut}});
  }
  return line.add("choices", choices).line() + '\n';
}

void declare_options(CommandLine& line, Options& options) {
  line.names("RUN", &options.runs, "folder that `train lm` wrote")
      .heading("Questions")
      .text("data", &options.data,
          {"JSON lines of context, choices and the answer's number from 0; or of context and answer alone: a cloze"})
      .integer("length", &options.length, Range<std::int64_t>{0, 1 << 20},
          {"that the model reads at most; 0: as many as it was trained on", "tokens"})
      .choice("too-long", &options.too_long, {"cut", "refuse"}, {"cut: the left of the context is left out"})
      .flag("no-blank", &options.no_blank, {"nothing between context and choice, where otherwise a blank is"})
      .text("out", &options.out,
          {"file for a JSON line on each question: log p, tokens, characters and bytes of its choices"});
  declare_accept_damaged(line, options.accept_damaged);
  declare(line, options.machine);
  line.flag("quiet", &options.quiet, {"no progress"});
  line.example(
      "whence score runs/austen --data questions.jsonl", "accuracies by the sum of log p, per character and per byte");
}

void print(const Totals& totals, index_t length) {
  const auto note = [&](std::int64_t count, const std::string& what) {
    if (count > 0) std::cout << "note: " << count << " of " << totals.readings << " texts" << what << '\n';
  };
  note(totals.cut, to_text(", each a context with a choice, are longer than ", length,
                       " tokens: the left of the context was not read"));
  note(totals.unknown, " have tokens that the tokeniser does not know");
  std::cout << table_of(totals).text();
}

// Before hours of work, not behind them.
void check(const CommandLine& line, const Options& options) {
  require_one_run(options.runs);
  if (options.data.empty()) line.refuse("data", "a file of JSON lines", "context, choices and answer in each");
  std::error_code none;
  const std::filesystem::path folder = std::filesystem::path(options.out).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, none))
    line.refuse("out", "a file in a folder that is there", "make that folder, or choose another");
  line.refuse_onto("out", options.data);
  ensure_output_file(options.out);
}

int run(CommandLine& line) {
  Options options;
  declare_options(line, options);
  if (line.shows_page()) return 0;
  check(line, options);
  const Placement placement = placement_of(options.machine);
  install_interrupt_handler();
  const std::vector<Question> questions = read_questions(options.data);
  const SavedModel saved = load_language_model(options.runs[0], {}, options.accept_damaged);
  place(*saved.model, placement);
  const ChoiceOptions reading{.length = options.length > 0 ? options.length : saved.model->options().length,
      .refuse = options.too_long == "refuse",
      .blank = !options.no_blank};
  const PlannedPass pass{.model = saved.model->options(),
      .device = saved.model->device(),
      .length = reading.length,
      .remedy = "choose a smaller --length",
      .loaded = true};
  const std::string memory = require_pass_memory(pass);
  if (!options.quiet) std::cerr << memory << '\n';

  Totals totals;
  std::string lines;
  Progress progress("score", static_cast<std::int64_t>(questions.size()), options.quiet);
  for (const Question& question : questions) {
    stop_if_interrupted("scoring");
    const std::vector<ChoiceScore> scores = score_choices(*saved.model, *saved.tokeniser, question, reading);
    totals.add(question, scores);
    lines += line_of(question, scores);
    progress.update(static_cast<std::int64_t>(totals.chance.size() + totals.greedy.size()), 0, {});
  }
  progress.finish();
  print(totals, reading.length);
  if (options.out.empty()) return 0;
  write_file(options.out, lines);
  std::cout << "written: " << one_line(options.out) << '\n';
  return 0;
}

const RegisterCommand registered{
    {"score", Purpose::train, "multiple choice and cloze by a language model's log-likelihood", run}};

}  // namespace
}  // namespace whence
