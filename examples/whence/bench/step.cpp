// bench step: whole training steps (forward, loss, backward, clipping, AdamW) of models, by scheme: tokens per second,
// the share of the machine's ceiling, and where the time goes.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <tuple>

#include "autograd/backward.h"
#include "autograd/inspect/op_clock.h"
#include "autograd/inspect/probe.h"
#include "autograd/ops.h"
#include "examples/whence/bench/peer.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/machine/memory_plan.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/report/table.h"
#include "examples/whence/tasks/task_training.h"
#include "nn/io/json.h"
#include "nn/models.h"
#include "nn/training/training_step.h"
#include "tensor/device/allocator.h"
#include "tensor/device/backend.h"
#include "tensor/device/device_runtime.h"
#include "tensor/error.h"
#include "tensor/kernels.h"
#include "tensor/raw.h"

namespace whence::bench {
namespace {

struct Options {
  std::string models = "all", schemes, executor = "auto", precision = "f32", ways = "all";
  std::int64_t batch = 0, length = 0;
  bool profile = false, recorded = false, probes = false;
  Settings settings;
};

// A model on random tokens.
struct Preset {
  std::string name, schemes;
  std::int64_t batch, length;
  TransformerOptions model;
};

std::vector<Preset> presets() {
  TransformerOptions gpt2 = named_model("gpt2-124m");
  gpt2.dropout = gpt2.pattern_dropout = gpt2.hidden_dropout = 0;  // a recorded step could not draw it anew
  TransformerOptions small = tasks::make_task("flip_flop")->model();
  TransformerOptions toy = small;
  toy.dim = 16, toy.layers = 2, toy.heads = 2, toy.hidden = 0;
  return {{"gpt2-124m", "absolute,alibi,cope,dape(kerple),cdape(kerple)", 4, 256, gpt2},
      {"gpt2-124m-long", "absolute,alibi", 1, 1024, gpt2}, {"flip_flop", "absolute,rope,cope", 16, 512, small},
      {"toy", "absolute,cope", 4, 40, toy}};
}

struct Case {
  std::string model, scheme;
  std::int64_t batch, length;
  TransformerOptions options;

  [[nodiscard]] std::int64_t tokens() const { return batch * length; }
  [[nodiscard]] std::string text() const {
    return to_text(model, ", ", scheme, ", batch ", batch, ", length ", length);
  }
};

std::vector<Case> cases_of(const Options& options) {
  const std::vector<std::string> wanted = list_of(options.models);
  const std::vector<Preset> known_models = presets();
  std::vector<Case> cases;
  std::string known;
  for (const Preset& preset : known_models) {
    known += preset.name + ", ";
    if (options.models != "all" && std::ranges::find(wanted, preset.name) == wanted.end()) continue;
    for (const std::string& scheme : list_of(options.schemes.empty() ? preset.schemes : options.schemes)) {
      Case each{preset.name, canonical_text(parse_schemes(scheme)), options.batch ? options.batch : preset.batch,
          options.length ? options.length : preset.length, preset.model};
      each.options.scheme = each.scheme, each.options.executor = options.executor;
      each.options.length = std::max(each.options.length, each.length);
      cases.push_back(each);
    }
  }
  for (const std::string& name : wanted) {
    const bool one = std::ranges::find(known_models, name, &Preset::name) != known_models.end();
    if (name != "all" && !one) throw InputError("--models: '", name, "' given; ", known, "or all required");
  }
  return cases;
}

// Tokens of an even distribution, and those that follow them: [b t] twice.
TrainingBatch random_batch(const Case& what, std::uint64_t step) {
  const Stream stream(0, "bench step", step);
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

// What the probes of a step cost.
struct Probes {
  std::int64_t calls = 0;  // in one step
  double nanoseconds = 0;  // of one call while nothing looks
  double share = 0;        // of the step
  Median watched;          // a step while somebody looks for what does not occur, of one while nobody looks
};

// Of one probe while nothing looks: the median of rounds, as a few of them are disturbed.
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
  if (op.starts_with("linear") || (op == "matmul" && time.path.find("attention") == std::string::npos))
    return "products";
  if (time.path.find("attention") != std::string::npos) return "attention";
  if (op == "layer_norm" || op == "rms_norm") return "norms";
  return op.starts_with("cross_entropy") ? "loss" : "rest";
}

class Training {
 public:
  Training(const Case& what, const Placement& placement, bool recorded) : what_(what), model_(what.options) {
    model_.initialise(0);
    for (const Module::Parameter& parameter : model_.parameters())
      // Zeros would hide what is read through them.
      if (parameter.init.kind == Init::Kind::constant && parameter.init.first == 0)
        raw::copy_into(Tensor::normal(parameter.tensor.shape(), 0, 0.02, Stream(1, parameter.path)), parameter.tensor);
    model_.to(placement.device);
    precision_ = std::make_unique<MixedPrecision>(model_, placement.precision, AdamOptions{.weight_decay = 0.1});
    if (!recorded) return;
    const std::string why = placement.device.is_cpu() ? "given without a GPU" : not_recordable(model_.options());
    if (!why.empty()) throw InputError("--cuda-graph: ", why);
    recorded_ = std::make_unique<TrainingStep>(
        *precision_, [this](std::int64_t part) { return random_batch(what_, static_cast<std::uint64_t>(part)); },
        [this](const TrainingBatch& batch, std::int64_t) { return sum_of_losses(batch); },
        StepOptions{.recorded = true});
  }

