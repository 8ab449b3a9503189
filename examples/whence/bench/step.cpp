// bench step: measures whole training steps (forward, loss, backward, clipping, AdamW) of models, by scheme: tokens per
// second, the share of the machine's ceiling, and the time of each part.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "autograd/backward.h"
#include "autograd/inspect/capture.h"
#include "autograd/inspect/observers.h"
#include "autograd/ops.h"
#include "examples/whence/bench/bench.h"
#include "examples/whence/bench/measured.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/machine/memory_plan.h"
#include "examples/whence/machine/model_plan.h"
#include "examples/whence/machine/named_models.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/run/training.h"
#include "examples/whence/tasks/task.h"
#include "nn/training/training.h"
#include "tensor/backend.h"
#include "tensor/device/allocator.h"
#include "tensor/device/device_runtime.h"
#include "tensor/raw.h"
#include "tensor/suggest.h"

namespace whence::bench {
namespace {

struct Options {
  std::string models = "all", schemes, executor = "auto", precision = "f32";
  std::int64_t batch = 0, length = 0;
  bool profile = false, recorded = false, probes = false;
  Settings settings;
};

// A model on random tokens.
struct Case {
  std::string model;
  std::int64_t batch, length;
  TransformerOptions options;
  std::string schemes;  // measured if none are named

  [[nodiscard]] std::int64_t tokens() const { return batch * length; }
  [[nodiscard]] std::string text() const {
    return to_text(model, ", ", options.scheme, ", batch ", batch, ", length ", length);
  }
};

std::vector<Case> known_cases() {
  TransformerOptions gpt2 = named_model("gpt2-124m");
  gpt2.dropout = gpt2.pattern_dropout = gpt2.hidden_dropout = 0;  // a recorded step could not draw it anew
  const TransformerOptions small = tasks::make_task("flip_flop")->model();
  TransformerOptions toy = small;
  toy.dim = 16, toy.layers = 2, toy.heads = 2, toy.hidden = 0;
  return {{"gpt2-124m", 4, 256, gpt2, "absolute,alibi,cope,dape(kerple),cdape(kerple)"},
      {"gpt2-124m-long", 1, 1024, gpt2, "absolute,alibi"}, {"flip_flop", 16, 512, small, "absolute,rope,cope"},
      {"toy", 4, 40, toy, "absolute,cope"}};
}

std::vector<Case> cases_of(const Options& options) {
  const std::vector<Case> known = known_cases();
  const std::vector<std::string> wanted = list_of(options.models);
  for (const std::string& name : wanted)
    if (name != "all" && std::ranges::find(known, name, &Case::model) == known.end())
      throw InputError("--models: '", name, "' given; ", joined(known, &Case::model), ", or all required");
  std::vector<Case> cases;
  for (const Case& model : known) {
    if (options.models != "all" && std::ranges::find(wanted, model.model) == wanted.end()) continue;
    for (const std::string& scheme : list_of(options.schemes.empty() ? model.schemes : options.schemes)) {
      Case& each = cases.emplace_back(model);
      if (options.batch > 0) each.batch = options.batch;
      if (options.length > 0) each.length = options.length;
      each.options.scheme = canonical_text(parse_schemes(scheme)), each.options.executor = options.executor;
      each.options.length = std::max(each.options.length, each.length);
    }
  }
  return cases;
}

// Returns uniformly drawn tokens, and the tokens that follow them: [b t] twice.
TrainingBatch random_batch(const Case& what, std::int64_t step) {
  const Stream stream(0, "bench step", static_cast<std::uint64_t>(step));
  const Tensor tokens = Tensor::empty({what.batch, what.length + 1}, DType::i64);
  for (index_t n = 0; n < tokens.numel(); ++n)
    tokens.data<index_t>()[n] =
        stream.below(static_cast<std::uint64_t>(n), static_cast<std::uint32_t>(what.options.vocabulary));
  return {{raw::contiguous(raw::slice(tokens, 1, 0, what.length)),
              raw::contiguous(raw::slice(tokens, 1, 1, what.length + 1))},
      what.tokens(), what.tokens()};
}

// Seconds of one step by part, and by op within the parts.
struct Profile {
  std::map<std::string, double> parts, ops;
  double total = 0;
};

// The cost of a step's probes.
struct Probes {
  std::int64_t calls = 0;  // in one step
  double share = 0;        // of the step, while no probe is watched
  Median watched;          // a step with a watch for a name that does not occur, relative to a step without
};

// Times one unwatched probe: the median of rounds, because a few of them are disturbed.
double nanoseconds_of_probe() {
  constexpr int calls = 10000;
  const Tensor x = Tensor::ones({1});
  std::vector<double> rounds;
  std::int64_t defined = 0;
  for (int round = 0; round < 200; ++round) {
    const double start = steady_seconds();
    for (int call = 0; call < calls; ++call) defined += probe("x", x).defined();
    rounds.push_back((steady_seconds() - start) / calls * 1e9);
  }
  if (defined != 200 * calls) fail("bench step", "a probe lost its tensor");
  return median(rounds).value;
}

std::string part_of(const OpTime& time) {
  const std::string op = time.op;
  const bool in_attention = time.path.find("attention") != std::string::npos;
  if (op.starts_with("linear") || (op == "matmul" && !in_attention)) return "products";
  if (in_attention) return "attention";
  if (op == "layer_norm" || op == "rms_norm") return "norms";
  return op.starts_with("cross_entropy") ? "loss" : "rest";
}

// A model in training, and the clock of its steps.
class Training {
 public:
  Training(const Case& what, const Placement& placement, bool recorded) : what_(what), model_(what.options) {
    model_.initialise(0);
    draw_zeros(model_, 0.02);
    model_.to(placement.device);
    precision_.emplace(model_, placement.precision, AdamOptions{.weight_decay = 0.1});
    require_recorded(recorded ? not_recordable(model_.options()) : "");
    step_.emplace(
        *precision_, [this](std::int64_t part) { return random_batch(what_, part); },
        [this, recorded](const TrainingBatch& batch, std::int64_t part) {
          const Tensor loss = loss_of_(batch, part);
          if (recorded) return loss;
          synchronise(model_.device());
          forward_done_ = steady_seconds();
          return loss;
        },
        StepOptions{.recorded = recorded});
  }

