// bench decode: draws text token by token with a cache of keys and values. Each token reads every weight once, so the
// ceiling is the machine's memory bandwidth; the share is tokens/s times the weights' bytes, divided by that.
#include <cmath>
#include <memory>

#include "autograd/recording.h"
#include "examples/whence/bench/bench.h"
#include "examples/whence/bench/measured.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/machine/named_models.h"
#include "examples/whence/machine/placement.h"
#include "nn/decoding.h"
#include "nn/scheme.h"
#include "nn/training/precision.h"
#include "tensor/device/device_runtime.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence::bench {
namespace {

struct Options {
  std::string schemes = "absolute,alibi", precision = "f32";
  std::int64_t prompt = 64, tokens = 64, vocabulary = 256, kv_heads = 0;
  Settings settings;
};

// GPT-2 small, whose blocks have 85 M parameters, with the vocabulary of bytes.
TransformerOptions model_of(const std::string& scheme, const Options& options) {
  TransformerOptions model = named_model("gpt2-124m", scheme);
  model.kv_heads = options.kv_heads;
  model.vocabulary = options.vocabulary, model.length = options.prompt + options.tokens;
  model.dropout = model.pattern_dropout = model.hidden_dropout = 0;
  return model;
}

// The prompt and the later tokens, drawn uniformly: the model is timed, not the choice of a token.
Tensor drawn_text(const Options& options) {
  const Tensor text = Tensor::empty({1, options.prompt + options.tokens}, DType::i64);
  const Stream stream(0, "bench decode");
  for (index_t n = 0; n < text.numel(); ++n)
    text.data<index_t>()[n] =
        stream.below(static_cast<std::uint64_t>(n), static_cast<std::uint32_t>(options.vocabulary));
  return text;
}

void keep(Bench& bench, const Options& options, const Transformer& model, Times times, const Row& more) {
  for (double& milliseconds : times.both) milliseconds /= static_cast<double>(options.tokens);
  const Median token = median(times.both);
  const double bytes =
      static_cast<double>(model.parameter_count()) * static_cast<double>(size_of(storage_dtype_of(options.precision)));
  const double share = bytes / token.value / 1e6 / bench.ceilings().read_gb_per_s;
  bench.keep(Row()
                 .add("scheme", model.scheme(), "scheme")
                 .add("precision", options.precision)
                 .add("parameters", model.parameter_count())
                 .add("prompt", options.prompt)
                 .add("tokens", options.tokens)
                 .add("kv_heads", model.options().key_heads())
                 .add("ms", token.value, "ms of a token", text_of(token))
                 .add("spread_ms", token.spread)
                 .add("tokens_per_second", 1e3 / token.value, "tokens/s", fixed(1e3 / token.value, 1))
                 .add("fraction", share, "of reading", percent_of(share))
                 .add(more));
}

std::shared_ptr<const Transformer> drawn_model(const std::string& scheme, const Options& options, Device device) {
  const auto model = std::make_shared<Transformer>(model_of(canonical_text(parse_schemes(scheme)), options));
  model->initialise(0);
  model->to(storage_dtype_of(options.precision));
  model->to(device);
  return model;
}

// Reads the text once, token by token after its prompt, and measures the time.
struct Reading {
  double milliseconds = 0;
  Tensor logits;  // for the last token
  index_t cache_bytes = 0;
  std::uint64_t launches = 0, of_second = 0;  // for the last token; for the second, which is recorded
  std::string no_graph;
};
Reading read(const Transformer& model, const Tensor& text, std::int64_t prompt) {
  const NoGrad values_only;
  const Device device = model.device();
  Reading reading;
  Decoding decoding(model, text.numel());
  (void)decoding(raw::slice(text, 1, 0, prompt));
  synchronise(device);
  const double start = steady_seconds();
  for (index_t n = prompt; n < text.numel(); ++n) {
    const std::uint64_t before = device.is_gpu() ? runtime_of(device).traffic().launches : 0;
    reading.logits = decoding(raw::slice(text, 1, n, n + 1));
    if (device.is_gpu()) reading.launches = runtime_of(device).traffic().launches - before;
    if (n == prompt + 1) reading.of_second = reading.launches;
  }
  synchronise(device);
  reading.milliseconds = (steady_seconds() - start) * 1e3;
  reading.cache_bytes = decoding.cache_bytes(), reading.no_graph = decoding.no_graph();
  return reading;
}

void measure(Bench& bench, const Options& options, const std::string& scheme) {
  bench.begin(scheme);
  const auto model = drawn_model(scheme, options, bench.device());
  const Tensor text = drawn_text(options);
  Reading reading;
  const Times times = bench.repeated([&]() -> Repetition {
    reading = read(*model, text, options.prompt);
    return {reading.milliseconds, std::nan("")};
  });
  const double mib = static_cast<double>(reading.cache_bytes) / (1 << 20);
  Row more;
  more.add("cache_mib", mib, "MiB of keys and values", fixed(mib, 2));
  if (bench.device().is_gpu()) {
    const bool recorded = reading.no_graph.empty() && reading.of_second > reading.launches;
    more.add("launches", reading.launches, "launches of a token")
        .add("graph_launches", recorded ? reading.of_second - reading.launches : 0, "of its graph")
        .add("no_graph", reading.no_graph, "why no graph");
  }
  keep(bench, options, *model, times, more);
}

int run(CommandLine& line) {
  Options options;
  using Count = Range<std::int64_t>;
  line.heading("Cases")
      .text("schemes", &options.schemes, {"positional schemes, commas between them"})
      .integer("prompt", &options.prompt, Count{1, 65536}, {"read first, in one pass", "tokens"})
      .integer("tokens", &options.tokens, Count{1, 65536}, {"drawn after it, one by one", "tokens"})
      .integer(
          "kv-heads", &options.kv_heads, Count{0, 12}, {"heads of keys and values, for 12 heads of queries; 0: 12"})
      .integer("vocabulary", &options.vocabulary, Count{2, 1000000}, {"the model's vocabulary", "tokens"})
      .choice("precision", &options.precision, {"f32", "f16", "bf16"}, {"dtype of parameters and activations"});
  declare(line, options.settings);
  line.example("whence bench decode --schemes alibi --kv-heads 4", "keys and values shared by three heads each");
  if (shows_page(line, options.settings)) return 0;
  const Device device = choose_device(options.settings.device).device;
  const std::vector<std::string> schemes = list_of(options.schemes);
  Bench bench("decode", options.settings, device, schemes.size());
  for (const std::string& scheme : schemes) measure(bench, options, scheme);
  return 0;
}

const RegisterCommand registered{{"bench decode", Purpose::machine,
    "tokens that a GPT-2 draws one by one, as a share of what the machine reads", run}};

}  // namespace

Measured measured_decode(const DecodeSizes& sizes, const std::string& precision, Device device) {
  Options options;
  options.prompt = sizes.prompt, options.tokens = sizes.tokens, options.precision = precision;
  options.vocabulary = sizes.vocabulary, options.kv_heads = sizes.kv_heads;
  const auto model = drawn_model(sizes.scheme, options, device);
  const Tensor text = drawn_text(options);
  const auto last = std::make_shared<Reading>();
  Measured measured{.name = sizes.scheme,
      .given = {{"tokens", text}},
      .run =
          [=] {
            *last = read(*model, text, sizes.prompt);
            return CoreRun{{last->milliseconds, std::nan("")}};
          },
      .results =
          [last] {
            return NamedTensors{{"logits", last->logits}};
          },
      .heads = model->options().heads};
  for (const Module::Parameter& parameter : model->parameters())
    measured.given.emplace_back(parameter.path, parameter.tensor);
  return measured;
}

}  // namespace whence::bench