  // Milliseconds; forward ends with the loss, the rest is backward. Each part waits for the device. f16: with a loss
  // scale, and without a step where gradients overflow.
  Repetition step() {
    ++steps_;
    const double start = steady_seconds();
    if (recorded_) {
      (void)recorded_->take(static_cast<std::int64_t>(steps_), rate);
      return {(steady_seconds() - start) * 1e3, 0};
    }
    precision_->optimizer().zero_gradients();
    const Tensor loss = loss_of(random_batch(what_, steps_));
    synchronise(model_.device());
    const double middle = steady_seconds();
    auto& loss_scale = precision_->loss_scale();
    const double scale = loss_scale ? loss_scale->value() : 1;
    backward(loss, Tensor::full({}, scale, loss.dtype(), loss.device()));
    const GradientNorm norm = clip_by_global_norm(model_.parameters(), 1.0, scale);
    if (loss_scale) loss_scale->update(norm.finite(), static_cast<index_t>(steps_));
    if (norm.finite()) precision_->optimizer().step(rate, norm);
    synchronise(model_.device());
    return {(middle - start) * 1e3, (steady_seconds() - middle) * 1e3};
  }

  // On the CPU, where an op has ended when it returns.
  Profile profile() {
    Profile found;
    const double start = steady_seconds();
    {
      const OpClock clock([&](const OpTime& time) {
        const std::string part = part_of(time);
        found.parts[part] += time.seconds;
        found.ops[part + ": " + time.op + (time.backward ? ", backward" : "")] += time.seconds;
      });
      precision_->optimizer().zero_gradients();
      backward(loss_of(random_batch(what_, ++steps_)));
    }
    const double update = steady_seconds();
    precision_->optimizer().step(rate, clip_by_global_norm(model_.parameters(), 1.0, 1));
    found.total = steady_seconds() - start;
    found.parts["optimiser"] = steady_seconds() - update;
    double told = 0;
    for (const auto& [part, seconds] : found.parts) told += seconds;
    found.parts["rest"] += found.total - told;
    found.ops["rest: outside of ops"] = found.total - told;
    return found;
  }

  Probes probes(int repetitions) {
    const auto seconds = [this] {
      const double start = steady_seconds();
      (void)step();
      return steady_seconds() - start;
    };
    Probes found;
    found.nanoseconds = nanoseconds_of_probe();
    std::vector<double> alone, ratios;
    for (int round = 0; round < repetitions; ++round) {
      stop_if_asked();
      // In turn, each first every other time: what disturbs the machine disturbs both.
      double both[2];
      for (const bool watched : {round % 2 == 0, round % 2 != 0}) {
        std::unique_ptr<Capture> nothing = watched ? std::make_unique<Capture>() : nullptr;
        both[watched] = seconds();
        if (nothing) found.calls = nothing->passed();
      }
      alone.push_back(both[0]), ratios.push_back(both[1] / both[0]);
    }
    found.share = static_cast<double>(found.calls) * found.nanoseconds / 1e9 / median(alone).value;
    found.watched = median(ratios);
    return found;
  }

