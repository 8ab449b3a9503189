#include "examples/whence/tasks/chomsky.h"

#include <algorithm>

#include "examples/whence/machine/models.h"
#include "tensor/error.h"

namespace whence::tasks {
namespace {

// Draws random answers that depend on the row alone: the numbers come from a hash (FNV-1a) of its inputs.
Tokens random_answers(const Row& row, index_t outputs) {
  std::uint64_t hash = 0xCBF29CE484222325ull;
  for (const std::int64_t token : row.inputs) hash = (hash ^ static_cast<std::uint64_t>(token)) * 0x100000001B3ull;
  return Draw(Stream(hash, "chomsky.guess")).symbols(std::ssize(row.inputs), outputs);
}

class ChomskyTask final : public DrawnTask {
 public:
  struct Options {
    std::string reading = {};                    // "paper", "source"; empty: there is one definition
    std::int64_t train_to = 40;                  // training strings have 1 ... train_to symbols
    std::int64_t test_from = 41, test_to = 500;  // lengths tested, a test set each
    std::int64_t test_every = 1;                 // from one length tested to the next
  };

  ChomskyTask(const ChomskyProblem& problem, const Options& options)
      : problem_(problem), options_(options), reading_(options.reading == "paper" ? Reading::paper : Reading::source) {
    training_.purpose = problem.name + ".train";
    // Each length has its own stream: the tests at one length do not depend on which others there are.
    for (std::int64_t length = options.test_from; length <= options.test_to; length += options.test_every)
      tests_.push_back({{to_text("length ", length), to_text("strings of ", length, " symbols")},
          to_text(problem.name, ".test.", length), length});
  }

  // All strings of a batch have one length, drawn from 1 ... train_to anew in each step.
  Batch training_batch(std::uint64_t seed, std::int64_t step, index_t sequences) const override {
    const auto number = static_cast<std::uint64_t>(step);
    DrawnSet set = training_;
    // The length has its own stream, so that all rows share it, and it does not depend on their number.
    set.value =
        1 +
        Stream(seed, problem_.name + ".train.length", number).below(0, static_cast<std::uint32_t>(options_.train_to));
    // Row r of step s has number s 2^32 + r: the rows of a smaller batch are the first of a larger one.
    return batch(set, seed, static_cast<std::int64_t>(number << 32), sequences);
  }

  // The encoder of both papers, at positions drawn from 0 ... 2047; the DAPE papers say so only in their table's header.
  TransformerOptions model() const override {
    const index_t longest = std::max(longest_sequence(options_.test_to), longest_sequence(options_.train_to));
    const index_t drawn_from = std::max<index_t>(2048, longest);
    TransformerOptions options =
        named_model("che", to_text("randomised(sinusoidal(layout=concat), length=", drawn_from, ")"));
    options.vocabulary = std::ssize(problem_.symbols) + 1;
    options.outputs = problem_.outputs;
    options.length = longest_sequence(options_.train_to);
    return options;
  }

  // 200 000 steps are the DAPE papers'; the batch, the constant rate and Adam without decay are the source's and Ruoss
  // et al.'s.
  Recipe recipe() const override {
    return {.steps = 200000,
        .batch = 128,
        .learning_rate = 3e-4,
        .warm_up = 0,
        .decay = "constant",
        .weight_decay = 0,
        .test_sequences = 512};
  }

  std::vector<std::string> notes(std::uint64_t) const override {
    std::vector<std::string> notes{
        "the papers print accuracy, 100 - token error %, averaged over all lengths 41 to 500"};
    if (options_.test_every != 1) notes.push_back(to_text("of them one in ", options_.test_every, " is tested here"));
    // Holds for any steps between the tested lengths.
    if (reading_ != problem_.default_reading.value_or(reading_) || options_.train_to != 40 ||
        options_.test_from != 41 || options_.test_to != 500)
      notes.emplace_back(
          "other lengths or another definition than the papers' are used here: their figures cannot be compared");
    return notes;
  }

