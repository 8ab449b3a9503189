#include "examples/whence/study/train_request.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <utility>

#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/language/corpus.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/machine/memory_plan.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

// The options that people change. `--help all` has the rest.
const std::vector<std::string> everyday{"variables", "operations", "tokens", "blanks", "train-to", "test-to", "data",
    "tokeniser", "length", "batch", "dump", "preset", "scheme", "dim", "layers", "heads", "steps", "lr", "seed",
    "validate-every", "keep-best", "resume", "quiet", "out", "from", "threads", "device"};

// InputError if the record has a given option that no run of this study records.
void refuse_unknown_options(const Fields& fields, const RunRecord& record) {
  for (const std::string& name : record.given)
    if (!fields.has(name) || (never_recorded.contains(name) && name != "preset"))  // older versions recorded it
      throw InputError(
          "given: ", in_quotes(name), " found; an option that runs of ", in_quotes(record.subject), " record required");
}

// Returns the default folder of a run: the first of runs/x, runs/x-2, ... without a run; for a resumed run the last
// with one.
std::string own_folder(const std::string& name, bool goes_on) {
  std::string last = name, folder = name;
  for (int number = 2; std::filesystem::exists(folder + "/run.json"); ++number)
    last = std::exchange(folder, to_text(name, "-", number));
  return goes_on ? last : folder;
}

// Refuses a word that names neither a study nor an existing file or folder.
[[noreturn]] void refuse_missing(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(name).parent_path();
  std::vector<std::string> known = study_names();
  for (const std::string& file : names_in(folder.empty() ? "." : folder.string()))
    known.push_back((folder / file).string());
  const auto meant = nearest_name(name, known);
  throw InputError("task '", name, "': no task of that name, and no such file or folder; one of them required; ",
      meant ? to_text("did you mean '", *meant, "'?") : "whence tasks lists the tasks");
}

// Returns the study that reads a file or folder: questions for JSON lines with answers, text for anything else.
std::string study_that_reads(const std::string& path, const std::vector<std::string>& words) {
  const auto first = first_json_line(first_line_of(path));
  if (first && first->has("answer")) return "jsonl";
  const TypedOptions typed = options_in(words);
  const std::string field = typed.contains("field") ? typed.at("field") : language::CorpusOptions().field;
  return is_jsonl(path) && !(first && first->has(field)) ? "jsonl" : language::text_study;
}

// Returns the study of this name, or of a file or folder.
std::string name_in(std::vector<std::string>& words) {
  if (words.empty() || words[0].starts_with("-")) return {};
  const std::string name = words[0];
  words.erase(words.begin());
  if (std::ranges::count(study_names(), name) > 0) return name;
  std::error_code none;
  if (!std::filesystem::exists(name, none)) refuse_missing(name);
  const std::string study = study_that_reads(name, words);
  words.insert(words.begin(), {"--data", name});
  return study;
}

}  // namespace

TrainRequest::TrainRequest(
    std::unique_ptr<StudyOptions> study, const std::vector<std::string>& words, std::optional<RunRecord> record)
    : study_(std::move(study)), repeated_(std::move(record)), line_("whence train " + study_->name(), study_->title()) {
  declare_options();
  const TypedOptions typed = options_in(words);
  as_recorded_ = std::ranges::all_of(typed, [](const auto& option) { return never_recorded.contains(option.first); });
  std::string recorded = repeated_ ? repeated_->option("preset") : "";  // of older runs
  for (const auto& [name, value] : repeated_ ? repeated_->facts : Facts())
    if (name == "preset") recorded = value;
  preset_ = typed.contains("preset") ? typed.at("preset") : recorded.empty() ? "mini" : recorded;
  if (preset_ == "mini")
    for (const Word& word : words_of(study_->mini())) line_.set_default(word.name, word.value);
  if (repeated_) {
    refuse_unknown_options(line_, *repeated_);
    set_recorded(line_, *repeated_);
  }
  page_ = line_.parse(words);
  if (page_) return;
  line_.refuse_unless("preset", !repeated_ || preset_ == recorded || (recorded.empty() && !typed.contains("from")),
      "beside a run.json of another preset");
  line_.refuse_unless("weights-of", !typed.contains("resume") || !typed.contains("weights-of"), "beside --resume");
  std::vector<std::string> files;
  if (repeated_ && !typed.contains("data"))
    for (const auto& [name, value] : repeated_->facts)
      if (name == "file") files.push_back(value);
  line_.add_names(files);
  settle();
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
          {"begin with the weights of this run, which may have another scheme: the old scheme's parameters are "
           "dropped, the new one's begin as usual"});
  declare(line_, settings_.training);
  declare_json(line_, &settings_.json);
  line_
      .text("out", &settings_.out,
          {"folder for checkpoints, logs and results; a number is added to the default if a run is there"})
      .text("from", &settings_.from,
          {"repeat the run of this run.json; other options on the command line override its own"});
  declare(line_, settings_.machine);
  declare(line_, settings_.ranks);
  line_.heading("Looking inside")
      .flag("describe", &settings_.describe,
          {"print the parameters and what one training step keeps for backward, by op and line, and end; with --json "
           "what "
           "run.json would say, what the tests measure, and their names"})
      .text("graph", &settings_.graph, {"write the graph of one training step to this file for Graphviz, and end"});
  line_.everyday(everyday)
      .example(to_text("whence train ", study_->name(), " --out runs/a"), "minutes on a laptop")
      .example("whence train --resume runs/a --steps 5000", "the run goes on")
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
  if (settings_.model.kv_heads && settings_.model.heads % settings_.model.kv_heads)
    line_.refuse("kv-heads", "a divisor of --heads, or 0", "1 makes the smallest cache");
  whence::settle(line_, training);
  training.precision = storage_dtype_of(settings_.machine.precision);
  if (!line_.given("out")) settings_.out = own_folder(settings_.out, training.resume);
  training.folder = settings_.out;
}

