// The Chomsky-hierarchy tasks (Deletang et al. 2023, arXiv:2207.02098): fifteen problems on strings, ordered by the
// machine they need. A bidirectional model reads the string and as many placeholders as the answer has symbols, runs
// once, and answers at the placeholders:
//   reverse_string   0 1 1 0 1 0 . . . . . .   ->   - - - - - - 0 1 0 1 1 0
// Trained on strings of 1 ... 40 symbols, tested on 41 ... 500 (Ruoss et al. 2023, arXiv:2305.16843; Zheng
// et al. 2024, arXiv:2405.14722).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "examples/whence/tasks/task.h"

namespace whence::tasks {

// Which of two definitions, where the examples in the DAPE papers and the source of the data differ.
enum class Reading : unsigned char { paper, source };

// One of the fifteen. The answer is a function of the string alone.
struct ChomskyProblem {
  std::string name, title;
  std::vector<std::string> symbols;  // of strings; the placeholder is the number behind the last
  index_t outputs = 2;               // kinds of symbols in answers
  Tokens (*draw)(Draw& draw, index_t length, Reading reading) = nullptr;
  Tokens (*answer)(const Tokens& string, Reading reading) = nullptr;
  bool terminated = false;  // answers end with end_of_answer, then zeros that are trained on but not graded
  std::optional<Reading> default_reading = {};  // nothing: there is one definition
};

template <std::int64_t kinds> Tokens draw_symbols(Draw& draw, index_t length, Reading) {
  return draw.symbols(length, kinds);
}

inline constexpr std::int64_t end_of_answer = 2;
inline constexpr std::int64_t modulus = 5;  // of all arithmetic here

// `answer`, the end, and zeros up to `length` symbols.
Tokens terminated(Tokens answer, std::size_t length);
// Each character a symbol.
std::vector<std::string> symbols_of(std::string_view characters);

// Solvable by a finite automaton; with a stack; with a tape as long as the string.
std::vector<ChomskyProblem> regular_problems();
std::vector<ChomskyProblem> context_free_problems();
std::vector<ChomskyProblem> context_sensitive_problems();

const std::vector<ChomskyProblem>& chomsky_problems();  // all fifteen
const ChomskyProblem& chomsky_problem(std::string_view name);

struct ChomskyOptions {
  std::string reading = {};                    // "paper", "source"; empty: the problem's default
  std::int64_t train_to = 40;                  // training strings have 1 ... train_to symbols
  std::int64_t test_from = 41, test_to = 500;  // lengths tested, a test set each
  std::int64_t test_every = 1;                 // from one length tested to the next
};

class ChomskyTask final : public Task {
 public:
  explicit ChomskyTask(const ChomskyProblem& problem, ChomskyOptions options = {});

  TransformerOptions model() const override;
  // All strings of a batch have one length, drawn from 1 ... train_to anew in each step.
  Batch training_batch(std::uint64_t seed, std::int64_t step, index_t sequences) const override;
  std::vector<TestSet> test_sets() const override;
  Batch test_batch(std::size_t set, std::uint64_t seed, std::int64_t first, index_t sequences) const override;
  Recipe recipe() const override;
  std::vector<PaperFigure> paper_averages() const override;  // in token error %, for 41 ... 500 in whatever steps
  std::vector<std::string> notes(std::uint64_t seed) const override;
  std::vector<Guess> guesses() const override;  // "majority", the most frequent answer in training data, and "random"
  std::string text(std::int64_t token) const override;         // a symbol of strings, or the placeholder
  std::string answer_text(std::int64_t token) const override;  // a number, or the end of a terminated answer
  std::vector<std::pair<std::string, std::string>> description() const override;  // of what is trained on

  [[nodiscard]] const ChomskyProblem& problem() const { return *problem_; }
  [[nodiscard]] Reading reading() const { return reading_; }
  [[nodiscard]] std::int64_t test_length(std::size_t set) const;

 private:
  // Strings of one length with answers. `stream(row)` has the random numbers of a row.
  template <class RowStream> Batch batch(index_t length, index_t sequences, const RowStream& stream) const;
  [[nodiscard]] index_t longest_sequence(std::int64_t length) const;  // string and placeholders
  [[nodiscard]] bool as_in_the_papers() const;                        // but for the steps between the lengths tested

  const ChomskyProblem* problem_;
  ChomskyOptions options_;
  Reading reading_;
};

}  // namespace whence::tasks