  // "majority": the most frequent graded symbol of 200 training batches.
  std::vector<Guess> guesses() const override {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(problem_.outputs), 0);
    for (std::int64_t step = 1; step <= 200; ++step)
      for (const std::int64_t token : training_batch(0, step, 32).graded)
        if (token != no_target) ++counts[static_cast<std::size_t>(token)];
    const std::int64_t most = std::ranges::max_element(counts) - counts.begin();
    return {{"majority", [most](const Row& row) { return Tokens(row.inputs.size(), most); }},
        {"random", [outputs = problem_.outputs](const Row& row) { return random_answers(row, outputs); }}};
  }

  // Names a symbol of strings, or the placeholder.
  std::string text(std::int64_t token) const override {
    return token == std::ssize(problem_.symbols) ? "." : problem_.symbols.at(static_cast<std::size_t>(token));
  }
  std::string answer_text(std::int64_t token) const override {
    return problem_.terminated && token == end_of_answer ? "(end)" : std::to_string(token);
  }

  // Omits the test lengths: the data's fingerprint depends on them.
  std::vector<std::pair<std::string, std::string>> description() const override {
    std::vector<std::pair<std::string, std::string>> description{
        {"task", problem_.name}, {"train-to", std::to_string(options_.train_to)}};
    if (problem_.default_reading) description.emplace_back("reading", options_.reading);
    return description;
  }

 private:
  // Makes the string and placeholders; the answer is at the placeholders.
  Row row(const DrawnSet& set, const Stream& stream) const override {
    Draw draw(stream);
    const Tokens string = problem_.draw(draw, set.value, reading_), answer = problem_.answer(string, reading_);
    Row row{string, Tokens(string.size(), no_target), {}};
    row.inputs.insert(row.inputs.end(), answer.size(), std::ssize(problem_.symbols));
    row.targets.insert(row.targets.end(), answer.begin(), answer.end());
    row.graded = row.targets;
    if (!problem_.terminated) return row;
    const auto end = std::find(row.graded.begin() + std::ssize(string), row.graded.end(), end_of_answer);
    std::fill(end + 1, row.graded.end(), no_target);
    return row;
  }

  // Counts string and placeholders. All strings of a length make sequences of one length, and longer strings never make
  // shorter ones.
  index_t longest_sequence(std::int64_t length) const {
    return std::ssize(row({{}, "", length}, Stream(0, "chomsky.size")).inputs);
  }

  const ChomskyProblem& problem_;
  Options options_;
  Reading reading_;
};

MakeTask declare(Fields& line, const ChomskyProblem& problem) {
  const auto options = std::make_shared<ChomskyTask::Options>();
  using Length = Range<std::int64_t>;
  line.heading("Task");
  if (problem.default_reading) {
    options->reading = *problem.default_reading == Reading::paper ? "paper" : "source";
    line.choice("reading", &options->reading, {"paper", "source"},
        {"source of the definition: the DAPE papers' examples or the authors' code"});
  }
  line.integer("train-to", &options->train_to, Length{1, 10000},
          {"the longest training string; the shortest has one", "symbols"})
      .integer("test-from", &options->test_from, Length{1, 10000}, {"the shortest test string", "symbols"})
      .integer("test-to", &options->test_to, Length{1, 10000}, {"the longest test string", "symbols"})
      .integer("test-every", &options->test_every, Length{1, 10000},
          {"step between tested lengths; 1: the papers'", "symbols"});
  return [options, &problem](const Fields& parsed) {
    if (options->test_to < options->test_from)
      parsed.refuse("test-to", "at least --test-from", "the papers test 41 to 500");
    return std::make_unique<ChomskyTask>(problem, *options);
  };
}

// Trains on lengths up to 20, and tests some up to 100: the papers train up to 40 with 200 000 steps and test all from
// 41 to 500.
constexpr const char* mini_of_all =
    "dim=64 layers=2 heads=4 batch=32 steps=500 train-to=20 test-from=21 test-to=100 test-every=16 test-sequences=128";

const std::vector<RegisterTask> registered = [] {
  std::vector<RegisterTask> all;
  for (const ChomskyProblem& problem : chomsky_problems())
    all.emplace_back(TaskInfo{.name = problem.name,
        .title = problem.title,
        .paper = "Deletang et al. 2023, arXiv:2207.02098",
        .declare = [&problem](Fields& line) { return declare(line, problem); },
        .mini = mini_of_all});
  return all;
}();

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

}  // namespace whence::tasks
