// Selective copy (Gu and Dao 2023; Golovneva et al. 2024, section 5.2): repeat a context's tokens, without the blanks,
// in order.
//   plain      a__bc_ abc            read out at the token before each answer
//   separator  a__bc_|abc            the same after a mark
//   markers    a__bc_???             as in S4 and Mamba: a mark for each answer, read out at the marks
// Tokens are uniform on the symbols, the places of the blanks a uniformly random subset.
#include <algorithm>

#include "examples/whence/tasks/task.h"
#include "tensor/error.h"

namespace whence::tasks {
namespace {

constexpr std::int64_t blank = 0;  // then the symbols 1 ... n, then the mark

class SelectiveCopy final : public DrawnTask {
 public:
  struct Options {
    std::int64_t tokens = 256, blanks = 256, dense_blanks = 128, sparse_blanks = 512, symbols = 15;
    std::string format = "plain";
  };
  static void declare(Fields& line, Options& options) {
    using Count = Range<std::int64_t>;
    line.integer("tokens", &options.tokens, Count{1, 1 << 20}, {"number to copy", "tokens"})
        .integer("blanks", &options.blanks, Count{0, 1 << 20}, {"blanks in training and in distribution", "tokens"})
        .integer("dense-blanks", &options.dense_blanks, Count{0, 1 << 20},
            {"blanks in the dense test set; half of --blanks if left out", "tokens"})
        .integer("sparse-blanks", &options.sparse_blanks, Count{0, 1 << 20},
            {"blanks in the sparse one; twice --blanks if left out", "tokens"})
        .integer("symbols", &options.symbols, Count{1, 1 << 20}, {"kinds of tokens, without the blank"})
        .choice("format", &options.format, {"plain", "separator", "markers"}, {"how the answer follows the context"});
  }

  SelectiveCopy(Options& options, const Fields& line) {
    if (!line.given("dense-blanks")) options.dense_blanks = options.blanks / 2;
    if (!line.given("sparse-blanks")) options.sparse_blanks = options.blanks * 2;
    options_ = options;
    training_ = {{}, "selective_copy.train", options.blanks};
    tests_ = {{{"in distribution", "as in training"}, "selective_copy.in_distribution", options.blanks},
        {{"dense", to_text(options.dense_blanks, " blanks")}, "selective_copy.dense", options.dense_blanks},
        {{"sparse", to_text(options.sparse_blanks, " blanks")}, "selective_copy.sparse", options.sparse_blanks}};
  }

  TransformerOptions model() const override {
    // The length covers the test sets too: the paper tests schemes with one row per position on them as well.
    const std::int64_t blanks = std::ranges::max(tests_, {}, &DrawnSet::value).value;
    return {.vocabulary = options_.symbols + (options_.format == "plain" ? 1 : 2),
        .length = blanks + 2 * options_.tokens + 1,
        .dim = 64,
        .layers = 2,
        .heads = 2,
        .scheme = to_text("cope(p_max=", options_.tokens + 1, ")")};
  }

  std::vector<Guess> guesses() const override {
    return {{"always the first symbol", [](const Row& row) { return Tokens(row.inputs.size(), 1); }},
        {"the last symbol seen", [](const Row& row) {
           Tokens guessed{1};
           for (const std::int64_t token : row.inputs) guessed.push_back(token == blank ? guessed.back() : token);
           guessed.erase(guessed.begin());
           return guessed;
         }}};
  }
  std::string metric() const override { return "sequence error %"; }
  std::string text(std::int64_t token) const override {
    if (token == blank) return "_";
    if (token > options_.symbols) return options_.format == "separator" ? "|" : "?";
    return options_.symbols <= 26 ? std::string(1, static_cast<char>('a' + token - 1)) : to_text(token, " ");
  }
  // The paper states dims, layers, heads and steps; the batch and the rate are Mamba's.
  Recipe recipe() const override {
    return {.steps = 100000, .batch = 64, .learning_rate = 1e-4, .weight_decay = 0, .test_sequences = 10000};
  }
  std::vector<std::pair<std::string, std::string>> description() const override {
    return {{"task", "selective_copy"}, {"tokens", std::to_string(options_.tokens)},
        {"blanks", std::to_string(options_.blanks)}, {"symbols", std::to_string(options_.symbols)},
        {"format", options_.format}};
  }

 private:
  // The context: `tokens` symbols at a random subset of its places. Numbers 0 ... n-1 of the stream choose the places,
  // the next the symbols.
  Tokens context(const Stream& stream, std::int64_t blanks) const {
    Tokens tokens;
    std::int64_t left = options_.tokens;
    const std::int64_t length = options_.tokens + blanks;
    for (std::int64_t place = 0; place < length; ++place) {
      // One of the `length - place` places that remain, `left` of which hold a symbol: this place holds one with
      // probability left / remaining.
      const auto at = static_cast<std::uint64_t>(place);
      const bool holds =
          stream.below(at, static_cast<std::uint32_t>(length - place)) < static_cast<std::uint32_t>(left);
      tokens.push_back(holds ? 1 + stream.below(static_cast<std::uint64_t>(length) + at,
                                       static_cast<std::uint32_t>(options_.symbols))
                             : blank);
      left -= holds;
    }
    return tokens;
  }

  Row row(const DrawnSet& set, const Stream& stream) const override {
    Tokens inputs = context(stream, set.value), answer;
    std::ranges::copy_if(inputs, std::back_inserter(answer), [](std::int64_t token) { return token != blank; });
    const std::int64_t mark = options_.symbols + 1;
    if (options_.format == "markers") {
      inputs.insert(inputs.end(), answer.size(), mark);
    } else {  // all but the last answer are inputs too
      if (options_.format == "separator") inputs.push_back(mark);
      inputs.insert(inputs.end(), answer.begin(), answer.end() - 1);
    }
    Tokens targets(inputs.size() - answer.size(), no_target);
    targets.insert(targets.end(), answer.begin(), answer.end());
    return {inputs, targets, targets};
  }

  Options options_;
};

const RegisterTask registered{{.name = "selective_copy",
    .title = "repeat the tokens of a context that are not blank",
    .paper = "Golovneva et al. 2024, arXiv:2405.18719, section 5.2",
    .declare = declared<SelectiveCopy>,
    .mini = "tokens=16 blanks=16 dim=64 layers=2 heads=2 steps=3000 batch=32 lr=1e-3",
    .rule = "A context of letters and blanks; the answer is its letters in their order, without the blanks."}};

}  // namespace
}  // namespace whence::tasks