  // The loss and every gradient with the batch and the weights that given() hands out. Both are copies: steps write
  // over weights and gradients.
  NamedTensors gradients() {
    precision_->optimizer().zero_gradients();
    const Tensor loss = loss_of(random_batch(what_, 0));
    backward(loss);
    NamedTensors found{{"loss", loss.detach()}};
    for (const Module::Parameter& parameter : model_.parameters())
      found.emplace_back("gradient of " + parameter.path, raw::copy(gradient(parameter.tensor)));
    return found;
  }
  NamedTensors given() const {
    const TrainingBatch batch = random_batch(what_, 0);
    NamedTensors tensors{{"tokens", batch.tensors[0]}, {"targets", batch.tensors[1]}};
    for (const Module::Parameter& parameter : model_.parameters())
      tensors.emplace_back(parameter.path, raw::copy(parameter.tensor));
    return tensors;
  }

  const Transformer& model() const { return model_; }
  // Multiply-adds that a step needs, two operations each: every matrix of the model with every token, three times, and
  // the scores and values of the pairs that are seen.
  [[nodiscard]] double operations() const {
    double matrices = 0;
    for (const Module::Parameter& parameter : model_.parameters()) {
      const bool scheme = parameter.path.find("position") != std::string::npos;
      if (parameter.tensor.rank() == 2 && !scheme) matrices += static_cast<double>(parameter.tensor.numel());
    }
    const TransformerOptions& options = model_.options();
    if (!options.tied) matrices -= static_cast<double>(options.vocabulary * options.dim);  // looked up, not multiplied
    const auto length = static_cast<double>(what_.length);
    const double pairs = static_cast<double>(what_.batch * options.layers) * length * (length + 1) / 2;
    return 6 * matrices * static_cast<double>(what_.tokens()) + 14 * static_cast<double>(options.dim) * pairs;
  }

 private:
  static constexpr double rate = 3e-4;

  // The mean counts its targets on the CPU, which no recorded step can, and for which any other waits.
  [[nodiscard]] Tensor sum_of_losses(const TrainingBatch& batch) const {
    const Pass pass{.training = true, .seed = 0, .step = static_cast<std::uint64_t>(steps_)};
    return cross_entropy_sum(model_(batch.tensors[0], pass), batch.tensors[1]);
  }
  [[nodiscard]] Tensor loss_of(const TrainingBatch& batch) const {
    return sum_of_losses(batch) * (1 / static_cast<double>(batch.counted));
  }

  const Case& what_;
  Transformer model_;
  std::unique_ptr<MixedPrecision> precision_;
  std::unique_ptr<TrainingStep> recorded_;
  std::uint64_t steps_ = 0;
};

struct Row {
  const Case* what;
  std::string engine;
  Times times;
  double peak_mib = 0, fraction = 0, ratio = 0, relative = -1;
  double launches = 0, bytes_to_device = 0;  // of one step; a GPU's alone

  [[nodiscard]] double tokens_per_second() const {
    return static_cast<double>(what->tokens()) / median(times.both).value * 1e3;
  }
};

class StepBench {
 public:
  StepBench(const Options& options, const Placement& placement)
      : options_(options),
        placement_(placement),
        cases_(cases_of(options)),
        ways_(chosen_ways(options.settings, options.ways, {"eager", "compile"}, placement.device.is_cpu())),
        bench_("step", options.settings, placement.device.is_cpu(),
            static_cast<std::int64_t>(cases_.size() * (1 + ways_.size())), peer_version(options.settings)) {}

  void run() {
    bench_.run(
        [&] {
          for (const Case& what : cases_) measure(what);
        },
        [&] { show(); });
  }

 private:
  // OutOfMemory, before anything of the model is made, where a step cannot fit.
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
    NamedTensors results, given;
    if (!ways_.empty()) given = training.given(), results = training.gradients();
    Allocator& allocator = memory_of(placement_.device);
    allocator.reset_peak();
    for (int round = 0; round < 2; ++round) (void)training.step();  // the second finds Adam's moments in place
    Row row{&what, "whence", {}};
    const DeviceTraffic before = traffic();
    for (int round = 0; round < options_.settings.repetitions; ++round) stop_if_asked(), row.times.add(training.step());
    const DeviceTraffic after = traffic();
    row.launches = static_cast<double>(after.launches - before.launches) / options_.settings.repetitions;
    row.bytes_to_device =
        static_cast<double>(after.bytes_to_device - before.bytes_to_device) / options_.settings.repetitions;
    row.peak_mib = static_cast<double>(allocator.statistics().peak) / 1048576;
    keep(row, training);
    if (options_.profile) profile(training, what);
    if (options_.probes) probes(training, what);
    for (const PeerWay& way : ways_) compare(training, what, way, given, results);
  }

