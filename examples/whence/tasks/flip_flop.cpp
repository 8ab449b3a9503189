#include "examples/whence/tasks/flip_flop.h"

#include "tensor/error.h"

namespace whence::tasks {
namespace {

bool is_bit(std::int64_t token) { return token == zero_token || token == one_token; }

// The facts that a guess may use about a string before a read: all but which bit the last w wrote.
struct Seen {
  std::int64_t first = zero_token, last = zero_token, zeros = 0, ones = 0;
};

Guess guess_from(std::string name, std::int64_t (*bit)(const Seen&)) {
  return {std::move(name), [bit](const Row& row) {
            Tokens guessed;
            Seen seen;
            for (const std::int64_t token : row.inputs) {
              if (is_bit(token)) {
                if (seen.zeros + seen.ones == 0) seen.first = token;
                seen.last = token;
                ++(token == zero_token ? seen.zeros : seen.ones);
              }
              guessed.push_back(bit(seen));
            }
            return guessed;
          }};
}

class FlipFlop final : public DrawnTask {
 public:
  struct Options {
    std::int64_t length = 512;
    std::string targets = "reads";
  };
  static void declare(Fields& line, Options& options) {
    line.integer("length", &options.length, Range<std::int64_t>{4, 65536}, {"string length, an even number", "tokens"})
        .choice("targets", &options.targets, {"reads", "all"}, {"positions with a loss: reads, or all"});
  }

  FlipFlop(const Options& options, const Fields&) : options_(options) {
    const std::vector<DrawnSet>& sets = flip_flop_sets();
    training_ = sets[0], tests_.assign(sets.begin() + 1, sets.end());
    (void)row(training_, {});  // refuses an odd length
  }

  TransformerOptions model() const override {
    return {.vocabulary = std::ssize(flip_flop_symbols),
        .length = options_.length,
        .dim = 256,
        .layers = 4,
        .heads = 4,
        .scheme = "cope"};
  }

  std::vector<Guess> guesses() const override {
    return {guess_from("always 0", [](const Seen&) { return zero_token; }),
        guess_from("first bit", [](const Seen& seen) { return seen.first; }),
        guess_from("last bit of any pair", [](const Seen& seen) { return seen.last; }),
        guess_from("most frequent bit so far",
            [](const Seen& seen) { return seen.ones > seen.zeros ? one_token : zero_token; })};
  }
  std::string text(std::int64_t token) const override {
    return {flip_flop_symbols.at(static_cast<std::size_t>(token))};
  }
  // Liu et al. add the warm-up and the weight decay; the CoPE paper states the rest.
  Recipe recipe() const override { return {}; }
  std::vector<std::pair<std::string, std::string>> description() const override {
    return {{"task", "flip_flop"}, {"length", std::to_string(options_.length)}, {"targets", options_.targets}};
  }

 private:
  // Cuts a string into inputs, tokens 0 ... T - 2, and the tokens after them. The metric counts reads alone, even if
  // the loss counts all.
  Row row(const DrawnSet& set, const Stream& stream) const override {
    const Tokens tokens = flip_flop_string(options_.length, static_cast<double>(set.value) / 100, stream);
    Row row{{tokens.begin(), tokens.end() - 1}, {tokens.begin() + 1, tokens.end()}, {}};
    for (std::size_t t = 0; t < row.inputs.size(); ++t)
      row.graded.push_back(row.inputs[t] == read_token ? row.targets[t] : no_target);
    if (options_.targets == "reads" || set.purpose != training_.purpose) row.targets = row.graded;
    return row;
  }

  Options options_;
};

const RegisterTask registered{{.name = "flip_flop",
    .title = "remember one bit among distractors",
    .paper = "Liu et al. 2023, arXiv:2306.00946; Golovneva et al. 2024, arXiv:2405.18719, section 5.1",
    .declare = declared<FlipFlop>,
    .mini = "length=64 dim=64 layers=2 heads=4 steps=1500 lr=1e-3",
    .rule =
        "A string is pairs of an instruction and a bit: w writes the bit, i says to ignore it, r asks for the bit that "
        "was written last."}};

}  // namespace

const std::vector<DrawnSet>& flip_flop_sets() {
  const auto set = [](const char* name, const char* purpose, std::int64_t percent) {
    return DrawnSet{
        {name, to_text("an instruction is to be ignored with probability ", static_cast<double>(percent) / 100)},
        purpose, percent};
  };
  static const std::vector<DrawnSet> sets{set("training", "flip_flop.train", 80),
      set("in distribution", "flip_flop.in_distribution", 80), set("sparse", "flip_flop.sparse", 98),
      set("dense", "flip_flop.dense", 10)};
  return sets;
}

Tokens flip_flop_string(index_t length, double p_ignore, const Stream& stream) {
  if (length < 4 || length % 2 != 0)
    throw InputError(
        "flip-flop: length ", length, " given; an even number, at least 4, required; each instruction has one bit");
  Tokens tokens;
  std::int64_t stored = zero_token;
  const auto pairs = static_cast<std::uint64_t>(length / 2);
  for (std::uint64_t pair = 0; pair < pairs; ++pair) {
    // P(i) = p, P(w) = P(r) = (1-p)/2. Numbers 2n and 2n+1 of the stream belong to pair n, used or not.
    const double u = stream.uniform(2 * pair), p = p_ignore;
    std::int64_t instruction = u < p ? ignore_token : u < p + (1 - p) / 2 ? write_token : read_token;
    if (pair == 0) instruction = write_token;
    if (pair == pairs - 1) instruction = read_token;
    const std::int64_t coin = stream.bits(2 * pair + 1) >> 31 == 0 ? zero_token : one_token;
    if (instruction == write_token) stored = coin;
    tokens.push_back(instruction);
    tokens.push_back(instruction == read_token ? stored : coin);
  }
  return tokens;
}

}  // namespace whence::tasks
