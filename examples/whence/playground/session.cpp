#include "examples/whence/playground/session.h"

#include <limits>
#include <new>

#include "examples/whence/cli/text.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/look/edits.h"
#include "examples/whence/look/page.h"
#include "examples/whence/look/page_data.h"
#include "examples/whence/look/place.h"
#include "examples/whence/run/run_record.h"
#include "examples/whence/run/training.h"
#include "examples/whence/study/task_study.h"
#include "examples/whence/tasks/task.h"
#include "nn/io/files.h"
#include "nn/scheme.h"
#include "nn/training/schedule.h"
#include "nn/training/training.h"
#include "tensor/error.h"

namespace whence::playground {
namespace {

// Sizes for training in minutes and inspecting whole.
struct Sizes {
  std::string task = "flip_flop", scheme = "cope";
  std::int64_t length = 32, asked_length = 0, dim = 32, layers = 2, heads = 2, batch = 16, steps = 1500, seed = 0;
  double rate = 1e-3;
};

Sizes sizes_of(const Json& question) {
  Sizes sizes;
  const auto whole = [&](const char* name, std::int64_t& value, std::int64_t low, std::int64_t high) {
    if (question.has(name)) value = question.whole(name, low, high);
  };
  if (question.has("task")) sizes.task = question.text("task");
  if (question.has("scheme")) sizes.scheme = question.text("scheme");
  if (question.has("rate")) sizes.rate = question.number("rate");
  whole("length", sizes.length, 4, 128), sizes.asked_length = sizes.length;
  whole("asked_length", sizes.asked_length, 4, 128), whole("dim", sizes.dim, 4, 128),
      whole("layers", sizes.layers, 1, 6);
  whole("heads", sizes.heads, 1, 8), whole("batch", sizes.batch, 1, 64), whole("steps", sizes.steps, 1, 100000);
  whole("seed", sizes.seed, 0, std::numeric_limits<std::int32_t>::max());
  return sizes;
}

TransformerOptions model_of(const tasks::Task& task, const Sizes& sizes) {
  TransformerOptions model = task.model();
  model.dim = sizes.dim, model.layers = sizes.layers, model.heads = sizes.heads, model.scheme = sizes.scheme;
  return model;
}

constexpr index_t most_parameters = 4'000'000;

// Fields left out have the defaults of `look`.
look::SubjectOptions opened_by(const Json& question) {
  const auto text = [&](const char* name) { return question.has(name) ? question.text(name) : std::string(); };
  const auto whole = [&](const char* name, std::int64_t most = std::numeric_limits<std::int32_t>::max()) {
    return question.has(name) ? question.whole(name, 0, most) : 0;
  };
  return {.run = question.text("run"),
      .text = text("text"),
      .prompt = text("prompt"),
      .given = text("given"),
      .set = text("set"),
      .sample = whole("sample"),
      .length = whole("length", 1 << 20),
      .step = whole("step"),
      .dtype = question.has("doubles") && question.truth("doubles") ? DType::f64 : DType::f32,
      .most_parameters = most_parameters};
}

Json errors_of(const Transformer& model, const tasks::Task& task, std::uint64_t seed, std::int64_t sequences) {
  Json::List sets, percent;
  for (const SetScore& score : TaskStudy(task, {.test_sequences = sequences}).set_scores(model, seed, true)) {
    sets.emplace_back(score.set.name);
    percent.push_back(score.refused.empty() ? Json(score.model.token_percent()) : Json());
  }
  return {{"sets", sets}, {"percent", percent}};
}

Json schemes() {
  Json::List all;
  for (const SchemeInfo& info : registered_schemes()) all.push_back(Json{{"name", info.name}, {"title", info.title}});
  return {{"schemes", all}, {"palettes", look::palettes_json()}};
}

}  // namespace

class Learner {
 public:
  Learner() = default;
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;
  virtual ~Learner() = default;

  virtual Json begun() const = 0;
  virtual Json train(std::int64_t steps) = 0;
  virtual Json errors(std::int64_t sequences) const = 0;

  Json look(std::int64_t sample, const std::vector<std::string>& edits) {
    if (!plain_ || sample != sample_) {
      auto subject = std::make_unique<look::Subject>(subject_at(sample));
      look::require_small_page(*subject, 0);
      (void)look::require_memory(*subject);
      auto plain = std::make_shared<look::Inspection>(*subject);
      plain_ = looked_at_ = std::move(plain), subject_ = std::move(subject), sample_ = sample;
    }
    std::shared_ptr<look::Inspection> shown = edits.empty() ? plain_ : look::inspection_with(*plain_, edits);
    look::PageNumbers numbers;
    Json answer{
        {"loss", shown->loss()}, {"loss_without_edits", plain_->loss()}, {"page", look::json_of_pass(*shown, numbers)}};
    looked_at_ = std::move(shown), numbers_ = std::move(numbers), edits_ = edits;
    return answer;
  }
  std::span<const std::uint8_t> numbers() const { return numbers_.block(); }