  // Forward ends with the loss; the rest is backward. A recorded step counts as forward.
  Repetition step() {
    const double start = steady_seconds();
    (void)step_->take(++steps_, 3e-4);
    require_recorded(step_->why_not_recorded());
    synchronise(model_.device());
    const double end = steady_seconds();
    if (std::isnan(forward_done_)) return {(end - start) * 1e3, forward_done_};
    return {(forward_done_ - start) * 1e3, (end - forward_done_) * 1e3};
  }

  // On the CPU an op has ended when it returns. Work after the last op is the optimiser's.
  Profile profile() {
    Profile found;
    double told = 0, last = 0;
    const OpClock clock([&](const OpTime& time) {
      const std::string part = part_of(time);
      found.parts[part] += time.seconds;
      found.ops[part + ": " + time.op + (time.backward ? ", backward" : "")] += time.seconds;
      told += time.seconds, last = steady_seconds();
    });
    const Repetition taken = step();
    found.total = (taken.forward + taken.backward) / 1e3;
    found.parts["optimiser"] = steady_seconds() - last;
    const double outside = found.total - told - found.parts["optimiser"];
    found.parts["rest"] += outside, found.ops["rest: outside of ops"] = outside;
    return found;
  }

  Probes probes(int repetitions, double nanoseconds) {
    Probes found;
    std::vector<double> alone, ratios;
    for (int round = 0; round < repetitions; ++round) {
      stop_if_asked();
      // The two alternate in order, so that other load affects both.
      double both[2];
      for (const bool watched : {round % 2 == 0, round % 2 != 0}) {
        std::optional<Capture> nothing;
        if (watched) nothing.emplace();
        const double start = steady_seconds();
        (void)step();
        both[watched] = steady_seconds() - start;
        if (nothing) found.calls = nothing->passes();
      }
      alone.push_back(both[0]), ratios.push_back(both[1] / both[0]);
    }
    found.share = static_cast<double>(found.calls) * nanoseconds / 1e9 / median(alone).value;
    found.watched = median(ratios);
    return found;
  }

  // Returns copies of what a peer needs to take the same steps: steps overwrite weights.
  NamedTensors given() const {
    const TrainingBatch batch = random_batch(what_, 0);
    NamedTensors found{{"tokens", batch.tensors[0]}, {"targets", batch.tensors[1]}};
    for (const Module::Parameter& parameter : model_.parameters())
      found.emplace_back(parameter.path, raw::copy(parameter.tensor));
    return found;
  }

  // Returns copies of the loss and every gradient of the first step, before any step is taken.
  NamedTensors first_gradients() {
    const TrainingBatch batch = random_batch(what_, 0);
    precision_->optimizer().zero_gradients();
    const Tensor loss = loss_of_(batch, 0) * (1 / static_cast<double>(batch.counted));
    backward(loss);
    NamedTensors found{{"loss", loss.detach()}};
    for (const Module::Parameter& parameter : model_.parameters())
      found.emplace_back("gradient of " + parameter.path, raw::copy(gradient(parameter.tensor)));
    return found;
  }

