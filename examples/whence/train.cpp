// train: trains a transformer with any positional scheme on a study (examples/whence/study/study.h): a task of the
// papers, a user's questions, or a text. The loop is in nn/training/training.cpp.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "autograd/inspect/graph_text.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/machine/memory_plan.h"
#include "examples/whence/machine/model_plan.h"
#include "examples/whence/report/table.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/shared_training.h"
#include "examples/whence/study/train_request.h"
#include "nn/io/files.h"
#include "nn/training/training.h"
#include "tensor/error.h"

namespace whence {
namespace {

PlannedTraining planned(const TrainRequest& request, const Study& study, Device device) {
  const TrainingOptions& training = request.settings().training;
  const Tensor tokens = study.batch(training.seed, 1).tensors[0];
  return {.model = request.model(),
      .sequences = tokens.size(0),
      .length = tokens.size(1),
      .device = device,
      .precision = training.precision,
      .accumulate = training.ranks ? training.accumulate / training.ranks->size() : training.accumulate,
      .shared = training.ranks != nullptr,
      .optimizer = optimizer_of(training)};
}

// Throws DoesNotFit, before the model takes memory, if the run's checkpoints are of another model.
void require_own_size(const TrainRequest& request) {
  const std::string& out = request.settings().out;
  const auto latest = find_latest((std::filesystem::path(out) / "checkpoints").string());
  if (!request.settings().training.resume || !latest) return;
  try {
    require_room_for(request.model(), *latest, *latest + "/weights.safetensors");
  } catch (const FileError& unfit) { throw DoesNotFit("--resume: ", unfit.what()); }
}

// Prints and returns what training and tests will take. Throws OutOfMemory if less is free.
TrainingMemory require_room(const TrainRequest& request, const Study& study, Device device) {
  require_memory(request.model(), device, 4);
  const PlannedTraining plan = planned(request, study, device);
  const std::size_t free = free_memory(device);
  const TrainingMemory memory = require_step_memory(plan, free);
  std::cout << memory_text(memory, free) << std::flush;
  PlannedPass tests = study.largest_pass(request.settings().training.seed);
  tests.model = plan.model, tests.device = device;
  std::cout << "tests: " << require_pass_memory(tests) << std::endl;
  return memory;
}

// Runs the loss of one training step to inspect it, without training.
void look_inside(const TrainRequest& request, const Study& study) {
  const TrainSettings& settings = request.settings();
  Transformer model(request.model());
  if (settings.describe && settings.json) {  // what a program needs to know before it starts runs
    Json page = study.tests();
    page.add("run", json_of(request.record(model, study)));
    const index_t length = model.options().length;
    page.add("operations",
        training_operations(model.options(), length).sum() * static_cast<double>(length));  // per sequence
    std::cout << page.line() << std::endl;
    return;
  }
  model.initialise(settings.training.seed);
  const Placement placement = placement_of(settings.machine);
  model.to(placement.device);
  const TrainingBatch batch = study.batch(settings.training.seed, 1);
  const Tensor loss = token_loss(model, settings.training.seed)(batch, 1);
  if (settings.describe) {
    Table table({"parameter", "shape", "initial", "decays"});
    for (const Module::Parameter& parameter : model.parameters())
      table.row({parameter.path, to_string(parameter.tensor.shape()), parameter.init.text(),
          parameter.decays ? "yes" : "no"});
    const PlannedTraining plan = planned(request, study, placement.device);
    std::cout << table.text() << '\n' << memory_report(loss).text() << '\n' << memory_table(planned_memory(plan));
  }
  if (!settings.graph.empty()) {
    write_file(settings.graph, to_dot(loss));
    std::cout << "written: " << one_line(settings.graph) << "; dot -Tsvg turns it into a picture\n";
  }
}

// Loads other initial weights for a new run; a resumed run has its own.
void begin_with_weights(TrainingJob& job, RunRecord& record, Transformer& model, const std::string& folder) {
  if (const std::string file = folder + "/run.json"; std::filesystem::exists(file))
    language::require_same_meaning(read_run_record(file), model.options(), folder);
  const auto first = std::make_shared<language::FirstWeights>(language::read_first_weights(folder));
  job.description.emplace_back("weights-of", first->sha256);
  record.facts.emplace_back("weights-of.sha256", first->sha256);
  job.begin_with = [&model, first, folder] {
    const auto list = [](const std::vector<std::string>& names) {
      return names.empty() ? "none" : first_few(names, ", ");
    };
    const language::Taken found = language::take_weights(first->tensors, model.parameters(), folder);
    std::cout << "weights: " << found.taken << " tensors of " << one_line(folder)
              << "; dropped: " << list(found.dropped) << "; new: " << list(found.fresh) << std::endl;
  };
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

int train_and_test(TrainRequest& request, Communicator* ranks) {
  const JsonOutput json(request.settings().json);
  const TrainSettings& settings = request.settings();
  const TrainingOptions& training = settings.training;
  install_interrupt_handler();
  const Placement placement = placement_of(settings.machine);
  request.place(placement.device, ranks);
  const auto made = request.make_study();
  const Study& study = *made;
  std::cout << study.summary(training.seed) << std::flush;
  request.require_recorded_data(study);
  require_own_size(request);
  const TrainingMemory memory = require_room(request, study, placement.device);

  Transformer model(request.model());
  if (settings.preset == "mini" && !request.line().given("preset") && settings.from.empty() && !training.resume)
    std::cout << "sizes: a laptop's (" << request.study().mini()
              << ") where none are typed; --preset paper has the paper's\n";
  std::cout << "model: " << model.scheme() << ", " << model.parameter_count() << " parameters, executor "
            << memory.executor.substr(0, memory.executor.find(' ')) << '\n'
            << placement.text << std::endl;
  study.require_a_test(model, training.seed);

  TrainingJob job = job_of(study, model, training);
  RunRecord record = request.record(model, study);
  record.facts.emplace_back("planned_peak_bytes", std::to_string(memory.peak));
  if (!settings.weights_of.empty() && !training.resume) begin_with_weights(job, record, model, settings.weights_of);
  job.record = text_of(record);
  const TrainingResult trained = train(job, training);
  if (!speaks(ranks)) return 0;
  print_trained(trained);
  std::string files = "weights.safetensors, run.json, metrics.jsonl, metrics.csv, checkpoints/";
  for (const std::string& file : study.test(model, trained, training)) files += ", " + file;
  std::cout << "written: " << one_line(settings.out) << "/{" << files << "}\n";
  json.lines(read_file(training.folder / "results.jsonl"));
  return 0;
}

// Reads "--resume RUN" as "--resume --out RUN".
std::vector<std::string> with_resumed_folder(std::vector<std::string> words) {
  const auto resume = std::ranges::find(words, "--resume");
  if (resume == words.end() || resume + 1 == words.end() || resume[1].starts_with("-") ||
      options_in(words).contains("out"))
    return words;
  words.insert(resume + 1, "--out");
  return words;
}

// Handles a command line without a study: --help, or an error.
int run_without_study(CommandLine& line, const std::vector<std::string>& words) {
  std::string from;
  bool resume = false;
  std::vector<std::string> name;
  line.names("TASK", &name, "a task of `whence tasks`, a file or a folder. TASK --help shows its options");
  line.text("from", &from, {"repeat the run of this run.json"});
  line.flag("resume", &resume, {"continue the run in the folder RUN that follows"});
  line.elsewhere("list", "whence tasks lists the tasks").elsewhere("list-schemes", "whence schemes lists them");
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
  const std::vector<std::string> words = with_resumed_folder(line.words());
  const bool named = !words.empty() && !words[0].starts_with("-");
  if (!named && !record_to_repeat(options_in(words))) return run_without_study(line, words);
  const auto request = read_train_request(words);
  const TrainSettings& settings = request->settings();
  if (request->page()) {
    std::cout << *request->page();
    return 0;
  }
  if (request->study().shows_data(settings.training.seed)) return 0;
  if (settings.describe || !settings.graph.empty()) {
    const auto study = request->make_study();
    if (!settings.json) std::cout << study->summary(settings.training.seed);
    look_inside(*request, *study);
    return 0;
  }
  return run_as_ranks(request->line(), settings.ranks, request->machine(),
      [&](Communicator* ranks) { return train_and_test(*request, ranks); });
}

const RegisterCommand registered{
    {"train", Purpose::train, "any scheme on a task of the papers, on questions of your own, or on text", run}};

}  // namespace
}  // namespace whence