  void compare(Training& training, const Case& what, const PeerWay& way, const NamedTensors& given,
      const NamedTensors& results) {
    bench_.begin(what.text() + ", " + way.text());
    Peer peer(options_.settings, way.tuned);
    (void)peer.ask(
        {{"do", std::string("prepare")}, {"bench", std::string("step")}, {"scheme", what.scheme}, {"way", way.way},
            {"device", std::string(placement_.device.is_cpu() ? "cpu" : "cuda")}, {"precision", options_.precision},
            {"heads", what.options.heads}, {"layers", what.options.layers}},
        given);
    Difference difference;
    if (options_.precision == "f32") {
      difference = largest_difference(results, peer.ask({{"do", std::string("results")}}).tensors);
      require_equal(what.text() + ", " + way.text(), difference,
          what.scheme.find("cope") == std::string::npos ? 1e-3 : 1e-2);  // of whole models, layer after layer
    }
    const Turns turns = in_turn(peer, options_.settings.repetitions, [&] { return training.step(); });
    Row row{&what, way.text(), turns.theirs};
    row.ratio = turns.ratio(), row.relative = options_.precision == "f32" ? difference.relative : -1;
    keep(row, training);
  }

  void keep(Row row, const Training& training) {
    const double milliseconds = median(row.times.both).value;
    if (placement_.device.is_cpu() && options_.precision == "f32")
      row.fraction = bench_.ceilings().milliseconds_of(training.operations()) / milliseconds;
    Json record{{"model", row.what->model}, {"scheme", row.what->scheme}, {"engine", row.engine},
        {"executor", options_.executor}, {"parameters", training.model().parameter_count()},
        {"length", row.what->length}, {"batch", row.what->batch}, {"device", to_string(placement_.device)},
        {"precision", options_.precision}, {"threads", std::int64_t{threads()}},
        {"form", std::string(options_.recorded && row.ratio == 0 ? "graph" : "steps")},
        {"forward_ms", median(row.times.forward).value}, {"backward_ms", median(row.times.backward).value},
        {"both_ms", milliseconds}, {"spread_ms", median(row.times.both).spread},
        {"tokens_per_second", row.tokens_per_second()}};
    if (row.peak_mib > 0) record.add("peak_mib", row.peak_mib);
    if (row.launches > 0) record.add("launches", row.launches), record.add("bytes_to_device", row.bytes_to_device);
    if (row.fraction > 0) record.add("fraction", row.fraction);
    if (row.ratio > 0) record.add("ratio", row.ratio);
    if (row.relative >= 0) record.add("difference", row.relative);
    bench_.record(record);
    rows_.push_back(std::move(row));
  }

  void profile(Training& training, const Case& what) {
    std::vector<Profile> profiles;
    for (int round = 0; round < options_.settings.repetitions; ++round)
      stop_if_asked(), profiles.push_back(training.profile());
    // The median step, as it was: parts of different steps would not add up.
    std::sort(profiles.begin(), profiles.end(), [](const auto& a, const auto& b) { return a.total < b.total; });
    const Profile& middle = profiles[profiles.size() / 2];
    Json record{{"model", what.model}, {"scheme", what.scheme}, {"profile_ms", middle.total * 1e3}};
    for (const auto& [part, seconds] : middle.parts) record.add(part, seconds / middle.total);
    bench_.record(record);
    profiles_.emplace_back(&what, middle);
  }

  void probes(Training& training, const Case& what) {
    const Probes found = training.probes(options_.settings.repetitions);
    bench_.record({{"model", what.model}, {"scheme", what.scheme}, {"probes", found.calls},
        {"probe_ns", found.nanoseconds}, {"probe_share", found.share}, {"watched_ratio", found.watched.value},
        {"watched_ratio_spread", found.watched.spread}});
    probes_.emplace_back(&what, found);
  }

  void show_probes() const {
    if (probes_.empty()) return;
    std::cout << "\nwhat probes cost in a step while nothing looks, and a step under a capture that matches nothing:\n";
    Table table({"model", "scheme", "probes in a step", "ns of one", "share of the step", "step under a capture"});
    for (const auto& [what, found] : probes_) {
      table.row({what->model, what->scheme, std::to_string(found.calls), fixed(found.nanoseconds, 2),
          fixed(100 * found.share, 6) + " %", text_of(found.watched)});
    }
    std::cout << table.text();
  }

