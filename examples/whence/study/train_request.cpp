#include "examples/whence/study/train_request.h"

#include <algorithm>
#include <iostream>
#include <set>

#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/machine/model_plan.h"
#include "tensor/error.h"

namespace whence {
namespace {

// What people change. `--help all` has the rest.
const std::vector<std::string> everyday{"variables", "operations", "tokens", "blanks", "train-to", "test-to", "data",
    "tokeniser", "length", "batch", "dump", "preset", "scheme", "dim", "layers", "heads", "steps", "lr", "seed",
    "validate-every", "keep-best", "resume", "quiet", "out", "from", "threads", "device"};

// As they would stand on a command line: what was typed for the run, less what is typed in its place now.
std::vector<std::string> words_of(const RunRecord& record, const TypedOptions& typed) {
  std::vector<std::string> words = arguments_of(record, record.given, typed);
  for (const auto& [name, value] : record.facts)
    if (name == "file" && !typed.contains("data")) words.push_back(value);
  return words;
}

std::string name_in(std::vector<std::string>& words) {
  if (words.empty() || words[0].starts_with("-")) return {};
  const std::string name = words[0];
  words.erase(words.begin());
  if (!name.ends_with(".jsonl")) return name;
  words.insert(words.begin(), {"--data", name});
  return "jsonl";
}

void refuse_unknown_options(const RunRecord& record, const std::string& path) {
  std::set<std::string> known;
  for (const auto& [name, value] : TrainRequest(record.subject, {"--help"}).line().values()) known.insert(name);
  for (const std::string& name : record.given)
    if (!known.contains(name) || never_recorded.contains(name))
      throw FileError(path, ": given: ", in_quotes(name), " found; an option that runs of ", in_quotes(record.subject),
          " record required");
}

void require_fitting(const TrainRequest& request) {
  TransformerOptions model = request.model();
  model.layers = 1;  // as good as all of them to see whether sizes and scheme go together
  (void)Transformer(model);
}

}  // namespace

TrainRequest::TrainRequest(
    const std::string& study, const std::vector<std::string>& words, const std::optional<RunRecord>& record)
    : study_(find_study(study)), line_("whence train " + study, study_->title()) {
  declare_options();
  std::vector<std::string> all = words;
  if (record) {
    all = words_of(*record, options_in(words));
    all.insert(all.end(), words.begin(), words.end());
  }
  const TypedOptions typed = options_in(all);
  if (const auto preset = typed.find("preset"); preset != typed.end() && preset->second == "mini")
    for (const Word& word : whence::words_of(study_->mini(), "--preset")) line_.set_default(word.name, word.value);
  if (record)
    for (const auto& [name, value] : record->options)
      if (!typed.contains(name) && !never_recorded.contains(name) && !value.empty() && value != "false")
        line_.set_default(name, value);
  page_ = line_.parse(all);
  if (!page_) settle();
}

void TrainRequest::declare_options() {
  study_->declare(line_);
  of_study_ = settings_.model = choice_of(study_->model());
  settings_.training = study_->training();
  settings_.out = "runs/" + study_->name();
  declare(line_, settings_.model);
  line_
      .choice("preset", &settings_.preset, {"mini", "paper"},
          {"defaults of model, data and steps; mini: minutes on a laptop; paper: the papers', hours and days"})
      .text("weights-of", &settings_.weights_of,
          {"begin with the weights of this run, or GPT-2 or GPT-NeoX of Hugging Face's; the scheme may be another: its "
           "parameters begin as ever, those of the old one are dropped"});
  declare(line_, settings_.training);
  line_.text("out", &settings_.out, {"folder for checkpoints, logs and results"})
      .text("from", &settings_.from,
          {"repeat the run of this run.json; other options on the command line come before its own"});
  declare(line_, settings_.machine);
  declare(line_, settings_.ranks);
  line_.heading("Looking inside")
      .flag("describe", &settings_.describe,
          {"print the parameters and what one training step keeps for backward, by op and line, and end"})
      .text("graph", &settings_.graph, {"write the graph of one training step to this file for Graphviz, and end"});
  line_.everyday(everyday)
      .example(to_text("whence train ", study_->name(), " --preset mini --out runs/a"), "minutes on a laptop")
      .example("whence train --from runs/a/run.json --out runs/b", "the same run again")
      .example(to_text("whence train ", study_->name(), " --describe --graph step.dot"),
          "parameters, memory by op and line, and the graph of one step");
}

void TrainRequest::settle() {
  TrainingOptions& training = settings_.training;
  study_->settle(line_, training);
  follow(line_, settings_.model, of_study_, choice_of(study_->model()));
  settings_.model.scheme = canonical_text(parse_schemes(settings_.model.scheme));
  if (settings_.model.dim % settings_.model.heads)
    line_.refuse("heads", "a divisor of --dim", "4 heads suit dims of 64 and more");
  whence::settle(line_, training);
  line_.refuse_unless("loss-scale-growth", settings_.machine.precision == "f16", "--precision f16");
  training.precision = storage_dtype_of(settings_.machine.precision);
  training.folder = settings_.out;
}

RunRecord TrainRequest::record() const {
  RunRecord record{
      "train", WHENCE_VERSION, study_->name(), line_.values(), {}, study_->data(settings_.training.seed), {}};
  for (const auto& [name, value] : record.options)
    if ((line_.given(name) && !never_recorded.contains(name)) || (name == "accumulate" && shared_))
      record.given.push_back(name);
  std::erase_if(record.options, [](const auto& option) { return never_recorded.contains(option.first); });
  return record;
}

void TrainRequest::place(Device device, Communicator* ranks) {
  TrainingOptions& training = settings_.training;
  training.device = device, training.ranks = ranks;
  if (!ranks || training.accumulate % ranks->size() == 0) return;
  const int size = ranks->size();
  if (line_.given("accumulate"))
    line_.refuse("accumulate", to_text("a multiple of the ", size, " ranks, which share the parts of a step"),
        to_text("--accumulate ", (training.accumulate + size - 1) / size * size));
  training.accumulate = size, shared_ = true;
  std::cout << "accumulate: " << size << ", a batch for each rank, as it was left out" << std::endl;
}

std::unique_ptr<TrainRequest> read_train_request(std::vector<std::string> words) {
  std::string name = name_in(words);
  const auto from = record_to_repeat(options_in(words));
  if (!from) return std::make_unique<TrainRequest>(name, words);
  const RunRecord record = read_run_record(*from);
  if (!name.empty() && name != record.subject)
    throw InputError(*from, ": is a run of ", record.subject, ", ", name, " given; the same required");
  try {
    refuse_unknown_options(record, *from);
    require_fitting(TrainRequest(record.subject, {}, record));
  } catch (const FileError&) { throw; } catch (const SystemError&) {
    throw;
  } catch (const InputError& unfit) { throw FileError(*from, ": ", unfit.what()); }
  return std::make_unique<TrainRequest>(record.subject, words, record);
}

void require_data_of_record(const TrainRequest& request, const std::vector<std::string>& words) {
  const TypedOptions typed = options_in(words);
  const auto from = record_to_repeat(typed);
  const bool as_it_was =
      std::ranges::all_of(typed, [](const auto& option) { return never_recorded.contains(option.first); });
  if (!from || !as_it_was) return;
  const RunRecord record = read_run_record(*from);
  const TrainingOptions& training = request.settings().training;
  const std::string now = request.study().data(training.seed);
  if (now == record.data) return;
  const std::string problem = to_text("the data have SHA-256 ", now, ", those of the recorded run ", record.data,
      "; the same data required; version ", record.version, " made them, this is ", WHENCE_VERSION);
  if (training.resume) throw DoesNotFit("--resume: ", problem);
  throw FileError("--from: ", problem);
}

std::vector<std::pair<std::string, std::string>> checked_train_options(
    const std::string& study, const std::vector<std::string>& words) {
  const TrainRequest request(study, words);
  require_fitting(request);
  return request.line().values();
}

double operations_per_sequence(const std::string& study, const std::vector<std::string>& words) {
  const TransformerOptions model = TrainRequest(study, words).model();
  return training_operations(model, model.length).sum() * static_cast<double>(model.length);
}

std::string data_of(const std::string& study, const std::vector<std::string>& words) {
  const TrainRequest request(study, words);
  (void)request.study().open(request.line(), request.settings().out);
  return request.study().data(request.settings().training.seed);
}

}  // namespace whence
