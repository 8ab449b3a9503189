// A text as a study, `train lm`: the next token of text files, scored beyond the training length.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>

#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/language/corpus.h"
#include "examples/whence/language/language_model.h"
#include "examples/whence/language/length_evaluation.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/report/table.h"
#include "examples/whence/study/study.h"
#include "nn/io/files.h"
#include "nn/models.h"

namespace whence {
namespace {

using namespace whence::language;

// In words, and as fields of a result whose names begin with `prefix`.
void say(const char* part, const LanguageScore& score, const std::string& prefix, Json& record) {
  const bool words = std::isfinite(score.perplexity_per_word);  // not in a text without blanks
  const auto shown = [](double perplexity) { return perplexity < 1e6 ? fixed(perplexity, 3) : digits(perplexity); };
  std::cout << part << ": " << fixed(score.loss, 4) << " nats per token, perplexity " << shown(score.perplexity)
            << " per token, " << shown(score.perplexity_per_byte) << " per byte"
            << (words ? ", " + shown(score.perplexity_per_word) + " per word" : "") << "; "
            << fixed(score.bits_per_byte, 4) << " bits per byte, " << score.tokens << " tokens\n";
  record.add(prefix + "perplexity", score.perplexity).add(prefix + "bits_per_byte", score.bits_per_byte);
  record.add(prefix + "perplexity_per_byte", score.perplexity_per_byte);
  if (words) record.add(prefix + "perplexity_per_word", score.perplexity_per_word);
}

// A line for each length.
void write_lengths(JsonLog& log, const std::string& scheme, const std::vector<LengthScore>& scores,
    index_t train_length, double bytes_per_token) {
  for (const LengthScore& at : scores) {
    Json line{{"scheme", scheme}, {"length", std::int64_t{at.length}}, {"perplexity", at.perplexity},
        {"windows", std::int64_t{at.windows}}, {"bits_per_byte", std::log2(at.perplexity) / bytes_per_token}};
    for (const DeltaP& delta : at.deltas)
      if (delta.last == train_length) line.add("delta_p", delta.value());
    log.append(line);
  }
}

// A line for each text and length: of each window how many targets were graded, and what they cost. The same windows for
// every scheme, so that two can be compared on them.
void write_windows(JsonLog& log, const std::string& name, const LanguageScore& score) {
  log.append({{"test_set", name}, {"graded", score.graded}, {"nats", score.nats}});
}

void write_windows(JsonLog& log, const std::vector<LengthScore>& scores) {
  for (const LengthScore& at : scores)
    if (at.refused.empty())
      log.append({{"test_set", to_text("length ", at.length)},
          {"graded", std::vector<std::int64_t>(at.nats.size(), at.last)}, {"nats", at.nats}});
}

class TextStudy final : public Study {
 public:
  std::string name() const override { return text_study_name; }
  std::string title() const override { return "the next token of text, scored beyond the training length"; }
  std::string mini() const override { return "dim=128 layers=2 length=128 steps=1000"; }
  void declare(CommandLine& line) override {
    using Count = Range<std::int64_t>;
    std::vector<std::string> names;
    for (const NamedModel& model : named_models())
      if (model.options.causal) names.push_back(model.name);
    line.heading("Text");
    language::declare(line, corpus_options_);
    line.text("tokeniser", &tokeniser_name_, {"bytes, or a file of a tokeniser (examples/experiments/README.md)"});
    line.heading("Windows")
        .integer("length", &length_, Count{1, 1 << 20}, {"that the model is trained on", "tokens"})
        .integer("batch", &batch_, Count{1, 65536}, {"at a time; times --accumulate per step", "windows"})
        .integer("validation-windows", &validation_windows_, Count{1, 1 << 20}, {"in each validation", "windows"});
    line.heading("Evaluation")
        .integer("evaluate-to", &evaluate_to_, Count{1, 64}, {"perplexity at 1, 2, 4 ... so many times the length"})
        .integer("last", &last_, Count{1, 1 << 20}, {"of each window count", "tokens"})
        .integer("evaluation-windows", &evaluation_windows_, Count{1, 1 << 20}, {"at each length", "windows"});
    line.heading("Model").choice("model", &model_name_, names,
        {"one of `models`, in place of the sizes below; vocabulary and length are the text's"});
    line.example("whence train lm --data austen.txt --scheme 'cdape(kerple, kernel=3)' --out runs/austen",
        "bytes, windows of 128");
    line.example(
        "whence train lm --data books.jsonl --field body --test-data emma.txt", "a document a line, and a test");
    line.example("whence train lm --data src --include '*.cpp,*.h' --exclude 'tests/*'", "a source tree");
    line.example("whence train lm --data austen.txt --weights-of runs/rope --scheme none --lr 1e-4 --out runs/drope",
        "positions dropped after training with them (DroPE)");
    line.example("whence train lm --data austen.txt --tokeniser bpe.json --length 256 --evaluate-to 8",
        "with a tokeniser of your own");
  }

  TrainingOptions training() const override {
    return {.steps = 2000, .learning_rate = 1e-3, .warm_up = 100, .decay = "cosine"};
  }

  void settle(const CommandLine& line, const TrainingOptions& training) override {
    check(line, corpus_options_);
    for (const char* size : {"dim", "layers", "heads", "kv-heads"})
      line.refuse_unless(size, model_name_.empty(), "a model of your own; that of --model has its sizes");
    tokeniser_ = tokeniser_name_ == "bytes" ? byte_tokeniser() : load_tokeniser(tokeniser_name_);
    const bool validates = training.validate_every > 0 || corpus_options_.validation_share > 0;
    line.refuse_unless("validation-windows", validates, "validation text");
  }

