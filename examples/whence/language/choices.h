// Which of several continuations a language model finds most probable, and whether it would write one itself.
//   log p(choice | context) = sum over the choice's tokens of log p(token | all before it)
// The answer is the choice of the largest log p, or of the largest log p / its characters, or / its bytes. EleutherAI's
// lm-evaluation-harness has the first two as acc and acc_norm; a character is a code point, as in Python.
// Context and choice are one text when they become tokens, as in training; those beyond the context's own tokens count.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/whence/language/tokeniser.h"
#include "nn/transformer.h"

namespace whence::language {

// {"context": "The sky is", "choices": ["blue", "square"], "answer": 0}, or, as a cloze, {"context": "The sky is",
// "answer": "blue"}.
struct Question {
  std::string place;  // "test.jsonl: line 3"
  std::string context;
  std::vector<std::string> choices;  // of a cloze: one
  std::size_t answer = 0;
  [[nodiscard]] bool cloze() const { return choices.size() == 1; }
};
// FileError that names file and line: no choices, one alone, an empty one, an answer that is none of them.
[[nodiscard]] std::vector<Question> read_questions(const std::string& path);

struct ChoiceOptions {
  index_t length = 0;   // tokens that the model reads at most; the left of the context is cut off
  bool refuse = false;  // what is longer, instead
  bool blank = true;    // between context and choice
};

struct ChoiceScore {
  double log_probability = 0;                          // nats, of all its tokens
  std::int64_t tokens = 0, characters = 0, bytes = 0;  // the blank before it is among its tokens alone
  bool greedy = false;                                 // each token is the most probable one
  bool cut = false;                                    // the context was
  std::int64_t unknown = 0;                            // tokens, of context and choice
};
// One for each choice. FileError when a choice has no tokens of its own or more than `length`, when there is nothing
// before it (an empty context, and a tokeniser without <|endoftext|>, which stands for that), or a text does not fit
// the tokeniser.
[[nodiscard]] std::vector<ChoiceScore> score_choices(
    const Transformer& model, const Tokeniser& tokeniser, const Question& question, const ChoiceOptions& options);

// The first of the largest: by the sum, or by the sum over the characters or the bytes.
[[nodiscard]] std::size_t best_by_sum(const std::vector<ChoiceScore>& scores);
[[nodiscard]] std::size_t best_per_character(const std::vector<ChoiceScore>& scores);
[[nodiscard]] std::size_t best_per_byte(const std::vector<ChoiceScore>& scores);

}  // namespace whence::language
