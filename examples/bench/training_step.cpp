// training_step: tokens per second of whole training steps (forward, backward, clipping, AdamW) of the flip-flop
// decoder, or of a named model on random tokens. The PyTorch twin is training_step.py; `compare` runs the two in turn.
#include <algorithm>
#include <iostream>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "examples/app/command.h"
#include "examples/app/command_line.h"
#include "examples/app/placement.h"
#include "examples/app/progress.h"
#include "examples/app/results.h"
#include "examples/app/scheme_names.h"
#include "examples/tasks/task_training.h"
#include "nn/loss.h"
#include "nn/models.h"
#include "nn/training_step.h"
#include "tensor/allocator.h"
#include "tensor/backend.h"
#include "tensor/device_runtime.h"
#include "tensor/kernels.h"

extern "C" char* openblas_get_config();
extern "C" char* openblas_get_corename();

namespace whence {
namespace {

struct Options {
  tasks::ModelChoice model = tasks::choice_of(tasks::make_task("flip_flop")->model());
  std::int64_t length = 512, batch = 16;
  std::string name;  // of a model in nn/models.h; empty: the flip-flop decoder
  int steps = 10, warm_up = 3;
  MachineOptions machine;
  bool verbose = false, cuda_graph = false;
};

// Seconds of one step, part by part.
struct StepTime {
  double forward, backward, update;
  double total() const { return forward + backward + update; }
};

// Tokens of an even distribution, and those that follow them.
TrainingBatch random_tokens(const Transformer& model, const Options& options, int step) {
  const Stream stream(0, "training_step", static_cast<std::uint64_t>(step));
  const index_t count = options.batch * options.length;
  const Tensor tokens = Tensor::empty({options.batch, options.length}, DType::i64);
  for (index_t n = 0; n < count; ++n) {
    tokens.data<index_t>()[n] =
        stream.below(static_cast<std::uint64_t>(n), static_cast<std::uint32_t>(model.options().vocabulary));
  }
  const index_t targets = options.batch * (options.length - 1);
  return {{contiguous(slice(tokens, 1, 0, options.length - 1)), contiguous(slice(tokens, 1, 1, options.length))},
      targets, targets};
}

using Batches = std::function<TrainingBatch(int step)>;  // of steps 1, 2, ...

Batches batches_for(const Transformer& model, const Options& options) {
  if (!options.name.empty()) return [&](int step) { return random_tokens(model, options, step); };
  return [&, task = std::shared_ptr(tasks::make_task("flip_flop", {"--length", std::to_string(options.length)}))](
             int step) -> TrainingBatch {
    const tasks::Batch batch = task->training_batch(0, step, options.batch);
    return {{batch.input_tensor(), batch.target_tensor()}, batch.counted(), batch.sequences * batch.positions};
  };
}

Tensor loss_of(const Transformer& model, const TrainingBatch& batch, int step) {
  const Pass pass{.training = true, .seed = 0, .step = static_cast<std::uint64_t>(step)};
  return token_loss(model(batch.tensors[0], pass), batch.tensors[1]);
}

// Each part waits for the device, so that its time is its own. f16:
// with a loss scale, and without a step where gradients overflow.
StepTime time_step(const Transformer& model, MixedPrecision& precision, const Batches& batches, int step) {
  const double start = steady_seconds();
  Adam& optimizer = precision.optimizer();
  optimizer.zero_gradients();
  const Tensor loss = loss_of(model, batches(step + 1), step + 1);
  synchronise(model.device());
  const double after_forward = steady_seconds();
  auto& loss_scale = precision.loss_scale();
  const double scale = loss_scale ? loss_scale->value() : 1;
  backward(loss, Tensor::full({}, scale, loss.dtype(), loss.device()));
  synchronise(model.device());
  const double after_backward = steady_seconds();
  const GradientNorm norm = try_clip_by_global_norm(model.parameters(), 1.0, scale);
  if (loss_scale) loss_scale->update(norm.finite(), step + 1);
  if (norm.finite()) optimizer.step(3e-4, norm);
  synchronise(model.device());
  return {after_forward - start, after_backward - after_forward, steady_seconds() - after_backward};
}

// The same step recorded as one graph; its parts cannot be told apart.
std::vector<double> recorded_seconds(Transformer& model, MixedPrecision& precision, const Options& options) {
  const std::string why = model.device().is_cpu() ? "given without a GPU" : not_recordable(model.options());
  if (!why.empty()) throw InputError("--cuda-graph: " + why);
  TrainingStep step(
      precision, [batches = batches_for(model, options)](std::int64_t part) { return batches(static_cast<int>(part)); },
      [&](const TrainingBatch& batch, std::int64_t part) {
        return loss_of(model, batch, static_cast<int>(part)) * static_cast<double>(batch.counted);
      },
      {.recorded = true});
  std::vector<double> seconds;
  for (int n = 1; n <= options.warm_up + options.steps; ++n) {
    const double start = steady_seconds();
    (void)step.take(n, 3e-4);
    if (n > options.warm_up) seconds.push_back(steady_seconds() - start);
  }
  return seconds;
}

std::vector<double> measured_seconds(const Transformer& model, MixedPrecision& precision, const Options& options) {
  const Batches batches = batches_for(model, options);
  std::vector<double> seconds;
  for (int step = 0; step < options.warm_up + options.steps; ++step) {
    const StepTime time = time_step(model, precision, batches, step);
    if (options.verbose) {
      std::cerr << "forward " << fixed(time.forward * 1e3, 1) << "  backward " << fixed(time.backward * 1e3, 1)
                << "  update " << fixed(time.update * 1e3, 1) << " ms\n";
    }
    if (step >= options.warm_up) seconds.push_back(time.total());
  }
  return seconds;
}

TransformerOptions model_options(const Options& options, bool scheme_given) {
  if (options.name.empty())
    return tasks::with(
        tasks::make_task("flip_flop", {"--length", std::to_string(options.length)})->model(), options.model);
  TransformerOptions model = named_model(options.name, scheme_given ? options.model.scheme : "");
  model.executor = options.model.executor;
  // As in the PyTorch twin. A recorded step could not draw it anew.
  model.dropout = model.pattern_dropout = model.hidden_dropout = 0;
  return model;
}

void declare_options(CommandLine& line, Options& options) {
  std::vector<std::string> names;
  for (const NamedModel& named : named_models()) names.push_back(named.name);
  line.heading("Options")
      .choice("model", &options.name, names,
          {"a named model, without dropout, on random tokens, in place of the flip-flop decoder"})
      .choice("executor", &options.model.executor, {"auto", "reference", "strips"}, {"how attention is computed"})
      .text("scheme", &options.model.scheme, {.help = "positional scheme", .known = scheme_names()})
      .integer("length", &options.length, Range<std::int64_t>{4, 65536}, {"of a string", "tokens"})
      .integer("dim", &options.model.dim, Range<std::int64_t>{1, 16384}, {"model dim"})
      .integer("layers", &options.model.layers, Range<std::int64_t>{1, 64}, {"decoder blocks"})
      .integer("heads", &options.model.heads, Range<std::int64_t>{1, 256}, {"attention heads"})
      .integer("batch", &options.batch, Range<std::int64_t>{1, 65536}, {"per step", "strings"})
      .integer("steps", &options.steps, Range<int>{1, 100000}, {"timed steps"})
      .integer("warm-up", &options.warm_up, Range<int>{0, 1000}, {"steps before them"})
      .flag("cuda-graph", &options.cuda_graph, {"on a GPU, with --model: the step recorded once and replayed"})
      .flag("verbose", &options.verbose, {"each step's forward, backward and update"});
  declare(line, options.machine);
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line("whence bench training_step", "Times whole training steps of the flip-flop decoder.");
  declare_options(line, options);
  if (line.shows_page(argc, argv)) return 0;
  for (const char* size : {"dim", "layers", "heads"})
    line.refuse_unless(size, options.name.empty(), "no --model, which has its own sizes");
  line.refuse_unless("cuda-graph", !options.name.empty(), "--model");
  line.refuse_unless("verbose", !options.cuda_graph, "parts that can be told apart; a recorded step is one");
  const Placement placement = placement_of(options.machine);
  Transformer model(model_options(options, line.given("scheme")));
  model.initialise(0);
  model.to(placement.device);
  MixedPrecision precision(model, placement.precision, {.weight_decay = 0.1});
  std::vector<double> seconds =
      options.cuda_graph ? recorded_seconds(model, precision, options) : measured_seconds(model, precision, options);
  std::sort(seconds.begin(), seconds.end());
  const double tokens = static_cast<double>(options.batch * (options.length - 1)), median = seconds[seconds.size() / 2];
  std::cout << json_line({{"engine", std::string("whence ") + WHENCE_VERSION}, {"scheme", model.scheme()},
      {"parameters", model.parameter_count()}, {"device", to_string(placement.device)},
      {"precision", options.machine.precision}, {"threads", std::int64_t{threads()}},
      {"blas", std::string(openblas_get_config()) + " " + openblas_get_corename()}, {"median_ms", median * 1e3},
      {"best_ms", seconds.front() * 1e3}, {"tokens_per_second", tokens / median},
      {"peak_mib", static_cast<double>(memory_of(placement.device).allocator().statistics().peak) / 1048576}});
  return 0;
}

const RegisterCommand registered{{"bench training_step", Purpose::machine, "tokens per second of training", run}};

}  // namespace
}  // namespace whence