  const Transformer& model() const { return model_; }

 private:
  static void require_recorded(const std::string& why_not) {
    if (!why_not.empty()) throw InputError("--cuda-graph: given; ", why_not, "; leave it out");
  }

  const Case& what_;
  Transformer model_;
  const LossOf loss_of_ = token_loss(model_, 0);
  std::optional<MixedPrecision> precision_;
  std::optional<TrainingStep> step_;
  std::int64_t steps_ = 0;
  double forward_done_ = std::nan("");  // by the clock; unknown for a recorded step
};

class StepBench {
 public:
  StepBench(const Options& options, const Placement& placement)
      : options_(options),
        placement_(placement),
        cases_(cases_of(options)),
        bench_("step", options.settings, placement.device, cases_.size()) {}

  void run() {
    for (const Case& what : cases_) measure(what);
  }

 private:
  // OutOfMemory, before any part of the model is made, if a step cannot fit.
  [[nodiscard]] std::string memory_of_step(const Case& what) const {
    const TrainingMemory memory = require_step_memory({.model = what.options,
                                                          .sequences = what.batch,
                                                          .length = what.length,
                                                          .device = placement_.device,
                                                          .precision = placement_.precision},
        free_memory(placement_.device));
    return to_text("memory: ", bytes_text(memory.peak), " at the peak of a step");
  }

  [[nodiscard]] DeviceTraffic traffic() const {
    return placement_.device.is_gpu() ? runtime_of(placement_.device).traffic() : DeviceTraffic{};
  }

  void measure(const Case& what) {
    bench_.begin(to_text(what.text(), "; ", memory_of_step(what)));
    Training training(what, placement_, options_.recorded);
    Allocator& allocator = memory_of(placement_.device);
    allocator.reset_peak();
    (void)training.step();  // later steps find Adam's moments in place
    DeviceTraffic before;   // before the last step
    const Times times = bench_.repeated([&] {
      before = traffic();
      return training.step();
    });
    const DeviceTraffic after = traffic();
    Row more;
    more.add("peak_mib", static_cast<double>(allocator.statistics().peak) / 1048576);
    if (placement_.device.is_gpu()) {
      const ProductCount all = after.products - before.products, unaligned = after.unaligned - before.unaligned;
      const double share = static_cast<double>(unaligned.multiplications) / static_cast<double>(all.multiplications);
      more.add("launches", after.launches - before.launches, "launches")
          .add("bytes_to_device", after.bytes_to_device - before.bytes_to_device, "bytes to it")
          .add("unaligned_products", unaligned.products, "unaligned products")
          .add("unaligned_share", share, "of multiplications", fixed(100 * share, 2) + " %");
    }
    keep(what, training.model(), times, more);
    if (options_.profile) profile(training, what);
    if (options_.probes) probes(training, what);
  }

  void keep(const Case& what, const Transformer& model, const Times& times, const Row& more) {
    const double milliseconds = median(times.both).value;
    const double per_second = static_cast<double>(what.tokens()) / milliseconds * 1e3;
    const TrainingOperations cost = training_operations(what.options, what.length);
    const double products = cost.products.products + cost.attention.products + cost.scheme.products;
    const double share =
        options_.precision == "f32"
            ? bench_.ceilings().milliseconds_of(products * static_cast<double>(what.tokens())) / milliseconds
            : std::nan("");
    const std::string executor = model.attention(0).explain(
        placement_.device, placement_.precision, what.batch, what.length, what.options.causal);
    bench_.keep(described(what)
                    .add("executor", executor.substr(0, executor.find(' ')))
                    .add("parameters", model.parameter_count())
                    .add("length", what.length)
                    .add("batch", what.batch)
                    .add("precision", options_.precision)
                    .add("form", options_.recorded ? "graph" : "steps")
                    .add(times, "backward, update ms")
                    .add("tokens_per_second", per_second, "tokens/s", fixed(per_second, 0))
                    .add("fraction", share, "of FMA peak", percent_of(share))
                    .add(more));
  }

  static Row described(const Case& what) {
    return Row().add("model", what.model, "model").add("scheme", what.options.scheme, "scheme");
  }

