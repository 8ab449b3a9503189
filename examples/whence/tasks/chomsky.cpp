#include "examples/whence/tasks/chomsky.h"

#include <algorithm>
#include <cmath>

#include "examples/whence/tasks/paper_figures.h"
#include "nn/models.h"
#include "tensor/error.h"

namespace whence::tasks {
namespace {

std::size_t to_size(std::int64_t count) { return static_cast<std::size_t>(count); }

Reading reading_of(const ChomskyProblem& problem, const std::string& given) {
  if (given.empty()) return problem.default_reading.value_or(Reading::source);
  if (!problem.default_reading)
    throw InputError(problem.name, ": reading '", given, "' given; paper and source agree here; leave it out");
  if (given != "paper" && given != "source")
    throw InputError(problem.name, ": reading '", given, "' given; paper or source required");
  return given == "paper" ? Reading::paper : Reading::source;
}

void check(const ChomskyProblem& problem, const ChomskyOptions& options) {
  if (options.train_to < 1)
    throw InputError(problem.name, ": training lengths 1 to ", options.train_to, " given; 1 to 1 or more required");
  if (options.test_from < 1 || options.test_to < options.test_from || options.test_every < 1) {
    throw InputError(problem.name, ": test lengths ", options.test_from, " to ", options.test_to, " in steps of ",
        options.test_every,
        " given; 1 or more, at least as many, steps of 1 or more required; the papers' are 41 to 500");
  }
}

// How much of an answer is graded: with a terminator all up to it, else all.
std::size_t graded_symbols(const ChomskyProblem& problem, const Tokens& answer) {
  if (!problem.terminated) return answer.size();
  return to_size(std::find(answer.begin(), answer.end(), end_of_answer) - answer.begin()) + 1;
}

// The string and placeholders; the answer at the placeholders.
Row row_of(const ChomskyProblem& problem, const Tokens& string, const Tokens& answer) {
  const auto placeholder = static_cast<std::int64_t>(problem.symbols.size());
  Row row{.inputs = string, .targets = Tokens(string.size(), no_target), .graded = {}};
  row.inputs.insert(row.inputs.end(), answer.size(), placeholder);
  row.targets.insert(row.targets.end(), answer.begin(), answer.end());
  row.graded = row.targets;
  std::fill(row.graded.begin() + static_cast<std::ptrdiff_t>(string.size() + graded_symbols(problem, answer)),
      row.graded.end(), no_target);
  return row;
}

// The most frequent graded symbol of 200 training batches.
std::int64_t most_frequent_answer(const ChomskyTask& task) {
  std::vector<std::int64_t> counts(to_size(task.problem().outputs), 0);
  for (std::int64_t step = 1; step <= 200; ++step) {
    const Batch batch = task.training_batch(0, step, 32);
    for (const std::int64_t token : batch.graded)
      if (token != no_target) ++counts[to_size(token)];
  }
  return std::max_element(counts.begin(), counts.end()) - counts.begin();
}

// Random, and yet the same for the same row wherever it stands: the numbers come from a hash (FNV-1a) of its inputs.
Tokens random_answers(const Batch& batch, index_t outputs) {
  Tokens answers;
  answers.reserve(batch.inputs.size());
  for (index_t row = 0; row < batch.sequences; ++row) {
    std::uint64_t hash = 0xCBF29CE484222325ull;
    const std::int64_t* inputs = batch.inputs.data() + row * batch.positions;
    for (index_t t = 0; t < batch.positions; ++t)
      hash = (hash ^ static_cast<std::uint64_t>(inputs[t])) * 0x100000001B3ull;
    const Stream stream(hash, "chomsky.guess");
    for (index_t t = 0; t < batch.positions; ++t)
      answers.push_back(stream.below(static_cast<std::uint64_t>(t), static_cast<std::uint32_t>(outputs)));
  }
  return answers;
}

}  // namespace

Tokens terminated(Tokens answer, std::size_t length) {
  if (answer.size() >= length)
    throw Error("answer: ", answer.size(), " symbols given; below ", length, " required: the end is one");
  answer.push_back(end_of_answer);
  answer.resize(length, 0);
  return answer;
}

std::vector<std::string> symbols_of(std::string_view characters) {
  std::vector<std::string> symbols;
  for (const char character : characters) symbols.emplace_back(1, character);
  return symbols;
}

const std::vector<ChomskyProblem>& chomsky_problems() {
  static const std::vector<ChomskyProblem> all = [] {
    std::vector<ChomskyProblem> problems = regular_problems();
    for (ChomskyProblem& problem : context_free_problems()) problems.push_back(std::move(problem));
    for (ChomskyProblem& problem : context_sensitive_problems()) problems.push_back(std::move(problem));
    return problems;
  }();
  return all;
}

const ChomskyProblem& chomsky_problem(std::string_view name) {
  for (const ChomskyProblem& problem : chomsky_problems())
    if (problem.name == name) return problem;
  throw InputError("Chomsky-hierarchy task: '", name, "' given; one of the fifteen required");
}

ChomskyTask::ChomskyTask(const ChomskyProblem& problem, ChomskyOptions options)
    : problem_(&problem), options_(std::move(options)), reading_(reading_of(problem, options_.reading)) {
  check(problem, options_);
}

template <class RowStream> Batch ChomskyTask::batch(index_t length, index_t sequences, const RowStream& stream) const {
  if (sequences < 1)
    throw InputError(problem_->name, ": a batch of ", sequences, " strings given; at least 1 required");
  std::vector<Row> rows;
  for (index_t number = 0; number < sequences; ++number) {
    Draw draw(stream(number));
    const Tokens string = problem_->draw(draw, length, reading_);
    rows.push_back(row_of(*problem_, string, problem_->answer(string, reading_)));
  }
  return batch_of(rows);  // strings of one length have answers of one length: nothing is filled up
}

Batch ChomskyTask::training_batch(std::uint64_t seed, std::int64_t step, index_t sequences) const {
  // The length has a stream of its own, so that all rows share it and none depends on how many there are.
  const auto lengths = static_cast<std::uint32_t>(options_.train_to);
  const index_t length =
      1 + Stream(seed, problem_->name + ".train.length", static_cast<std::uint64_t>(step)).below(0, lengths);
  // Row r of step s has number s 2^32 + r: the rows of a smaller batch are the first of a larger one.
  return batch(length, sequences, [&](index_t row) {
    return Stream(
        seed, problem_->name + ".train", static_cast<std::uint64_t>(step) << 32 | static_cast<std::uint64_t>(row));
  });
}

std::int64_t ChomskyTask::test_length(std::size_t set) const {
  const std::int64_t length = options_.test_from + static_cast<std::int64_t>(set) * options_.test_every;
  if (length > options_.test_to) throw Error(problem_->name, ": test set ", set, " given; a smaller number required");
  return length;
}

std::vector<TestSet> ChomskyTask::test_sets() const {
  std::vector<TestSet> sets;
  for (std::int64_t length = options_.test_from; length <= options_.test_to; length += options_.test_every)
    sets.push_back({.name = to_text("length ", length), .description = to_text("strings of ", length, " symbols")});
  return sets;
}

// Each length is a purpose of its own: what is tested at one does not depend on which others are.
Batch ChomskyTask::test_batch(std::size_t set, std::uint64_t seed, std::int64_t first, index_t sequences) const {
  const std::int64_t length = test_length(set);
  return batch(length, sequences, [&](index_t row) {
    return Stream(seed, to_text(problem_->name, ".test.", length), static_cast<std::uint64_t>(first + row));
  });
}

// All strings of a length make sequences of one length, and longer strings none that are shorter.
index_t ChomskyTask::longest_sequence(std::int64_t length) const {
  return batch(length, 1, [](index_t) { return Stream(0, "chomsky.size"); }).positions;
}

// The encoder of both papers, at positions drawn from 0 ... 2047: the DAPE papers' table says so in its header only.
TransformerOptions ChomskyTask::model() const {
  const index_t longest = std::max(longest_sequence(options_.test_to), longest_sequence(options_.train_to));
  const index_t drawn_from = std::max<index_t>(2048, longest);
  TransformerOptions options =
      named_model("che", to_text("randomised(sinusoidal(layout=concat), length=", drawn_from, ")"));
  options.vocabulary = static_cast<index_t>(problem_->symbols.size()) + 1;
  options.outputs = problem_->outputs;
  options.length = longest_sequence(options_.train_to);
  return options;
}

// 200 000 steps are the DAPE papers'; the batch, the constant rate and Adam
// without decay are the source's and Ruoss et al.'s.
Recipe ChomskyTask::recipe() const {
  return {.steps = 200000,
      .batch = 128,
      .learning_rate = 3e-4,
      .warm_up = 0,
      .decay = "constant",
      .weight_decay = 0,
      .test_sequences = 512};
}

bool ChomskyTask::as_in_the_papers() const {
  const bool reads_so = reading_ == problem_->default_reading.value_or(reading_);
  return reads_so && options_.train_to == 40 && options_.test_from == 41 && options_.test_to == 500;
}

std::vector<PaperFigure> ChomskyTask::paper_averages() const {
  if (!as_in_the_papers()) return {};
  std::vector<PaperFigure> figures = printed_in("dape/table2", problem_->name);
  for (const PaperFigure& figure : printed_in("dape-v2/table7", problem_->name))
    if (std::ranges::count(figures, figure.scheme, &PaperFigure::scheme) == 0) figures.push_back(figure);
  return figures;
}

std::vector<std::string> ChomskyTask::notes(std::uint64_t) const {
  std::vector<std::string> notes{"the papers print accuracy, 100 - token error %, averaged over all lengths 41 to 500"};
  if (options_.test_every != 1) notes.push_back(to_text("of them one in ", options_.test_every, " is tested here"));
  if (!as_in_the_papers())
    notes.emplace_back("other lengths or another definition than the papers' are used here: no figures beside");
  return notes;
}

std::vector<Guess> ChomskyTask::guesses() const {
  const std::int64_t answer = most_frequent_answer(*this);
  return {{.name = "majority", .predict = [answer](const Batch& batch) { return Tokens(batch.inputs.size(), answer); }},
      {.name = "random",
          .predict = [outputs = problem_->outputs](const Batch& batch) { return random_answers(batch, outputs); }}};
}

std::string ChomskyTask::text(std::int64_t token) const {
  const auto placeholder = static_cast<std::int64_t>(problem_->symbols.size());
  if (token < 0 || token > placeholder)
    throw Error(problem_->name, ": token ", token, " given; 0 to ", placeholder, " required");
  return token == placeholder ? "." : problem_->symbols[to_size(token)];
}

std::string ChomskyTask::answer_text(std::int64_t token) const {
  if (token < 0 || token >= problem_->outputs)
    throw Error(problem_->name, ": answer ", token, " given; 0 to ", problem_->outputs - 1, " required");
  return problem_->terminated && token == end_of_answer ? "(end)" : std::to_string(token);
}

// Not what is tested: a run may go on and be tested elsewhere.
std::vector<std::pair<std::string, std::string>> ChomskyTask::description() const {
  std::vector<std::pair<std::string, std::string>> description{
      {"task", problem_->name}, {"train-to", std::to_string(options_.train_to)}};
  if (problem_->default_reading) description.emplace_back("reading", reading_ == Reading::paper ? "paper" : "source");
  return description;
}

namespace {

std::function<std::unique_ptr<Task>()> declare(CommandLine& line, const ChomskyProblem& problem) {
  const auto options = std::make_shared<ChomskyOptions>();
  using Length = Range<std::int64_t>;
  line.heading("Task");
  if (problem.default_reading) {
    options->reading = *problem.default_reading == Reading::paper ? "paper" : "source";
    line.choice("reading", &options->reading, {"paper", "source"},
        {"whose definition: the DAPE papers' examples or the authors' code"});
  }
  line.integer("train-to", &options->train_to, Length{1, 10000},
          {"the longest training string; the shortest has one", "symbols"})
      .integer("test-from", &options->test_from, Length{1, 10000}, {"the shortest test string", "symbols"})
      .integer("test-to", &options->test_to, Length{1, 10000}, {"the longest test string", "symbols"})
      .integer("test-every", &options->test_every, Length{1, 10000},
          {"from one length tested to the next; 1: the papers'", "symbols"});
  return [options, &problem] { return std::make_unique<ChomskyTask>(problem, *options); };
}

// Trained on lengths up to 20, tested on some up to 100:
// the papers train up to 40 with 200 000 steps and test all from 41 to 500.
constexpr const char* mini_of_all =
    "dim=64 layers=2 heads=4 batch=32 steps=500 train-to=20 test-from=21 test-to=100 test-every=16 test-sequences=128";

const std::vector<RegisterTask> registered = [] {
  std::vector<RegisterTask> all;
  for (const ChomskyProblem& problem : chomsky_problems()) {
    all.emplace_back(TaskInfo{.name = problem.name,
        .title = problem.title,
        .paper = "Deletang et al. 2023, arXiv:2207.02098",
        .declare = [&problem](CommandLine& line) { return declare(line, problem); },
        .mini = mini_of_all});
  }
  return all;
}();

}  // namespace
}  // namespace whence::tasks
