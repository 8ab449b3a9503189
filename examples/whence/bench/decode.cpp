// bench decode: text drawn token by token with a cache of keys and values. Each token reads every weight once, so the
// ceiling is what this machine reads from memory: tokens/s times the weights' bytes, as a share of that.
#include <iostream>
#include <memory>

#include "autograd/recording.h"
#include "examples/whence/bench/peer.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/machine/device_choice.h"
#include "examples/whence/report/table.h"
#include "nn/decoding.h"
#include "nn/io/json.h"
#include "nn/models.h"
#include "nn/scheme.h"
#include "tensor/device/device_runtime.h"
#include "tensor/parallel.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence::bench {
namespace {

struct Options {
  std::string schemes = "absolute,alibi";
  std::int64_t prompt = 64, tokens = 64, vocabulary = 256;
  Settings settings;
};

struct Row {
  std::string scheme, engine;
  Median milliseconds;  // of a token
  double share = 0, ratio = 0, relative = -1;
};

// GPT-2 small, whose blocks have 85 M parameters, with the vocabulary of bytes.
TransformerOptions model_of(const std::string& scheme, const Options& options) {
  TransformerOptions model = named_model("gpt2-124m", scheme);
  model.vocabulary = options.vocabulary, model.length = options.prompt + options.tokens;
  model.dropout = model.pattern_dropout = model.hidden_dropout = 0;
  return model;
}

class DecodeBench {
 public:
  DecodeBench(const Options& options, Device device)
      : options_(options),
        device_(device),
        schemes_(list_of(options.schemes)),
        ways_(chosen_ways(options.settings, "all", {"eager"}, device.is_cpu())),
        bench_("decode", options.settings, device.is_cpu(),
            static_cast<std::int64_t>(schemes_.size() * (1 + ways_.size())), peer_version(options.settings)) {}

  void run() {
    bench_.run(
        [&] {
          for (const std::string& scheme : schemes_) measure(canonical_text(parse_schemes(scheme)));
        },
        [&] { show(); });
  }

 private:
  void measure(const std::string& scheme) {
    bench_.begin(scheme);
    const NoGrad values_only;
    Transformer model(model_of(scheme, options_));
    model.initialise(0);
    model.to(device_);
    // The prompt and the tokens behind it, drawn evenly: what is timed is the model, not the choice of a token.
    const Tensor text = Tensor::empty({1, options_.prompt + options_.tokens}, DType::i64);
    const Stream stream(0, "bench decode");
    for (index_t n = 0; n < text.numel(); ++n)
      text.data<index_t>()[n] =
          stream.below(static_cast<std::uint64_t>(n), static_cast<std::uint32_t>(options_.vocabulary));
    Tensor logits;
    const auto ours = [&]() -> Repetition {
      Decoding decoding(model, text.numel());
      (void)decoding(raw::slice(text, 1, 0, options_.prompt));
      synchronise(device_);
      const double start = steady_seconds();
      for (index_t n = options_.prompt; n < text.numel(); ++n) logits = decoding(raw::slice(text, 1, n, n + 1));
      synchronise(device_);
      return {(steady_seconds() - start) * 1e3, 0};
    };
    (void)ours();
    Times times;
    for (int round = 0; round < options_.settings.repetitions; ++round) stop_if_asked(), times.add(ours());
    keep(model, scheme, "whence", times, 0, -1);
    for (const PeerWay& way : ways_) {
      bench_.begin(scheme + ", " + way.text());
      Peer peer(options_.settings, way.tuned);
      NamedTensors given{{"tokens", text}};
      for (const Module::Parameter& parameter : model.parameters())
        given.emplace_back(parameter.path, parameter.tensor);
      (void)peer.ask({{"do", std::string("prepare")}, {"bench", std::string("decode")}, {"scheme", scheme},
                         {"device", std::string(device_.is_cpu() ? "cpu" : "cuda")}, {"prompt", options_.prompt},
                         {"heads", model.options().heads}, {"layers", model.options().layers}},
          given);
      const Difference difference =
          largest_difference({{"logits", logits}}, peer.ask({{"do", std::string("results")}}).tensors);
      require_equal(scheme, difference, 1e-3);  // of a whole model, layer after layer
      const Turns turns = in_turn(peer, options_.settings.repetitions, ours, true);
      keep(model, scheme, way.text(), turns.theirs, turns.ratio(), difference.relative);
    }
  }

  void keep(const Transformer& model, const std::string& scheme, const std::string& engine, Times times, double ratio,
      double relative) {
    for (double& milliseconds : times.both) milliseconds /= static_cast<double>(options_.tokens);
    Row row{scheme, engine, median(times.both), 0, ratio, relative};
    const double bytes = static_cast<double>(model.parameter_count()) * sizeof(float);
    if (device_.is_cpu()) row.share = bytes / row.milliseconds.value / 1e6 / bench_.ceilings().read_gb_per_s;
    Json record{{"scheme", scheme}, {"engine", engine}, {"parameters", model.parameter_count()},
        {"prompt", options_.prompt}, {"tokens", options_.tokens}, {"device", to_string(device_)},
        {"threads", std::int64_t{threads()}}, {"ms", row.milliseconds.value}, {"spread_ms", row.milliseconds.spread},
        {"tokens_per_second", 1e3 / row.milliseconds.value}};
    if (row.share > 0) record.add("fraction", row.share);
    if (ratio > 0) record.add("ratio", ratio);
    if (relative >= 0) record.add("difference", relative);
    bench_.record(record);
    rows_.push_back(row);
  }

  void show() const {
    std::vector<std::string> header{"scheme", "by", "ms of a token", "tokens/s", "of reading", "off by"};
    if (!ways_.empty()) header.emplace_back("theirs / ours");
    Table table(header);
    for (const Row& row : rows_) {
      std::vector<std::string> cells{row.scheme, row.engine, text_of(row.milliseconds),
          fixed(1e3 / row.milliseconds.value, 1), row.share > 0 ? fixed(100 * row.share, 0) + " %" : "-",
          row.relative < 0 ? "-" : fixed(100 * row.relative, 4) + " %"};
      if (!ways_.empty()) cells.push_back(row.ratio > 0 ? fixed(row.ratio, 2) : "-");
      table.row(cells);
    }
    std::cout << table.text();
  }

  const Options& options_;
  Device device_;
  std::vector<std::string> schemes_;
  std::vector<PeerWay> ways_;
  Bench bench_;
  std::vector<Row> rows_;
};

int run(CommandLine& line) {
  Options options;
  using Count = Range<std::int64_t>;
  line.heading("What is measured")
      .text("schemes", &options.schemes, {"positional schemes, commas between them"})
      .integer("prompt", &options.prompt, Count{1, 65536}, {"read first, at once", "tokens"})
      .integer("tokens", &options.tokens, Count{1, 65536}, {"drawn behind it, one by one", "tokens"})
      .integer("vocabulary", &options.vocabulary, Count{2, 1000000}, {"of the model", "tokens"});
  declare(line, options.settings);
  declare_peer(line, options.settings);
  line.example("whence bench decode --peer pytorch --schemes alibi", "beside PyTorch with a cache of keys and values");
  if (line.shows_page()) return 0;
  line.refuse_unless("python", options.settings.with_peer(), "--peer");
  set_threads(options.settings.threads);
  DecodeBench(options, choose_device(options.settings.device).device).run();
  return 0;
}

const RegisterCommand registered{{"bench decode", Purpose::machine,
    "tokens that a GPT-2 draws one by one, as a share of what the machine reads", run}};

}  // namespace
}  // namespace whence::bench
