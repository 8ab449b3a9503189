// score: multiple choice and cloze by log-likelihood, from a language model that `train lm` left.
#include <cmath>
#include <filesystem>
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/language/choices.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/machine/memory_plan.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/report/table.h"
#include "examples/whence/run/loading.h"
#include "nn/io/files.h"
#include "nn/io/json.h"
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

// Numbers of one kind over questions.
struct Sample {
  std::int64_t count = 0;
  double sum = 0, squares = 0;

  void add(double value) { ++count, sum += value, squares += value * value; }
  double mean() const { return sum / static_cast<double>(count); }
  // Of the mean, from the spread of a sample.
  double standard_error() const {
    const auto n = static_cast<double>(count);
    return count < 2 ? std::nan("") : std::sqrt(std::max(0.0, squares / n - mean() * mean()) / (n - 1));
  }
};

struct Totals {
  Sample by_sum, per_byte, chance;  // of multiple choice
  Sample greedy, log_probability;   // of cloze
  std::int64_t readings = 0, cut = 0, unknown = 0;

  void add(const Question& question, const std::vector<ChoiceScore>& scores) {
    for (const ChoiceScore& score : scores) ++readings, cut += score.cut, unknown += score.unknown > 0;
    if (question.cloze()) {
      greedy.add(scores[0].greedy);
      log_probability.add(scores[0].log_probability);
      return;
    }
    by_sum.add(best_by_sum(scores) == question.answer);
    per_byte.add(best_per_byte(scores) == question.answer);
    chance.add(1 / static_cast<double>(scores.size()));
  }
};

Table table_of(const Totals& totals) {
  Table table({"what", "value", "standard error", "questions", "by chance"});
  const auto percent = [&](const char* what, const Sample& sample, const std::string& chance) {
    table.row({what, fixed(100 * sample.mean(), 2), sample.count < 2 ? "-" : fixed(100 * sample.standard_error(), 2),
        std::to_string(sample.count), chance});
  };
  if (totals.by_sum.count > 0) {
    const std::string chance = fixed(100 * totals.chance.mean(), 2);
    percent("accuracy %, sum of log p", totals.by_sum, chance);
    percent("accuracy %, log p per byte", totals.per_byte, chance);
  }
  if (totals.greedy.count > 0) {
    percent("cloze: greedy answers %", totals.greedy, "-");
    table.row({"cloze: perplexity of an answer", fixed(std::exp(-totals.log_probability.mean()), 3), "-",
        std::to_string(totals.greedy.count), "-"});
  }
  return table;
}

std::string line_of(const Question& question, const std::vector<ChoiceScore>& scores) {
  Json line{{"place", question.place}, {"answer", question.answer}};
  if (!question.cloze()) line.add("by_sum", best_by_sum(scores)).add("per_byte", best_per_byte(scores));
  Json::List choices;
  for (const ChoiceScore& score : scores) {
    choices.push_back({{"log_probability", score.log_probability}, {"tokens", score.tokens}, {"bytes", score.bytes},
        {"greedy", score.greedy}, {"cut", score.cut}});
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
      .text("out", &options.out, {"file for a JSON line on each question: log p, tokens and bytes of its choices"});
  declare_accept_damaged(line, options.accept_damaged);
  declare(line, options.machine);
  line.flag("quiet", &options.quiet, {"no progress"});
  line.example("whence score runs/austen --data questions.jsonl", "accuracies by the sum of log p, and per byte");
}

void say(const Totals& totals, index_t length) {
  if (totals.cut > 0)
    std::cout << "note: " << totals.cut << " of " << totals.readings
              << " texts, each a context with a choice, are longer "
              << "than " << length << " tokens: the left of the context was not read\n";
  if (totals.unknown > 0)
    std::cout << "note: " << totals.unknown << " of " << totals.readings
              << " texts have tokens that the tokeniser does not know\n";
  std::cout << table_of(totals).text();
}

// Before hours of work, not behind them.
void require_place(const Options& options) {
  if (options.out.empty()) return;
  std::error_code none;
  const std::filesystem::path folder = std::filesystem::path(options.out).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder, none))
    throw InputError("--out: ", options.out, " given; ", folder.string(), " is no folder; one that is there required");
  if (std::filesystem::equivalent(options.out, options.data, none))
    throw InputError("--out: ", options.out, " given, which --data reads; another file required");
}

int run(CommandLine& line) {
  Options options;
  declare_options(line, options);
  if (line.shows_page()) return 0;
  if (options.runs.size() != 1)
    throw InputError(options.runs.size(), " runs given; the folder of one run of train lm required as the first word");
  if (options.data.empty()) line.refuse("data", "a file of JSON lines", "context, choices and answer in each");
  require_place(options);
  const Placement placement = placement_of(options.machine);
  install_interrupt_handler();
  const std::vector<Question> questions = read_questions(options.data);
  const SavedModel saved = load_language_model(options.runs[0], {}, options.accept_damaged);
  place(*saved.model, placement);
  const index_t length = options.length > 0 ? options.length : saved.model->options().length;
  const PlannedPass pass{.model = saved.model->options(),
      .device = saved.model->device(),
      .length = length,
      .remedy = "choose a smaller --length",
      .loaded = true};
  const std::string memory = require_pass_memory(pass, free_memory(saved.model->device()));
  if (!options.quiet) std::cerr << memory << '\n';

  Totals totals;
  std::string lines;
  Progress progress("score", static_cast<std::int64_t>(questions.size()), options.quiet);
  for (std::size_t k = 0; k < questions.size(); ++k) {
    if (interrupt_requested()) throw Interrupted("scoring: stopped before the results were complete");
    const std::vector<ChoiceScore> scores = score_choices(*saved.model, *saved.tokeniser, questions[k],
        {.length = length, .refuse = options.too_long == "refuse", .blank = !options.no_blank});
    totals.add(questions[k], scores);
    lines += line_of(questions[k], scores);
    progress.update(static_cast<std::int64_t>(k) + 1, 1, {});
  }
  progress.finish();
  say(totals, length);
  if (options.out.empty()) return 0;
  write_file(options.out, lines);
  std::cout << "written: " << one_line(options.out) << '\n';
  return 0;
}

const RegisterCommand registered{
    {"score", Purpose::train, "multiple choice and cloze by a language model's log-likelihood", run}};

}  // namespace
}  // namespace whence
