#include "examples/whence/tasks/flip_flop.h"

#include <algorithm>

#include "examples/whence/tasks/paper_figures.h"
#include "tensor/error.h"

namespace whence::tasks {
namespace {

constexpr std::string_view symbols = "wri01";

bool is_instruction(std::int64_t token) { return token == write_token || token == read_token || token == ignore_token; }

std::size_t to_size(std::int64_t count) { return static_cast<std::size_t>(count); }

void check(const FlipFlop& strings) {
  if (strings.length < 4 || strings.length % 2 != 0) {
    throw InputError("flip-flop: length ", strings.length,
        " given; an even number, at least 4, required; each instruction has one bit");
  }
  if (!(strings.p_ignore >= 0 && strings.p_ignore < 1)) {
    throw InputError(
        "flip-flop: p_ignore ", strings.p_ignore, " given; at least 0 and below 1 required; 0.8 is the paper's");
  }
}

struct Options {
  std::int64_t length = 512;
  std::string targets = "reads", answers = "vocabulary";
};

constexpr FlipFlopSet test_sets_of_flip_flop[] = {in_distribution_set, sparse_set, dense_set};

// What a guess may know of a string before it has to name a bit: everything but which bit the last w wrote.
struct Seen {
  std::int64_t first = zero_token, last = zero_token, zeros = 0, ones = 0;
};

Guess guess_from(std::string name, std::int64_t (*bit)(const Seen&)) {
  return {std::move(name), [bit](const Batch& batch) {
            Tokens predicted;
            Seen seen;
            for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
              if (i % to_size(batch.positions) == 0) seen = {};
              const std::int64_t token = batch.inputs[i];
              if (!is_instruction(token)) {
                if (seen.zeros + seen.ones == 0) seen.first = token;
                seen.last = token;
                ++(token == zero_token ? seen.zeros : seen.ones);
              }
              predicted.push_back(bit(seen));
            }
            return predicted;
          }};
}

class FlipFlopTask final : public Task {
 public:
  explicit FlipFlopTask(const Options& options) : options_(options) {
    check({static_cast<int>(options.length), training_set.p_ignore});
  }

  TransformerOptions model() const override {
    return {.vocabulary = flip_flop_vocabulary,
        .length = options_.length,
        .dim = 256,
        .layers = 4,
        .heads = 4,
        .scheme = "cope"};
  }

  Batch training_batch(std::uint64_t seed, std::int64_t step, index_t sequences) const override {
    return batch(training_set, seed, (step - 1) * sequences, sequences, options_.targets == "all");
  }
  std::vector<TestSet> test_sets() const override {
    std::vector<TestSet> sets;
    for (const FlipFlopSet& set : test_sets_of_flip_flop) {
      sets.push_back(
          {std::string(set.name), to_text("an instruction is to be ignored with probability ", set.p_ignore)});
    }
    return sets;
  }
  Batch test_batch(std::size_t set, std::uint64_t seed, std::int64_t first, index_t sequences) const override {
    if (set >= std::size(test_sets_of_flip_flop)) throw Error("flip_flop: test set ", set, " given; 0 to 2 required");
    return batch(test_sets_of_flip_flop[set], seed, first, sequences, false);
  }

  std::vector<Guess> guesses() const override {
    return {guess_from("always 0", [](const Seen&) { return zero_token; }),
        guess_from("first bit", [](const Seen& seen) { return seen.first; }),
        guess_from("last bit of any pair", [](const Seen& seen) { return seen.last; }),
        guess_from("most frequent bit so far",
            [](const Seen& seen) { return seen.ones > seen.zeros ? one_token : zero_token; })};
  }
  Tokens answers(const Tensor& logits) const override {
    return most_probable(logits, options_.answers == "bits" ? zero_token : 0);
  }
  std::string text(std::int64_t token) const override { return tasks::text(std::span(&token, 1)); }
  // Liu et al. add the warm-up and the weight decay; the CoPE paper states the rest.
  Recipe recipe() const override { return {}; }
  std::vector<PaperFigure> paper_figures(std::size_t set) const override {
    if (options_.length != 512 || set > 1) return {};
    return printed_in("cope/table2-flip_flop", set == 0 ? "In-dist" : "OOD");
  }
  std::vector<std::pair<std::string, std::string>> description() const override {
    return {{"task", "flip_flop"}, {"length", std::to_string(options_.length)}, {"targets", options_.targets}};
  }