  std::string open(const CommandLine& line, const std::string& output) override {
    refuse_inside_text(line, corpus_options_, output);
    corpus_.emplace(corpus_options_, *tokeniser_);
    for (const Part part : {Part::training, Part::validation}) corpus_->require_window(part, length_);
    if (corpus_options_.test_data.empty()) return corpus_->summary();
    corpus_->require_window(Part::test, 1);
    return corpus_->summary() +
           (scored_part() == Part::test
                   ? ""
                   : to_text("note: the test text has no window of ", length_,
                         " tokens and the one after it: perplexity by length is of validation text\n"));
  }

  TransformerOptions model() const override {
    TransformerOptions model = model_name_.empty()
                                   ? TransformerOptions{.dim = 256, .layers = 4, .heads = 4, .scheme = "rope"}
                                   : named_model(model_name_);
    model.vocabulary = tokeniser_ ? tokeniser_->vocabulary() : 256;
    model.length = length_;
    return model;
  }

  TrainingBatch batch(std::uint64_t seed, std::int64_t part) const override {
    return lm_batch(*corpus_, {length_, batch_}, seed, part);
  }

  TrainingBatch sample(std::uint64_t seed) const override { return lm_batch(*corpus_, {length_, 1}, seed, 1); }

  Validation validate(const Transformer& model, std::uint64_t) const override {
    const LanguageScore found = score(model, *corpus_, Part::validation, {length_, batch_}, validation_windows_);
    return {found.loss, {{"perplexity", found.perplexity}, {"bits_per_byte", found.bits_per_byte}}};
  }

  PlannedPass largest_pass(std::uint64_t) const override {
    const index_t longest = length_ * multiples().back();
    return {.model = model(),
        .sequences = std::max<index_t>(1, LengthOptions().tokens_at_once / longest),
        .length = longest,
        .remedy = "a smaller --evaluate-to"};
  }

  std::vector<std::string> test(
      const Transformer& model, const TrainingResult&, const TrainingOptions& training) const override {
    tokeniser_->save((training.folder / tokeniser_file).string());
    const WindowOptions windows{length_, batch_};
    const LanguageScore own = score(model, *corpus_, Part::validation, windows, validation_windows_);
    Json result{{"scheme", model.scheme()}, {"validation_loss", own.loss}};
    say("validation", own, "", result);
    JsonLog questions(training.folder / "questions.jsonl", JsonLog::Mode::fresh);
    write_windows(questions, "validation", own);
    if (corpus_->size(Part::test).tokens > 0) {
      const LanguageScore test = score_whole(model, *corpus_, Part::test, windows);
      result.add("test_loss", test.loss);
      say("test", test, "test_", result);
      write_windows(questions, "test", test);
    }
    const LengthOptions lengths{.train_length = length_,
        .multiples = multiples(),
        .last = last_,
        .windows = evaluation_windows_,
        .quiet = training.quiet};
    const std::vector<LengthScore> scores = perplexity_by_length(model, *corpus_, lengths, scored_part());
    std::cout << length_table(scores).text() << '\n' << delta_table(scores).text();
    write_file((training.folder / "lengths.csv").string(), length_table(scores).csv());
    write_file((training.folder / "lengths_delta.csv").string(), delta_table(scores).csv());
    write_windows(questions, scores);
    JsonLog log(training.folder / "results.jsonl", JsonLog::Mode::fresh);
    log.append(result);
    write_lengths(log, model.scheme(), scores, length_, corpus_->bytes_per_token(scored_part()));
    return {tokeniser_file, "results.jsonl", "questions.jsonl", "lengths.csv", "lengths_delta.csv"};
  }

  Json tests() const override { return {{"measure", "perplexity"}, {"test_sets", Json::List()}}; }

  Facts facts(const TrainingOptions& training) const override {
    Facts facts = corpus_->description();
    facts.insert(
        facts.end(), {{"model", model_name_}, {"length", std::to_string(length_)}, {"batch", std::to_string(batch_)}});
    if (training.validate_every > 0) facts.emplace_back("validation-windows", std::to_string(validation_windows_));
    return facts;
  }

  Facts record_facts(const Transformer& model, std::uint64_t) const override {
    Facts facts = language_facts(model.options(), *tokeniser_);
    for (const std::string& file : corpus_options_.more) facts.emplace_back("file", file);
    return facts;
  }

  std::string data(std::uint64_t /*seed*/) const override { return corpus_->hash(); }

 private:
  // The test's text, where there is one with room for a window.
  Part scored_part() const { return corpus_->size(Part::test).tokens > length_ ? Part::test : Part::validation; }

  // The lengths worth a pass: 1, 2, 4, ... as long as the text has room for them.
  std::vector<index_t> multiples() const {
    std::vector<index_t> multiples;
    for (index_t multiple = 1; multiple <= evaluate_to_; multiple *= 2) {
      if (multiple > 1 && multiple * length_ + 1 > corpus_->size(scored_part()).tokens) break;
      multiples.push_back(multiple);
    }
    return multiples;
  }

  CorpusOptions corpus_options_;
  std::string tokeniser_name_ = "bytes", model_name_;
  std::int64_t length_ = 128, batch_ = 16, evaluate_to_ = 16, last_ = 256, evaluation_windows_ = 20,
               validation_windows_ = 64;
  TokeniserPointer tokeniser_;    // from settle() on
  std::optional<Corpus> corpus_;  // from open() on
};

}  // namespace

std::unique_ptr<Study> make_text_study() { return std::make_unique<TextStudy>(); }

}  // namespace whence
