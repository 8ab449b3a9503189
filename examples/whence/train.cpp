// train: trains a transformer with any positional scheme on a study (examples/whence/study/study.h): a task of the
// papers, a user's questions, or a text. The loop is in nn/training/training.cpp.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <utility>

#include "autograd/inspect/graph_text.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/run_main.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/language/corpus.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/machine/memory.h"
#include "examples/whence/machine/models.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/machine/ranks.h"
#include "examples/whence/report/table.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/run_record.h"
#include "examples/whence/run/shared_training.h"
#include "examples/whence/study/study.h"
#include "nn/io/files.h"
#include "nn/training/training.h"
#include "tensor/error.h"

namespace whence {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// Reads the options among the words of a command line, each with the text after "=", or else the next word.
using TypedOptions = std::map<std::string, std::string>;
TypedOptions options_in(const Words& words) {
  TypedOptions options;
  for (std::size_t k = 0; k < words.size(); ++k) {
    if (!words[k].starts_with("--")) continue;
    const std::size_t equals = words[k].find('=');
    const std::string next = k + 1 < words.size() ? words[k + 1] : "";
    options[words[k].substr(2, equals - 2)] = equals == std::string::npos ? next : words[k].substr(equals + 1);
  }
  return options;
}

// The options that people change. `--help all` has the rest.
const Words everyday{"variables", "operations", "tokens", "blanks", "train-to", "test-to", "data", "tokeniser",
    "length", "batch", "dump", "preset", "scheme", "dim", "layers", "heads", "steps", "lr", "seed", "validate-every",
    "resume", "quiet", "out", "threads", "device"};

// One command line, with the study that it names and the run that it resumes.
struct Request {
  std::unique_ptr<StudyOptions> study;
  std::optional<RunRecord> resumed;
  CommandLine line;
  bool as_recorded = false;                // no option of that run has another value
  ModelChoice of_study = {}, choice = {};  // of_study: the study's model before its options were read
  TrainingOptions training = {};
  std::string preset = "mini", out = {}, weights_of = {}, graph = {};
  bool json = false, describe = false;
  MachineOptions machine = {};