  void show() const {
    std::vector<std::string> header{
        "model", "scheme", "by", "forward ms", "backward, update ms", "both ms", "tokens/s", "of FMA peak"};
    const bool on_gpu = placement_.device.is_gpu();
    if (on_gpu) header.insert(header.end(), {"launches", "bytes to it"});
    if (!ways_.empty()) header.emplace_back("theirs / ours");
    Table table(header);
    for (const Row& row : rows_) {
      std::vector<std::string> cells{row.what->model, row.what->scheme, row.engine, text_of(median(row.times.forward)),
          text_of(median(row.times.backward)), text_of(median(row.times.both)), fixed(row.tokens_per_second(), 0),
          row.fraction > 0 ? fixed(100 * row.fraction, 0) + " %" : "-"};
      if (on_gpu) cells.push_back(row.launches > 0 ? fixed(row.launches, 0) : "-");
      if (on_gpu) cells.push_back(row.launches > 0 ? fixed(row.bytes_to_device, 0) : "-");
      if (!ways_.empty()) cells.push_back(row.ratio > 0 ? fixed(row.ratio, 2) : "-");
      table.row(cells);
    }
    std::cout << table.text();
    for (const auto& entry : profiles_) {
      const auto& what = entry.first;  // clang does not let a lambda capture a structured binding
      const auto& profile = entry.second;
      std::cout << "\nwhere " << fixed(profile.total * 1e3, 1) << " ms of " << what->text() << " go:\n";
      Table parts({"part", "ms", "share"});
      const auto add = [&](const std::string& name, double seconds) {
        parts.row({name, fixed(seconds * 1e3, 2), fixed(100 * seconds / profile.total, 1) + " %"});
      };
      for (const auto& [part, seconds] : profile.parts) {
        add(part, seconds);
        for (const auto& [op, its] : profile.ops)
          if (op.starts_with(part + ":") && its > 0.01 * profile.total) add("  " + op.substr(part.size() + 2), its);
      }
      std::cout << parts.text();
    }
    show_probes();
  }

  const Options& options_;
  Placement placement_;
  std::vector<Case> cases_;
  std::vector<PeerWay> ways_;
  Bench bench_;
  std::vector<Row> rows_;
  std::vector<std::pair<const Case*, Profile>> profiles_;
  std::vector<std::pair<const Case*, Probes>> probes_;
};

int run(CommandLine& line) {
  Options options;
  line.heading("What is measured")
      .text("models", &options.models,
          {.help = "gpt2-124m, gpt2-124m-long (batch 1, length 1024), flip_flop (256/4/4), toy (dim 16), or all"})
      .text("schemes", &options.schemes, {.help = "positional schemes", .initial = "some for each model"})
      .text("executor", &options.executor, {"how attention is computed"})
      .integer("batch", &options.batch, Range<std::int64_t>{0, 65536}, {.help = "sequences; 0: the model's"})
      .integer("length", &options.length, Range<std::int64_t>{0, 65536}, {.help = "tokens of one; 0: the model's"})
      .choice("precision", &options.precision, {"f32", "f16", "bf16"}, {"of parameters and activations"})
      .flag("cuda-graph", &options.recorded, {"on a GPU: the step recorded once and replayed"})
      .flag("profile", &options.profile, {"on the CPU: where the time goes, by part and op"})
      .flag("probes", &options.probes, {"what the probes of a step cost while nothing looks"});
  declare(line, options.settings);
  declare_peer(line, options.settings);
  line.text("ways", &options.ways, {"of the peer: eager, compile, or all"});
  line.example("whence bench step --models gpt2-124m --schemes alibi --profile", "where a step of GPT-2 goes");
  if (line.shows_page()) return 0;
  for (const char* name : {"python", "ways"}) line.refuse_unless(name, options.settings.with_peer(), "--peer");
  const Placement placement = placement_of({options.settings.threads, options.settings.device, options.precision});
  line.refuse_unless("probes", !options.recorded, "steps that are not recorded");
  line.refuse_unless("profile", placement.device.is_cpu() && options.precision == "f32", "the CPU and f32");
  StepBench(options, placement).run();
  return 0;
}

const RegisterCommand registered{
    {"bench step", Purpose::machine, "tokens per second of training, and where the time goes", run}};

}  // namespace
}  // namespace whence::bench