 private:
  // Strings cut into inputs (tokens 0..T-2) and the tokens behind them.
  // The metric looks at reads alone, wherever the loss is taken.
  Batch batch(const FlipFlopSet& set, std::uint64_t seed, std::int64_t first, index_t sequences, bool all) const {
    Batch made{.sequences = sequences, .positions = options_.length - 1};
    for (Tokens* tokens : {&made.inputs, &made.targets, &made.graded})
      tokens->reserve(to_size(sequences * made.positions));
    for (index_t row = 0; row < sequences; ++row) {
      const Stream stream(seed, set.purpose, static_cast<std::uint64_t>(first + row));
      const Tokens tokens = sample({static_cast<int>(options_.length), set.p_ignore}, stream);
      for (std::size_t t = 0; t + 1 < tokens.size(); ++t) {
        made.inputs.push_back(tokens[t]);
        made.graded.push_back(tokens[t] == read_token ? tokens[t + 1] : no_target);
        made.targets.push_back(all ? tokens[t + 1] : made.graded.back());
      }
    }
    return made;
  }

  Options options_;
};

std::function<std::unique_ptr<Task>()> declare(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  line.heading("Task")
      .integer("length", &options->length, Range<std::int64_t>{4, 65536}, {"of a string, an even number", "tokens"})
      .choice(
          "targets", &options->targets, {"reads", "all"}, {"where the loss is taken: at reads, or at all positions"})
      .choice("answers", &options->answers, {"vocabulary", "bits"}, {"what a prediction may be in the tests"});
  return [options]() -> std::unique_ptr<Task> { return std::make_unique<FlipFlopTask>(*options); };
}

const RegisterTask registered{{.name = "flip_flop",
    .title = "remember one bit among distractors",
    .paper = "Liu et al. 2023, arXiv:2306.00946; Golovneva et al. 2024, arXiv:2405.18719, section 5.1",
    .declare = declare,
    .mini = "length=64 dim=64 layers=2 heads=4 steps=1500 lr=1e-3"}};

}  // namespace

Tokens sample(const FlipFlop& strings, Stream stream) {
  check(strings);
  Tokens tokens(static_cast<std::size_t>(strings.length));
  const std::size_t pairs = tokens.size() / 2;
  std::int64_t stored = zero_token;
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    // P(i) = p, P(w) = P(r) = (1-p)/2. Numbers 2n and 2n+1 of the stream belong to pair n, used or not.
    const double u = stream.uniform(2 * pair), p = strings.p_ignore;
    std::int64_t instruction = u < p ? ignore_token : u < p + (1 - p) / 2 ? write_token : read_token;
    if (pair == 0) instruction = write_token;
    if (pair == pairs - 1) instruction = read_token;
    const std::int64_t coin = stream.bits(2 * pair + 1) >> 31 == 0 ? zero_token : one_token;
    if (instruction == write_token) stored = coin;
    tokens[2 * pair] = instruction;
    tokens[2 * pair + 1] = instruction == read_token ? stored : coin;
  }
  return tokens;
}

std::string text(std::span<const std::int64_t> tokens) {
  std::string result;
  for (const std::int64_t token : tokens) {
    if (token < 0 || token >= flip_flop_vocabulary)
      throw Error("flip-flop text: token ", token, " given; 0 to ", flip_flop_vocabulary - 1, " required");
    result += symbols[to_size(token)];
  }
  return result;
}

}  // namespace whence::tasks
