// Selective copy (Gu and Dao 2023; Golovneva et al. 2024, section 5.2): repeat the tokens of a context that are not
// blank, in their order.
//   plain      a__bc_ abc            read out at the token before each answer
//   separator  a__bc_|abc            the same behind a mark
//   markers    a__bc_???             as S4 and Mamba have it: as many marks as answers, read out at the marks
// Tokens are uniform on the symbols, the places of the blanks a uniformly random subset.
#include <algorithm>

#include "examples/whence/tasks/paper_figures.h"
#include "examples/whence/tasks/task.h"
#include "tensor/error.h"
#include "tensor/random.h"

namespace whence::tasks {
namespace {

constexpr std::int64_t blank = 0;  // then the symbols 1 ... n, then the mark

struct Options {
  std::int64_t tokens = 256, blanks = 256, dense_blanks = 128, sparse_blanks = 512, symbols = 15;
  std::string format = "plain";
};

struct Set {
  TestSet text;
  std::string purpose;  // of the random stream
  std::int64_t blanks;
};

class SelectiveCopy final : public Task {
 public:
  explicit SelectiveCopy(const Options& options) : options_(options) {
    sets_ = {{{"in distribution", "as in training"}, "selective_copy.in_distribution", options.blanks},
        {{"dense", to_text(options.dense_blanks, " blanks")}, "selective_copy.dense", options.dense_blanks},
        {{"sparse", to_text(options.sparse_blanks, " blanks")}, "selective_copy.sparse", options.sparse_blanks}};
  }

  TransformerOptions model() const override {
    // The length covers the test sets too: schemes with one row per position are tested there, as in the paper.
    const std::int64_t blanks = std::max({options_.blanks, options_.dense_blanks, options_.sparse_blanks});
    return {.vocabulary = options_.symbols + (options_.format == "plain" ? 1 : 2),
        .length = blanks + 2 * options_.tokens + 1,
        .dim = 64,
        .layers = 2,
        .heads = 2,
        .scheme = to_text("cope(p_max=", options_.tokens + 1, ")")};
  }

  Batch training_batch(std::uint64_t seed, std::int64_t step, index_t sequences) const override {
    return batch({{}, "selective_copy.train", options_.blanks}, seed, (step - 1) * sequences, sequences);
  }
  std::vector<TestSet> test_sets() const override { return {sets_[0].text, sets_[1].text, sets_[2].text}; }
  Batch test_batch(std::size_t set, std::uint64_t seed, std::int64_t first, index_t sequences) const override {
    return batch(sets_.at(set), seed, first, sequences);
  }

  std::vector<Guess> guesses() const override {
    return {{"always the first symbol", [](const Batch& batch) { return Tokens(batch.inputs.size(), 1); }},
        {"the last symbol seen", last_symbol}};
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
  std::vector<PaperFigure> paper_figures(std::size_t set) const override {
    const bool as_printed = options_.tokens == 256 && options_.blanks == 256 && options_.dense_blanks == 128 &&
                            options_.sparse_blanks == 512 && options_.symbols == 15;
    if (!as_printed) return {};
    return printed_in("cope/table2-selective_copy", set == 0 ? "In-dist" : set == 1 ? "OOD dense" : "OOD sparse");
  }
  std::vector<std::pair<std::string, std::string>> description() const override {
    return {{"task", "selective_copy"}, {"tokens", std::to_string(options_.tokens)},
        {"blanks", std::to_string(options_.blanks)}, {"symbols", std::to_string(options_.symbols)},
        {"format", options_.format}};
  }

 private:
  static Tokens last_symbol(const Batch& batch) {
    Tokens guessed;
    std::int64_t last = 1;
    for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
      if (i % static_cast<std::size_t>(batch.positions) == 0) last = 1;
      if (batch.inputs[i] != blank) last = batch.inputs[i];
      guessed.push_back(last);
    }
    return guessed;
  }

  // The context: `tokens` symbols at a random subset of its places. Numbers 0 ... n-1 of the stream choose the places,
  // the next the symbols.
  Tokens context(const Stream& stream, std::int64_t blanks) const {
    Tokens tokens;
    std::int64_t left = options_.tokens;
    const std::int64_t length = options_.tokens + blanks;
    for (std::int64_t place = 0; place < length; ++place) {
      // One of the `length - place` places that remain, `left` of which hold a symbol:
      // this one does with probability left / remaining.
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

  Row row(const Stream& stream, std::int64_t blanks) const {
    Row row;
    row.inputs = context(stream, blanks);
    Tokens answer;
    for (const std::int64_t token : row.inputs)
      if (token != blank) answer.push_back(token);
    const std::int64_t mark = options_.symbols + 1;
    if (options_.format == "markers") {
      row.inputs.insert(row.inputs.end(), answer.size(), mark);
    } else {  // all but the last answer are inputs too
      if (options_.format == "separator") row.inputs.push_back(mark);
      row.inputs.insert(row.inputs.end(), answer.begin(), answer.end() - 1);
    }
    row.targets.assign(row.inputs.size() - answer.size(), no_target);
    row.targets.insert(row.targets.end(), answer.begin(), answer.end());
    row.graded = row.targets;
    return row;
  }

  Batch batch(const Set& set, std::uint64_t seed, std::int64_t first, index_t sequences) const {
    std::vector<Row> rows;
    for (index_t k = 0; k < sequences; ++k)
      rows.push_back(row(Stream(seed, set.purpose, static_cast<std::uint64_t>(first + k)), set.blanks));
    return batch_of(rows, blank);
  }

  Options options_;
  std::vector<Set> sets_;
};

std::function<std::unique_ptr<Task>()> declare(CommandLine& line) {
  using Count = Range<std::int64_t>;
  const auto options = std::make_shared<Options>();
  line.heading("Task")
      .integer("tokens", &options->tokens, Count{1, 1 << 20}, {"to copy", "tokens"})
      .integer("blanks", &options->blanks, Count{0, 1 << 20}, {"among them, in training and in distribution", "tokens"})
      .integer("dense-blanks", &options->dense_blanks, Count{0, 1 << 20},
          {"in the dense test set; half of --blanks if left out", "tokens"})
      .integer("sparse-blanks", &options->sparse_blanks, Count{0, 1 << 20},
          {"in the sparse one; twice --blanks if left out", "tokens"})
      .integer("symbols", &options->symbols, Count{1, 1 << 20}, {"to choose from, besides the blank"})
      .choice("format", &options->format, {"plain", "separator", "markers"}, {"how the answer follows the context"});
  return [options, &line]() -> std::unique_ptr<Task> {
    if (!line.given("dense-blanks")) options->dense_blanks = options->blanks / 2;
    if (!line.given("sparse-blanks")) options->sparse_blanks = options->blanks * 2;
    return std::make_unique<SelectiveCopy>(*options);
  };
}

const RegisterTask registered{{.name = "selective_copy",
    .title = "repeat the tokens of a context that are not blank",
    .paper = "Golovneva et al. 2024, arXiv:2405.18719, section 5.2",
    .declare = declare,
    .mini = "tokens=16 blanks=16 dim=64 layers=2 heads=2 steps=3000 batch=32 lr=1e-3"}};

}  // namespace
}  // namespace whence::tasks