  TransformerOptions model() const { return with(study->model(), choice); }
};

void declare_options(Request& request) {
  CommandLine& line = request.line;
  StudyOptions& study = *request.study;
  study.declare(line);
  request.of_study = request.choice = choice_of(study.model());
  request.training = study.training();
  request.out = "runs/" + study.name();
  declare(line, request.choice);
  line.choice("preset", &request.preset, {"mini", "paper"},
          {"defaults of model, data and steps; mini: minutes on a laptop; paper: the papers', hours and days"})
      .text("weights-of", &request.weights_of,
          {"begin with the weights of this run, which may have another scheme: the old scheme's parameters are "
           "dropped, the new one's begin as usual"});
  declare(line, request.training);
  declare_json(line, &request.json);
  line.text("out", &request.out,
      {"the folder to write, of checkpoints, logs and results; a number is added to the default if a run is there"});
  declare(line, request.machine);
  line.heading("Looking inside")
      .flag("describe", &request.describe,
          {"print the parameters and what one training step keeps for backward, by op and line, and end; with --json "
           "what run.json would say, what the tests measure, and their names"})
      .text("graph", &request.graph, {"write the graph of one training step to this file for Graphviz, and end"})
      .everyday(everyday)
      .example(to_text("whence train ", study.name(), " --out runs/a"), "minutes on a laptop")
      .example("whence train --resume runs/a --steps 5000", "the run goes on")
      .example(to_text("mpirun -n 2 whence train ", study.name()),
          "by two processes, in a build with -DWHENCE_MPI=ON, or by those of srun: they share a step's --accumulate "
          "parts, or without it the --batch, and the weights have the same bits for 1, 2, 4, 8 ... of them")
      .example(to_text("whence train ", study.name(), " --describe --graph step.dot"),
          "parameters, memory by op and line, and the graph of one step");
}

// Returns the default folder of a run: the first of runs/x, runs/x-2, ... without a run; for a resumed run the last
// with one.
std::string own_folder(const std::string& name, bool goes_on) {
  std::string last = name, folder = name;
  for (int number = 2; fs::exists(folder + "/run.json"); ++number)
    last = std::exchange(folder, to_text(name, "-", number));
  return goes_on ? last : folder;
}

// Gives the options their values: a preset's, then those of a recorded run, then typed ones. Returns the page of --help
// or --version.
std::optional<std::string> read_options(Request& request, const Words& words) {
  CommandLine& line = request.line;
  const TypedOptions typed = options_in(words);
  request.as_recorded = std::ranges::all_of(
      typed, [](const auto& each) { return never_recorded.contains(each.first) && each.first != "preset"; });
  std::string recorded;
  Words files;
  for (const auto& [name, value] : request.resumed ? request.resumed->facts : Facts()) {
    if (name == "preset") recorded = value;
    if (name == "file" && !typed.contains("data")) files.push_back(value);
  }
  request.preset = typed.contains("preset") ? typed.at("preset") : recorded.empty() ? "mini" : recorded;
  if (request.preset == "mini")
    for (const Word& word : words_of(request.study->mini())) line.set_default(word.name, word.value);
  if (request.resumed) {
    for (const std::string& name : request.resumed->given)
      if (!line.has(name) || never_recorded.contains(name))
        throw InputError("given: ", in_quotes(name), " found; an option that runs of ",
            in_quotes(request.resumed->subject), " record required");
    set_recorded(line, *request.resumed);
  }
  if (auto page = line.parse(words)) return page;
  line.refuse_unless("preset", !request.resumed || request.preset == recorded, "beside a run.json of another preset");
  line.refuse_unless("weights-of",
      !typed.contains("resume") || !typed.contains("weights-of") ||
          (request.resumed && request.resumed->option("weights-of") == typed.at("weights-of")),
      "beside --resume");
  line.add_names(files);
  TrainingOptions& training = request.training;
  ModelChoice& choice = request.choice;
  request.study->settle(line, training);
  follow(line, choice, request.of_study, choice_of(request.study->model()));
  choice.scheme = canonical_text(parse_schemes(choice.scheme));
  if (choice.dim % choice.heads) line.refuse("heads", "a divisor of --dim", "4 heads suit dims of 64 and more");
  if (choice.kv_heads && choice.heads % choice.kv_heads)
    line.refuse("kv-heads", "a divisor of --heads, or 0", "1 makes the smallest cache");
  settle(line, training);
  training.precision = storage_dtype_of(request.machine.precision);
  if (!line.given("out")) request.out = own_folder(request.out, training.resume);
  training.folder = request.out;
  if (std::error_code none; !training.resume && fs::equivalent(request.weights_of, request.out, none))
    line.refuse("out", "a folder other than that of --weights-of", "its weights would be removed");
  return std::nullopt;
}

RunRecord record_of(const Request& request, const Transformer& model, const Study& study) {
  const TrainingOptions& training = request.training;
  const Tensor tokens = study.batch(training.seed, 1).tensors[0];
  RunRecord record{"train", WHENCE_VERSION, request.study->name(), {}, {}, study.data(training.seed),
      study.record_facts(model, training.seed)};
  record.facts.insert(
      record.facts.begin(), {{"preset", request.preset}, {"parameters", std::to_string(model.parameter_count())},
                                {"executor", model.attention(0).explain(training.device, training.precision,
                                                 tokens.size(0), tokens.size(1), model.options().causal)}});
  for (const auto& [name, value] : request.line.values()) {
    if (never_recorded.contains(name)) continue;
    record.options.emplace_back(name, value);
    if (request.line.given(name)) record.given.push_back(name);
  }
  return record;
}

// DoesNotFit if a run is resumed with its own options alone, and its data have changed.
void require_recorded_data(const Request& request, const Study& study) {
  if (!request.resumed || !request.as_recorded) return;
  const RunRecord& record = *request.resumed;
  const std::string now = study.data(request.training.seed);
  if (now == record.data) return;
  throw DoesNotFit("--resume: the data have SHA-256 ", now, ", those of the recorded run ", record.data,
      "; the same data required; version ", record.version, " made them, this is ", WHENCE_VERSION);
}

// --accumulate counts over all ranks. Without it the ranks share --batch, a part of a step each, and both are recorded
// as if typed. InputError when the typed values cannot be shared.
void share(Request& request, int ranks) {
  CommandLine& line = request.line;
  const std::int64_t accumulate = request.training.accumulate;
  if (accumulate % ranks == 0) return;
  if (line.given("accumulate"))
    line.refuse("accumulate", to_text("a multiple of the ", ranks, " ranks, which share the parts of a step"),
        to_text("--accumulate ", (accumulate + ranks - 1) / ranks * ranks));
  std::int64_t whole = accumulate;
  for (const auto& [name, value] : line.values())
    if (name == "batch") whole *= parse_number<std::int64_t>(value).value();
  if (whole % ranks)
    line.refuse("batch", to_text("a multiple of the ", ranks, " ranks, which share it,"),
        to_text("or --accumulate ", ranks, ", a batch for each"));
  line.set("batch", std::to_string(whole / ranks)), line.set("accumulate", std::to_string(ranks));
  std::cout << "batch: " << whole << " of a step, shared by the ranks: --batch " << whole / ranks << " --accumulate "
            << ranks << std::endl;
}

PlannedTraining planned(const Request& request, const Study& study, Device device) {
  const TrainingOptions& training = request.training;
  const Tensor tokens = study.batch(training.seed, 1).tensors[0];
  return {.model = request.model(),
      .sequences = tokens.size(0),
      .length = tokens.size(1),
      .device = device,
      .precision = training.precision,
      .accumulate = training.ranks ? training.accumulate / training.ranks->size() : training.accumulate,
      .shared = training.ranks != nullptr};
}

// Throws DoesNotFit, before the model takes memory, if the run's checkpoints are of another model.
void require_own_size(const Request& request) {
  const auto latest = find_latest((fs::path(request.out) / "checkpoints").string());
  if (!request.training.resume || !latest) return;
  try {
    require_room_for(request.model(), *latest, *latest + "/weights.safetensors");
  } catch (const FileError& unfit) { throw DoesNotFit("--resume: ", unfit.what()); }
}

// Prints and returns what training and tests will take. Throws OutOfMemory if less is free.
TrainingMemory require_room(const Request& request, const Study& study, Device device) {
  require_memory(request.model(), device, 4);
  const PlannedTraining plan = planned(request, study, device);
  const std::size_t free = free_memory(device);
  const TrainingMemory memory = require_step_memory(plan, free);
  std::cout << require_shown_memory("a step", memory.peak, free, step_remedies) << '\n';
  PlannedPass tests = study.largest_pass(request.training.seed);
  tests.model = plan.model, tests.device = device;
  std::cout << "tests: " << require_pass_memory(tests) << std::endl;
  return memory;
}

// Runs the loss of one training step to inspect it, without training.
void look_inside(const Request& request, const Study& study) {
  Transformer model(request.model());
  if (request.describe && request.json) {  // what a program needs to know before it starts runs
    Json page = study.tests();
    page.add("run", json_of(record_of(request, model, study)));
    const index_t length = model.options().length;
    page.add("operations",
        training_operations(model.options(), length).sum() * static_cast<double>(length));  // per sequence
    std::cout << page.line() << std::endl;
    return;
  }
  model.initialise(request.training.seed);
  const Placement placement = placement_of(request.machine);
  model.to(placement.device);
  const TrainingBatch batch = study.batch(request.training.seed, 1);
  const Tensor loss = token_loss(model, request.training.seed)(batch, 1);
  if (request.describe) {
    Table table({"parameter", "shape", "initial", "decays"});
    for (const Module::Parameter& parameter : model.parameters())
      table.row({parameter.path, to_string(parameter.tensor.shape()), parameter.init.text(),
          parameter.decays ? "yes" : "no"});
    const PlannedTraining plan = planned(request, study, placement.device);
    std::cout << table.text() << '\n' << memory_report(loss).text() << '\n' << memory_table(planned_memory(plan));
  }
  if (!request.graph.empty()) {
    write_file(request.graph, to_dot(loss));
    std::cout << "written: " << one_line(request.graph) << "; dot -Tsvg turns it into a picture\n";
  }
}

void print_trained(const TrainingResult& trained) {
  std::cout << "trained: " << trained.steps << " steps, " << time_text(trained.seconds) << " here, "
            << with_unit(trained.tokens_per_second) << " tokens/s";
  if (trained.best_step > 0)
    std::cout << "; best validation " << fixed(trained.best_score, 4) << " at step " << trained.best_step;
  if (trained.loss_scale > 0)
    std::cout << "; " << trained.skipped << (trained.skipped == 1 ? " step" : " steps") << " skipped, loss scale "
              << trained.loss_scale << " at the end";
  std::cout << '\n';
}

int train_and_test(Request& request, Communicator* ranks) {
  const JsonOutput json(request.json);
  TrainingOptions& training = request.training;
  install_interrupt_handler();
  const Placement placement = placement_of(request.machine);
  training.device = placement.device, training.ranks = ranks;
  if (ranks) share(request, ranks->size());
  const auto made = request.study->make(request.line, training);
  const Study& study = *made;
  std::cout << study.summary(training.seed) << std::flush;
  require_recorded_data(request, study);
  require_own_size(request);
  const TrainingMemory memory = require_room(request, study, placement.device);

  Transformer model(request.model());
  if (request.preset == "mini" && !request.line.given("preset") && !request.resumed)
    std::cout << "sizes: a laptop's (" << request.study->mini()
              << ") where none are typed; --preset paper has the paper's\n";
  std::cout << "model: " << model.scheme() << ", " << model.parameter_count() << " parameters, executor "
            << memory.executor.substr(0, memory.executor.find(' ')) << '\n'
            << placement.text << std::endl;
  study.require_a_test(model, training.seed);

  TrainingJob job = job_of(study, model, training);
  RunRecord record = record_of(request, model, study);
  record.facts.emplace_back("planned_peak_bytes", std::to_string(memory.peak));
  if (!request.weights_of.empty() && !training.resume) {
    const auto first = std::make_shared<language::FirstWeights>(request.weights_of, model.options());
    job.description.emplace_back("weights-of", first->hash());
    record.facts.emplace_back("weights-of.sha256", first->hash());
    job.begin_with = [&model, first] { std::cout << first->take(model.parameters()) << std::endl; };
  } else if (request.resumed) {
    for (const auto& [name, value] : request.resumed->facts)
      if (name == "weights-of.sha256")
        job.description.emplace_back("weights-of", value), record.facts.emplace_back(name, value);
  }
  job.record = text_of(record);
  const TrainingResult trained = train(job, training);
  if (!speaks(ranks)) return 0;
  print_trained(trained);
  std::string files = "weights.safetensors, run.json, metrics.jsonl, checkpoints/";
  for (const std::string& file : study.test(model, trained, training)) files += ", " + file;
  std::cout << "written: " << one_line(request.out) << "/{" << files << "}\n";
  json.lines(read_file(training.folder / "results.jsonl"));
  return 0;
}

// Refuses a word that names neither a study nor an existing file or folder.
[[noreturn]] void refuse_missing(const std::string& name) {
  const fs::path folder = fs::path(name).parent_path();
  Words known = study_names();
  for (const std::string& file : names_in(folder.empty() ? "." : folder.string()))
    known.push_back((folder / file).string());
  const auto meant = nearest_name(name, known);
  throw InputError("task '", name, "': no task of that name, and no such file or folder; one of them required; ",
      meant ? to_text("did you mean '", *meant, "'?") : "whence tasks lists the tasks");
}

// Takes the study's name from the words; for a file or folder, which becomes --data, it is jsonl if that holds JSON
// lines with answers, and the text's otherwise. Empty: the words begin with an option.
std::string take_name(Words& words) {
  if (words.empty() || words[0].starts_with("-")) return {};
  const std::string name = words[0];
  words.erase(words.begin());
  if (std::ranges::count(study_names(), name) > 0) return name;
  if (std::error_code none; !fs::exists(name, none)) refuse_missing(name);
  const auto first = first_json_line(first_line_of(name));
  const TypedOptions typed = options_in(words);
  const std::string field = typed.contains("field") ? typed.at("field") : language::CorpusOptions().field;
  const bool text = !is_jsonl(name) || (first && first->has(field));
  words.insert(words.begin(), {"--data", name});
  return (first && first->has("answer")) || !text ? "jsonl" : language::text_study;
}

// Reads "--resume RUN" as "--resume --out RUN".
Words with_resumed_folder(Words words) {
  const auto resume = std::ranges::find(words, "--resume");
  if (resume == words.end() || resume + 1 == words.end() || resume[1].starts_with("-") ||
      options_in(words).contains("out"))
    return words;
  words.insert(resume + 1, "--out");
  return words;
}

// Handles a command line without a study: --help, or an error.
int run_without_study(CommandLine& line, const Words& words) {
  bool resume = false;
  Words name;
  line.names("TASK", &name, "a task of `whence tasks`, a file or a folder. TASK --help shows its options");
  line.flag("resume", &resume, {"continue the run in the folder RUN that follows"});
  line.example("whence train selective_copy --help", "the options of a task");
  line.example("whence train questions.jsonl --out runs/own", "a task of your own: the task jsonl with --data");
  line.example("whence train austen.txt", "a text: the task lm with --data");
  line.example("whence train --resume runs/own --steps 5000", "a run that goes on");
  const TypedOptions typed = options_in(words);
  if (typed.contains("out") && typed.contains("resume"))
    throw InputError("--resume: no run.json in ", typed.at("out"), "; the folder of a run required; name its task");
  if (line.shows_page()) return 0;
  if (resume) throw InputError("--resume: no run given; its folder required, as in whence train --resume runs/a");
  throw InputError("no task given; the name of one required as the first word; whence tasks lists them");
}

int run(CommandLine& line) {
  Words words = with_resumed_folder(line.words());
  const std::string name = take_name(words);
  TypedOptions typed = options_in(words);
  const std::string file = typed["out"] + "/run.json";
  std::error_code none;
  std::optional<RunRecord> record;
  if (typed.contains("resume") && fs::is_regular_file(file, none)) record = read_run_record(file);
  if (name.empty() && !record) return run_without_study(line, words);
  if (record && !name.empty() && name != record->subject)
    throw InputError(file, ": is a run of ", record->subject, ", ", name, " given; the same required");
  auto study = find_study(record ? record->subject : name);
  CommandLine own("whence train " + study->name(), study->title());
  Request request{.study = std::move(study), .resumed = std::move(record), .line = std::move(own)};
  declare_options(request);
  try {
    if (const auto page = read_options(request, words)) {
      std::cout << *page;
      return 0;
    }
  } catch (const FileError&) { throw; } catch (const SystemError&) {
    throw;
  } catch (const InputError& unfit) {
    if (!request.resumed || !request.as_recorded) throw;
    throw FileError(file, ": ", unfit.what());
  }
  if (request.study->shows_data(request.training.seed)) return 0;
  if (!request.describe && request.graph.empty())
    return run_as_ranks(
        request.line, request.machine, [&](Communicator* ranks) { return train_and_test(request, ranks); });
  const auto made = request.study->make(request.line, request.training);
  if (!request.json) std::cout << made->summary(request.training.seed);
  look_inside(request, *made);
  return 0;
}

const RegisterCommand registered{
    {"train", Purpose::train, "any scheme on a task of the papers, on questions of your own, or on text", run}};

}  // namespace
}  // namespace whence