  Json value(const std::string& what) const {
    const look::NamedPlace place = look::place_named(looked_at(), what, "what");
    const look::Quantity& quantity = *place.quantity;
    const std::size_t element = look::Axes(quantity).element(place.single("what"));
    const Stop stop = looked_at().stop_of(quantity, element);
    Json answer{{"value", quantity.value.to_vector()[element]}};
    answer.add("gradient", quantity.gradient.defined() ? Json(quantity.gradient.to_vector()[element]) : Json());
    return answer.add("cause", stop == Stop::nothing ? Json() : Json(to_string(stop)));
  }

  Json explain(const std::string& what) const { return {{"text", look::explained(looked_at(), what)}}; }

  // Applies each edit alone to the plain pass.
  Json edit(const std::vector<std::string>& edits) const {
    Json::List outcomes;
    (void)looked_at();
    for (const std::string& edit : edits) outcomes.push_back(look::json_of(look::outcome_of(*plain_, edit)));
    return {{"edits", outcomes}};
  }

  // The pass of the last look, under its edits, with one number changed.
  Json turn(const Json& question) const {
    const look::Inspection& inspection = looked_at();
    const TransformerOptions& model = inspection.subject().model->options();
    const look::Edited edited(*plain_, edits_);
    return look::json_of(
        inspection, look::turned(inspection, question.text("edit"), question.number("number"),
                        question.whole("layer", 0, model.layers - 1), question.whole("head", 0, model.heads - 1),
                        question.whole("i", 0, inspection.subject().tokens.numel() - 1)));
  }

  Json inspect() {
    constexpr index_t most = 40;  // tokens: a browser finds their links in a second, CDAPE's in three
    look::PageNumbers numbers;
    const bool links = looked_at().subject().tokens.numel() <= most;
    Json answer{{"page", look::json_of(looked_at(), numbers, links, looked_at_ != plain_)}};
    numbers_ = std::move(numbers);
    return answer;
  }

 protected:
  void forget_look() { looked_at_.reset(), plain_.reset(), subject_.reset(); }

 private:
  virtual look::Subject subject_at(std::int64_t sample) const = 0;

  const look::Inspection& looked_at() const {
    if (!looked_at_) throw InputError("no look since this model last changed; \"look\" first");
    return *looked_at_;
  }

  std::int64_t sample_ = 0;
  std::unique_ptr<look::Subject> subject_;
  std::shared_ptr<look::Inspection> plain_, looked_at_;  // without edits, and with those of the last look
  std::vector<std::string> edits_;                       // of the last look
  look::PageNumbers numbers_;
};

namespace {

// Trains by the recipe of `train` (task.recipe()).
class Begun final : public Learner {
 public:
  explicit Begun(const Sizes& sizes)
      : sizes_(sizes),
        task_(tasks::make_task(sizes.task, {"--length", std::to_string(sizes.length)})),
        asked_(tasks::make_task(sizes.task, {"--length", std::to_string(sizes.asked_length)})),
        seed_(static_cast<std::uint64_t>(sizes.seed)),
        model_(initialised(model_of(*task_, sizes), seed_)),
        schedule_({.peak = sizes.rate,
            .steps = sizes.steps,
            .warm_up = std::min(task_->recipe().warm_up, sizes.steps),
            .decay = decay_of(task_->recipe().decay)}),
        precision_(*model_, DType::f32, {.weight_decay = task_->recipe().weight_decay}),
        step_(
            precision_,
            [this](std::int64_t part) { return batch_of(task_->training_batch(seed_, part, sizes_.batch)); },
            token_loss(*model_, seed_)) {}

  Json begun() const override {
    return {{"scheme", model_->scheme()}, {"parameters", model_->parameter_count()}, {"steps", sizes_.steps},
        {"tokens_per_step", sizes_.batch * task_->training_batch(seed_, 1, 1).positions}};
  }

  // Stops at the last step of the schedule.
  Json train(std::int64_t steps) override {
    std::vector<double> losses;
    for (; steps > 0 && done_ < sizes_.steps; --steps) {
      const StepOutcome outcome = step_.take(done_ + 1, schedule_(done_ + 1));
      ++done_, losses.push_back(outcome.loss);
    }
    forget_look();
    return {{"step", done_}, {"losses", losses}};
  }

  Json errors(std::int64_t sequences) const override { return errors_of(*model_, *asked_, seed_, sequences); }

 private:
  static std::shared_ptr<Transformer> initialised(const TransformerOptions& options, std::uint64_t seed) {
    look::require_small(options, most_parameters);
    auto model = std::make_shared<Transformer>(options);
    model->initialise(seed);
    return model;
  }

