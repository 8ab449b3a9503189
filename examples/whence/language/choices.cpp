#include "examples/whence/language/choices.h"

#include <algorithm>
#include <cmath>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/unicode.h"
#include "examples/whence/language/language_model.h"
#include "examples/whence/run/run_files.h"
#include "tensor/error.h"

namespace whence::language {
namespace {

Question question_of(const Json& line) {
  Question question{line.place(), line.text("context"), {}, 0};
  if (!line.has("choices")) {
    question.choices = {line.text("answer")};
  } else {
    question.choices = line.texts("choices");
    if (question.choices.size() < 2)
      line.refuse("field 'choices' with fewer than two texts; more required; without choices the answer is a text");
    const auto count = static_cast<std::int64_t>(question.choices.size()), answer = line.whole("answer");
    if (answer < 0 || answer >= count)
      line.refuse(to_text("answer ", answer, " given; a choice's number, 0 to ", count - 1, ", required"));
    question.answer = static_cast<std::size_t>(answer);
  }
  for (const std::string& choice : question.choices)
    if (choice.empty()) line.refuse("an empty choice given; some text required");
  return question;
}

std::int64_t characters_of(std::string_view text) {
  std::int64_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(first_code_point(text).bytes);
  return count;
}

std::size_t best_per(const std::vector<ChoiceScore>& scores, std::int64_t ChoiceScore::*size) {
  const auto mean = [size](
                        const ChoiceScore& score) { return score.log_probability / static_cast<double>(score.*size); };
  return static_cast<std::size_t>(std::ranges::max_element(scores, {}, mean) - scores.begin());
}

TokenIds encode(const Tokeniser& tokeniser, const std::string& text, const std::string& place) {
  try {
    return tokeniser.encode(text);
  } catch (const UnfitText& unfit) { throw FileError(place, ": ", unfit.what()); }
}

// What the model reads, and how many of its last targets are the choice. Blanks at the context's end go to the choice,
// where a tokeniser that joins them to words has them.
std::pair<TokenIds, std::size_t> reading_of(
    const Tokeniser& tokeniser, const Question& question, const std::string& choice, const ChoiceOptions& options) {
  const std::size_t end = question.context.find_last_not_of(" \t\n\v\f\r") + 1;  // 0 where there is nothing else
  const std::string text = question.context + (options.blank ? " " : "") + choice;
  TokenIds before = encode(tokeniser, text.substr(0, end), question.place),
           whole = encode(tokeniser, text, question.place);
  if (before.empty()) {
    if (tokeniser.end_of_text() < 0)
      throw FileError(question.place, ": an empty context given; some text required, as the tokeniser has no ",
          "<|endoftext|> to stand for it");
    before = {tokeniser.end_of_text()};
    whole.insert(whole.begin(), tokeniser.end_of_text());
  }
  if (whole.size() <= before.size())
    throw FileError(question.place, ": a choice without tokens of its own given; a longer text required");
  return {whole, whole.size() - before.size()};
}

ChoiceScore score_choice(const Transformer& model, const Tokeniser& tokeniser, const Question& question,
    std::size_t number, const ChoiceOptions& options) {
  const std::string& choice = question.choices[number];
  auto [tokens, own] = reading_of(tokeniser, question, choice, options);
  const auto most = static_cast<std::size_t>(options.length), reads = tokens.size() - 1;
  if (own > most || (reads > most && options.refuse))
    throw FileError(question.place, ": choice ", number, ": ", reads, " tokens to read given; at most ", most,
        " required, ", own, " of them the choice's");
  ChoiceScore score{.tokens = static_cast<std::int64_t>(own),
      .characters = characters_of(choice),
      .bytes = static_cast<std::int64_t>(choice.size()),
      .greedy = true,
      .cut = reads > most};
  if (score.cut) tokens.erase(tokens.begin(), tokens.end() - options.length - 1);
  score.unknown = tokeniser.unknown() < 0 ? 0 : std::ranges::count(tokens, tokeniser.unknown());
  const auto length = static_cast<index_t>(tokens.size()) - 1, counted = static_cast<index_t>(own);
  const Tensor inputs = Tensor::empty({1, length}, DType::i64);
  std::copy(tokens.begin(), tokens.end() - 1, inputs.data<std::int64_t>());
  const Tensor logits = model(inputs);
  const index_t vocabulary = logits.size(2);
  const std::vector<double> rows = slice(logits, 1, length - counted, length).to_vector();
  for (index_t t = 0; t < counted; ++t) {
    const double* row = rows.data() + t * vocabulary;
    const TokenId target = tokens[static_cast<std::size_t>(length - counted + t + 1)];
    score.log_probability -= negative_log_probability(row, vocabulary, target);
    score.greedy = score.greedy && std::max_element(row, row + vocabulary) == row + target;
  }
  if (!std::isfinite(score.log_probability))
    throw NotFinite(question.place, ": choice ", number, ": log p is ", score.log_probability,
        "; finite logits required; f32 reaches farther than f16");
  return score;
}

}  // namespace

std::vector<Question> read_questions(const std::string& path) {
  std::vector<Question> questions;
  for_each_json_line(read_file(path), path, [&](const Json& line) { questions.push_back(question_of(line)); });
  if (questions.empty()) throw FileError(path, ": no line given; objects of context, choices and answer required");
  return questions;
}

std::vector<ChoiceScore> score_choices(
    const Transformer& model, const Tokeniser& tokeniser, const Question& question, const ChoiceOptions& options) {
  const NoGrad values_only;
  std::vector<ChoiceScore> scores;
  for (std::size_t number = 0; number < question.choices.size(); ++number)
    scores.push_back(score_choice(model, tokeniser, question, number, options));
  return scores;
}

std::size_t best_by_sum(const std::vector<ChoiceScore>& scores) {
  const auto best = std::ranges::max_element(scores, {}, &ChoiceScore::log_probability);
  return static_cast<std::size_t>(best - scores.begin());
}

std::size_t best_per_character(const std::vector<ChoiceScore>& scores) {
  return best_per(scores, &ChoiceScore::characters);
}

std::size_t best_per_byte(const std::vector<ChoiceScore>& scores) { return best_per(scores, &ChoiceScore::bytes); }

}  // namespace whence::language