  void profile(Training& training, const Case& what) {
    std::vector<Profile> profiles;
    for (int round = 0; round < options_.settings.repetitions; ++round) {
      stop_if_asked();
      profiles.push_back(training.profile());
    }
    // The median step as measured: parts of different steps would not add up.
    std::ranges::sort(profiles, {}, &Profile::total);
    const Profile& middle = profiles[profiles.size() / 2];
    const std::string title = to_text("where ", fixed(middle.total * 1e3, 1), " ms of ", what.text(), " go:");
    Row record;
    record.add("model", what.model).add("scheme", what.options.scheme).add("profile_ms", middle.total * 1e3);
    const auto show = [&](const std::string& name, double seconds) {
      bench_.keep(Row()
                      .add("", name, "part")
                      .add("", seconds, "ms", fixed(seconds * 1e3, 2))
                      .add("", seconds, "share", fixed(100 * seconds / middle.total, 1) + " %"),
          title);
    };
    for (const auto& [part, seconds] : middle.parts) {
      record.add(part, seconds / middle.total);
      show(part, seconds);
      for (const auto& [op, its] : middle.ops)
        if (op.starts_with(part + ":") && its > 0.01 * middle.total) show("  " + op.substr(part.size() + 2), its);
    }
    bench_.keep(record);
  }

  void probes(Training& training, const Case& what) {
    const double nanoseconds = nanoseconds_of_probe();
    const Probes found = training.probes(options_.settings.repetitions, nanoseconds);
    bench_.keep(described(what)
                    .add("probes", found.calls, "probes in a step")
                    .add("probe_ns", nanoseconds, "ns of one", fixed(nanoseconds, 2))
                    .add("probe_share", found.share, "share of the step", fixed(100 * found.share, 6) + " %")
                    .add("watched_ratio", found.watched.value, "step under a capture", text_of(found.watched))
                    .add("watched_ratio_spread", found.watched.spread),
        "what probes cost in a step while nothing looks, and a step under a capture that matches nothing:");
  }

  const Options& options_;
  Placement placement_;
  std::vector<Case> cases_;
  Bench bench_;
};

int run(CommandLine& line) {
  Options options;
  line.heading("Cases")
      .text("models", &options.models,
          {.help = "gpt2-124m, gpt2-124m-long (batch 1, length 1024), flip_flop (256/4/4), toy (dim 16), or all"})
      .text("schemes", &options.schemes, {.help = "positional schemes", .initial = "some for each model"})
      .text("executor", &options.executor, {"how attention is computed"})
      .integer("batch", &options.batch, Range<std::int64_t>{0, 65536}, {.help = "sequences; 0: the model's"})
      .integer("length", &options.length, Range<std::int64_t>{0, 65536}, {.help = "tokens of one; 0: the model's"})
      .choice("precision", &options.precision, {"f32", "f16", "bf16"}, {"dtype of parameters and activations"})
      .flag("cuda-graph", &options.recorded, {"on a GPU: the step recorded once and replayed"})
      .flag("profile", &options.profile, {"on the CPU: time by part and op"})
      .flag("probes", &options.probes, {"cost of a step's probes while none is watched"});
  declare(line, options.settings);
  line.example("whence bench step --models gpt2-124m --schemes alibi --profile", "where a step of GPT-2 goes");
  if (shows_page(line, options.settings)) return 0;
  const Placement placement = placement_of({options.settings.threads, options.settings.device, options.precision});
  line.refuse_unless("cuda-graph", placement.device.is_gpu(), "a GPU");
  line.refuse_unless("probes", !options.recorded, "beside --recorded");
  line.refuse_unless("profile", placement.device.is_cpu() && options.precision == "f32", "the CPU and f32");
  StepBench(options, placement).run();
  return 0;
}

const RegisterCommand registered{
    {"bench step", Purpose::machine, "tokens per second of training, and where the time goes", run}};

}  // namespace

Measured measured_step(const StepSizes& sizes, const Placement& placement) {
  Options options;
  options.models = sizes.model, options.schemes = sizes.scheme, options.executor = sizes.executor;
  options.batch = sizes.batch, options.length = sizes.length;
  const std::vector<Case> found = cases_of(options);
  if (sizes.model == "all" || found.size() != 1) throw InputError("step: one model and one scheme required");
  const auto what = std::make_shared<const Case>(found.front());
  const auto training = std::make_shared<Training>(*what, placement, false);
  // In 16 bits two programs round differently in layer after layer, so nothing is compared.
  NamedTensors results = placement.precision == DType::f32 ? training->first_gradients() : NamedTensors();
  return {.name = what->text(),
      .given = training->given(),
      .run = [what, training] { return CoreRun{training->step()}; },
      .results = [results = std::move(results)] { return results; },
      .heads = what->options.heads};
}

}  // namespace whence::bench