  look::Subject subject_at(std::int64_t sample) const override {
    look::Subject subject = look::task_subject(model_, *asked_, seed_, sample);
    subject.title = to_text(model_->scheme(), " on ", sizes_.task), subject.label = to_text("step ", done_);
    subject.asks = tasks::find_task(sizes_.task).rule;
    return subject;
  }

  Sizes sizes_;
  std::unique_ptr<tasks::Task> task_, asked_;  // for training; for tests
  std::uint64_t seed_;
  std::shared_ptr<Transformer> model_;
  Schedule schedule_;
  MixedPrecision precision_;
  TrainingStep step_;
  std::int64_t done_ = 0;
};

// A run of `train`, or a scheme with random parameters, as `look` takes them.
class Opened final : public Learner {
 public:
  explicit Opened(look::SubjectOptions options) : options_(std::move(options)), first_(look::subject_of(options_)) {
    if (!look::is_folder(options_.run)) return;
    if (const RunRecord record = read_run_record(options_.run + "/run.json"); !language::is_of_text(record))
      recorded_ = recorded_task(record);
  }

  Json begun() const override {
    const TransformerOptions& model = first_.model->options();
    return {{"scheme", first_.model->scheme()}, {"parameters", first_.model->parameter_count()},
        {"label", first_.label}, {"title", first_.title}, {"asks", first_.asks}, {"layers", model.layers},
        {"heads", model.heads}};
  }

  Json train(std::int64_t) override {
    throw InputError("an opened run stays as it was trained; \"begin\" a model to train one");
  }

  // Texts have none.
  Json errors(std::int64_t sequences) const override {
    if (!recorded_.task) return {{"sets", Json::List()}, {"percent", Json::List()}};
    return errors_of(*first_.model, *recorded_.task, recorded_.seed, sequences);
  }

 private:
  // Skips sequences of a task, or tokens of a text.
  look::Subject subject_at(std::int64_t sample) const override {
    look::SubjectOptions options = options_;
    options.skip = recorded_.task ? sample : sample * first_.tokens.numel();
    return look::subject_of(options);
  }

  look::SubjectOptions options_;
  look::Subject first_;
  RecordedTask recorded_;  // for a run on a task
};

}  // namespace

Json question_that_opens(const look::SubjectOptions& options) {
  return {{"ask", "open"}, {"model", 0}, {"run", options.run}, {"text", options.text}, {"prompt", options.prompt},
      {"given", options.given}, {"set", options.set}, {"sample", options.sample}, {"length", options.length},
      {"step", options.step}, {"doubles", options.dtype == DType::f64}};
}

Session::Session() = default;
Session::~Session() = default;

std::span<const std::uint8_t> Session::numbers() const { return numbers_; }

std::string Session::answer(const std::string& line) {
  const auto error = [](std::string sentence) {
    for (const std::string option : {"--edit: ", "--explain: "})  // options of `look`
      if (sentence.starts_with(option)) sentence.erase(0, option.size());
    return Json{{"error", message_line(sentence)}}.line();
  };
  try {
    const Json question = Json::read(line, "question");
    const std::string& ask = question.text("ask");
    if (ask == "schemes") return schemes().line();
    const std::int64_t number = question.whole("model", 0, 7);
    if (ask == "begin" || ask == "open") {
      std::unique_ptr<Learner> learner;
      if (ask == "begin")
        learner = std::make_unique<Begun>(sizes_of(question));
      else
        learner = std::make_unique<Opened>(opened_by(question));
      const Json begun = learner->begun();
      learners_[number] = std::move(learner), numbers_ = {};
      return begun.line();
    }
    const auto found = learners_.find(number);
    if (found == learners_.end()) throw InputError("no model ", number, " yet; \"begin\" first");
    Learner& learner = *found->second;
    if (ask == "train") return learner.train(question.whole("steps", 1, 1000)).line();
    if (ask == "errors") return learner.errors(question.whole("sequences", 1, 10000)).line();
    if (ask == "look") {
      const Json page = learner.look(question.has("sample") ? question.whole("sample", 0, 1000000) : 0,
          question.has("edits") ? question.texts("edits") : std::vector<std::string>());
      numbers_ = learner.numbers();
      return page.line();
    }
    if (ask == "inspect") {
      const Json page = learner.inspect();
      numbers_ = learner.numbers();
      return page.line();
    }
    if (ask == "value") return learner.value(question.text("what")).line();
    if (ask == "explain") return learner.explain(question.text("what")).line();
    if (ask == "turn") return learner.turn(question).line();
    if (ask == "edit") return learner.edit(question.texts("edits")).line();
    throw InputError(
        "'", ask, "' asked; schemes, begin, open, train, errors, look, value, explain, edit, turn or inspect required");
  } catch (const std::bad_alloc&) {
    return error("there is no memory left for this; a smaller model required");
  } catch (const std::exception& problem) { return error(problem.what()); }
}

}  // namespace whence::playground
