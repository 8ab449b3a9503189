// bench decode: draws text token by token with a cache of keys and values. Each token reads every weight once, so the
// ceiling is the machine's memory bandwidth; the share is tokens/s times the weights' bytes, divided by that.
#include <cmath>
#include <memory>

#include "autograd/recording.h"
#include "examples/whence/bench/bench.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/machine/models.h"
#include "nn/decoding.h"
#include "nn/scheme.h"
#include "nn/training/precision.h"
#include "tensor/device/device_runtime.h"
#include "tensor/raw.h"

namespace whence::bench {
namespace {

constexpr index_t vocabulary = 256;

// Returns a GPT-2 small, whose blocks have 85 M parameters, with the vocabulary of bytes.
std::shared_ptr<const Transformer> drawn_model(const DecodeSizes& sizes, DType precision, Device device) {
  TransformerOptions options = named_model("gpt2-124m", canonical_text(parse_schemes(sizes.scheme)));
  options.kv_heads = sizes.kv_heads, options.vocabulary = vocabulary, options.length = sizes.prompt + sizes.tokens;
  options.dropout = options.pattern_dropout = options.hidden_dropout = 0;
  const auto model = std::make_shared<Transformer>(options);
  model->initialise(0);
  model->to(precision);
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

}  // namespace

void decode(const Options& options, const Placement& placement) {
  const auto schemes = list_of(options.schemes.empty() ? "absolute,alibi" : options.schemes);
  const auto prompts = numbers_of(options.lengths.empty() ? "64" : options.lengths, "--lengths");
  Bench bench("decode", options, placement.device, schemes.size() * prompts.size());
  for (const std::string& scheme : schemes)
    for (const std::int64_t prompt : prompts) {
      bench.begin(to_text(scheme, ", after ", prompt, " tokens"));
      (void)bench.measure(
          {measured_decode({scheme, prompt, options.tokens}, options.machine.precision, placement.device)});
    }
}

Measured measured_decode(const DecodeSizes& sizes, const std::string& precision, Device device) {
  const DType dtype = storage_dtype_of(precision);
  const auto model = drawn_model(sizes, dtype, device);
  const auto last = std::make_shared<Reading>();
  Measured measured{.name = sizes.scheme,
      .given = {{"tokens", drawn_tokens({1, sizes.prompt + sizes.tokens}, vocabulary, Stream(0, "bench decode"))}},
      .heads = model->options().heads};
  for (const Module::Parameter& parameter : model->parameters())
    measured.given.emplace_back(parameter.path, parameter.tensor);
  measured.run = [model, last, sizes, text = measured.given.front().second]() -> Repetition {
    *last = read(*model, text, sizes.prompt);
    return {last->milliseconds, std::nan("")};
  };
  measured.results = [last] { return NamedTensors{{"logits", last->logits}}; };
  measured.row = [model, last, sizes, dtype](const Times& times, const Ceilings& ceilings) {
    std::vector<double> of_tokens = times.both;
    for (double& milliseconds : of_tokens) milliseconds /= static_cast<double>(sizes.tokens);
    const Median token = median(of_tokens);
    const double bytes = static_cast<double>(model->parameter_count()) * static_cast<double>(size_of(dtype)),
                 share = bytes / token.value / 1e6 / ceilings.read_gb_per_s,
                 cache = static_cast<double>(last->cache_bytes) / (1 << 20);
    Row row;
    row.add("scheme", model->scheme(), "scheme")
        .add("precision", to_string(dtype))
        .add("parameters", model->parameter_count())
        .add("prompt", sizes.prompt, "after")
        .add("tokens", sizes.tokens)
        .add("kv_heads", model->options().key_heads())
        .add("ms", token.value, "ms of a token", text_of(token))
        .add("spread_ms", token.spread)
        .add("tokens_per_second", 1e3 / token.value, "tokens/s", fixed(1e3 / token.value, 1))
        .add("fraction", share, "of reading", percent_of(share))
        .add("cache_mib", cache, "MiB of keys and values", fixed(cache, 2));
    if (model->device().is_cpu()) return row;
    const bool recorded = last->no_graph.empty() && last->of_second > last->launches;
    return row.add("launches", last->launches, "launches of a token")
        .add("graph_launches", recorded ? last->of_second - last->launches : 0, "of its graph")
        .add("no_graph", last->no_graph, "why no graph");
  };
  return measured;
}

}  // namespace whence::bench
