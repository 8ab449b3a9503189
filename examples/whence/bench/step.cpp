// bench step: measures whole training steps (forward, loss, backward, clipping, AdamW) of models, by scheme: tokens per
// second, the share of the machine's ceiling, and the time of each part.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "autograd/backward.h"
#include "autograd/inspect/observers.h"
#include "examples/whence/bench/bench.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/machine/memory.h"
#include "examples/whence/machine/models.h"
#include "examples/whence/tasks/task.h"
#include "nn/training/training.h"
#include "tensor/device/allocator.h"
#include "tensor/device/device_runtime.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::bench {
namespace {

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

std::vector<Case> steps_of(const Options& options) {
  const std::vector<Case> known = known_cases();
  const std::vector<std::string> wanted = list_of(options.models);
  for (const std::string& name : wanted)
    if (name != "all" && std::ranges::find(known, name, &Case::model) == known.end())
      throw InputError("--models: '", name, "' given; ", joined(known, &Case::model), ", or all required");
  std::vector<Case> cases;
  for (const Case& model : known) {
    if (options.models != "all" && std::ranges::find(wanted, model.model) == wanted.end()) continue;
    for (const std::string& scheme : list_of(options.schemes.empty() ? model.schemes : options.schemes)) {
      for (const std::int64_t length :
          options.lengths.empty() ? std::vector{model.length} : numbers_of(options.lengths, "--lengths")) {
        Case& each = cases.emplace_back(model);
        if (options.batch > 0) each.batch = options.batch;
        each.length = length, each.options.length = std::max(each.options.length, length);
        each.options.scheme = canonical_text(parse_schemes(scheme));
        if (!options.executors.empty()) each.options.executor = options.executors;
      }
    }
  }
  return cases;
}

// Returns uniformly drawn tokens, and the tokens that follow them: [b t] twice.
TrainingBatch random_batch(const Case& what, std::int64_t step) {
  const Tensor tokens = drawn_tokens({what.batch, what.length + 1}, what.options.vocabulary,
      Stream(0, "bench step", static_cast<std::uint64_t>(step)));
  return {{raw::contiguous(raw::slice(tokens, 1, 0, what.length)),
              raw::contiguous(raw::slice(tokens, 1, 1, what.length + 1))},
      what.tokens(), what.tokens()};
}

// Seconds of one step by part, and by op within the parts.
struct Profile {
  std::map<std::string, double> parts, ops;
  double total = 0;
};

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

DeviceTraffic traffic(Device device) { return device.is_gpu() ? runtime_of(device).traffic() : DeviceTraffic{}; }

void profile(Bench& bench, Training& training, const Case& what, int repetitions) {
  std::vector<Profile> profiles;
  for (int round = 0; round < repetitions; ++round) {
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
    bench.keep(Row()
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
  bench.keep(record);
}

void measure(Bench& bench, const Case& what, const Options& options, const Placement& placement) {
  const Device device = placement.device;
  // OutOfMemory, before any part of the model is made, if a step cannot fit.
  const TrainingMemory memory = require_step_memory({.model = what.options,
                                                        .sequences = what.batch,
                                                        .length = what.length,
                                                        .device = device,
                                                        .precision = placement.precision},
      free_memory(device));
  bench.begin(to_text(what.text(), "; memory: ", bytes_text(memory.peak), " at the peak of a step"));
  Training training(what, placement, options.recorded);
  Allocator& allocator = memory_of(device);
  allocator.reset_peak();
  (void)training.step();  // later steps find Adam's moments in place
  DeviceTraffic before;   // before the last step
  const Times times = bench.measure({{.run = [&] {
    before = traffic(device);
    return training.step();
  }}})[0];
  const DeviceTraffic after = traffic(device);
  const double milliseconds = median(times.both).value, tokens = static_cast<double>(what.tokens()),
               per_second = tokens / milliseconds * 1e3;
  const TrainingOperations cost = training_operations(what.options, what.length);
  const double products = cost.products.products + cost.attention.products + cost.scheme.products,
               share = placement.precision == DType::f32
                           ? bench.ceilings().milliseconds_of(products * tokens) / milliseconds
                           : std::nan("");
  Row row;
  row.add("model", what.model, "model")
      .add("scheme", what.options.scheme, "scheme")
      .add("executor", memory.executor.substr(0, memory.executor.find(' ')))
      .add("parameters", training.model().parameter_count())
      .add("length", what.length)
      .add("batch", what.batch)
      .add("precision", to_string(placement.precision))
      .add("form", options.recorded ? "graph" : "steps")
      .add(times, "backward, update ms")
      .add("tokens_per_second", per_second, "tokens/s", fixed(per_second, 0))
      .add("fraction", share, "of FMA peak", percent_of(share))
      .add("peak_mib", static_cast<double>(allocator.statistics().peak) / 1048576);
  if (device.is_gpu()) {
    const ProductCount all = after.products - before.products, unaligned = after.unaligned - before.unaligned;
    const double part = static_cast<double>(unaligned.multiplications) / static_cast<double>(all.multiplications);
    row.add("launches", after.launches - before.launches, "launches")
        .add("bytes_to_device", after.bytes_to_device - before.bytes_to_device, "bytes to it")
        .add("unaligned_products", unaligned.products, "unaligned products")
        .add("unaligned_share", part, "of multiplications", fixed(100 * part, 2) + " %");
  }
  bench.keep(row);
  if (options.profile) profile(bench, training, what, options.repetitions);
}

}  // namespace

void step(const Options& options, const Placement& placement) {
  const std::vector<Case> cases = steps_of(options);
  Bench bench("step", options, placement.device, cases.size());
  for (const Case& what : cases) measure(bench, what, options, placement);
}

Measured measured_step(const StepSizes& sizes, const Placement& placement) {
  Options options;
  options.models = sizes.model, options.schemes = sizes.scheme, options.executors = sizes.executor;
  options.batch = sizes.batch, options.lengths = sizes.length > 0 ? std::to_string(sizes.length) : "";
  const std::vector<Case> found = steps_of(options);
  if (sizes.model == "all" || found.size() != 1) throw InputError("step: one model and one scheme required");
  const auto what = std::make_shared<const Case>(found.front());
  const auto training = std::make_shared<Training>(*what, placement, false);
  // In 16 bits two programs round differently in layer after layer, so nothing is compared.
  NamedTensors results = placement.precision == DType::f32 ? training->first_gradients() : NamedTensors();
  return {.name = what->text(),
      .given = training->given(),
      .run = [what, training] { return training->step(); },
      .results = [results = std::move(results)] { return results; },
      .heads = what->options.heads};
}

}  // namespace whence::bench