RunRecord TrainRequest::record(const Transformer& model, const Study& study) const {
  const TrainingOptions& training = settings_.training;
  const std::uint64_t seed = training.seed;
  const Tensor tokens = study.batch(seed, 1).tensors[0];
  RunRecord record{
      "train", WHENCE_VERSION, study_->name(), line_.values(), {}, study.data(seed), study.record_facts(model, seed)};
  record.facts.insert(
      record.facts.begin(), {{"preset", preset_}, {"parameters", std::to_string(model.parameter_count())},
                                {"executor", model.attention(0).explain(training.device, training.precision,
                                                 tokens.size(0), tokens.size(1), model.options().causal)}});
  for (const auto& [name, value] : record.options)
    if (line_.given(name) && !never_recorded.contains(name)) record.given.push_back(name);
  std::erase_if(record.options, [](const auto& option) { return never_recorded.contains(option.first); });
  return record;
}

void TrainRequest::require_recorded_data(const Study& study) const {
  if (!repeated_ || !as_recorded_) return;
  const std::string now = study.data(settings_.training.seed);
  if (now == repeated_->data) return;
  const std::string problem = to_text("the data have SHA-256 ", now, ", those of the recorded run ", repeated_->data,
      "; the same data required; version ", repeated_->version, " made them, this is ", WHENCE_VERSION);
  if (settings_.training.resume) throw DoesNotFit("--resume: ", problem);
  throw FileError("--from: ", problem);
}

void TrainRequest::place(Device device, Communicator* ranks) {
  TrainingOptions& training = settings_.training;
  training.device = device, training.ranks = ranks;
  if (!ranks || training.accumulate % ranks->size() == 0) return;
  const int size = ranks->size();
  if (line_.given("accumulate"))
    line_.refuse("accumulate", to_text("a multiple of the ", size, " ranks, which share the parts of a step"),
        to_text("--accumulate ", (training.accumulate + size - 1) / size * size));
  const auto values = line_.values();
  const auto typed = std::ranges::find(values, "batch", [](const auto& value) { return value.first; });
  const std::int64_t whole = parse_number<std::int64_t>(typed->second).value() * training.accumulate;
  if (whole % size)
    line_.refuse("batch", to_text("a multiple of the ", size, " ranks, which share it,"),
        to_text("or --accumulate ", size, ", a batch for each"));
  line_.set("batch", std::to_string(whole / size)), line_.set("accumulate", std::to_string(size));
  std::cout << "batch: " << whole << " of a step, shared by the ranks: --batch " << whole / size << " --accumulate "
            << size << std::endl;
}

std::unique_ptr<TrainRequest> read_train_request(std::vector<std::string> words) {
  const std::string name = name_in(words);
  const auto from = record_to_repeat(options_in(words));
  if (!from) return std::make_unique<TrainRequest>(find_study(name), words);
  const RunRecord record = read_run_record(*from);
  if (!name.empty() && name != record.subject)
    throw InputError(*from, ": is a run of ", record.subject, ", ", name, " given; the same required");
  const auto request_of = [&](const std::vector<std::string>& typed) {
    auto request = std::make_unique<TrainRequest>(find_study(record.subject), typed, record);
    TransformerOptions model = request->model();
    model.layers = 1;  // enough to see whether sizes and scheme go together
    if (!request->page()) (void)planned_parameters(model);
    return request;
  };
  try {
    return request_of(words);
  } catch (const FileError&) { throw; } catch (const SystemError&) {
    throw;
  } catch (const InputError&) {
    try {
      (void)request_of({});
    } catch (const FileError&) { throw; } catch (const InputError& unfit) {
      throw FileError(*from, ": ", unfit.what());
    }
    throw;  // the record alone is good
  }
}

}  // namespace whence
