#include "examples/whence/language/language_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "tensor/random.h"

namespace whence::language {

Windows windows_at(const Corpus& corpus, Part part, const std::vector<index_t>& starts, index_t length) {
  const auto rows = static_cast<index_t>(starts.size());
  Windows windows{Tensor::empty({rows, length}, DType::i64), Tensor::empty({rows, length}, DType::i64)};
  for (index_t b = 0; b < rows; ++b) {
    const TokenIds ids = corpus.slice(part, starts[static_cast<std::size_t>(b)], length + 1);
    std::copy(ids.begin(), ids.end() - 1, windows.inputs.data<std::int64_t>() + b * length);
    std::copy(ids.begin() + 1, ids.end(), windows.targets.data<std::int64_t>() + b * length);
  }
  return windows;
}

std::vector<index_t> training_starts(
    const Corpus& corpus, const WindowOptions& options, std::uint64_t seed, std::int64_t part) {
  const Stream stream(seed, "language windows", static_cast<std::uint64_t>(part));
  const index_t places = corpus.size(Part::training).tokens - options.length;
  std::vector<index_t> starts;
  for (index_t b = 0; b < options.sequences; ++b) {
    const double drawn = stream.uniform53(static_cast<std::uint64_t>(b)) * static_cast<double>(places);
    starts.push_back(std::min(places - 1, static_cast<index_t>(drawn)));
  }
  return starts;
}

TrainingBatch lm_batch(const Corpus& corpus, const WindowOptions& options, std::uint64_t seed, std::int64_t part) {
  corpus.require_window(Part::training, options.length);
  const Windows windows =
      windows_at(corpus, Part::training, training_starts(corpus, options, seed, part), options.length);
  return {{windows.inputs, windows.targets}, windows.targets.numel(), windows.targets.numel()};
}

double negative_log_probability(const double* logits, index_t vocabulary, std::int64_t target) {
  const double largest = *std::max_element(logits, logits + vocabulary);
  double total = 0;
  for (index_t v = 0; v < vocabulary; ++v) total += std::exp(logits[v] - largest);
  return std::log(total) + largest - logits[target];
}

std::vector<std::vector<double>> token_losses(const Transformer& model, const Windows& windows, index_t last) {
  const NoGrad values_only;
  const Tensor logits = model(windows.inputs);
  const index_t rows = logits.size(0), length = logits.size(1), vocabulary = logits.size(2),
                graded = std::min(last, length);
  std::vector<std::vector<double>> losses;
  for (index_t b = 0; b < rows; ++b) {
    const std::vector<double> numbers = slice(slice(logits, 0, b, b + 1), 1, length - graded, length).to_vector();
    std::vector<double>& row = losses.emplace_back();
    for (index_t t = 0; t < graded; ++t) {
      const std::int64_t target = windows.targets.data<std::int64_t>()[b * length + length - graded + t];
      row.push_back(negative_log_probability(numbers.data() + t * vocabulary, vocabulary, target));
    }
  }
  return losses;
}

namespace {

// Scores windows of `length` at these starts, and of the last one only `rest` targets. `whole`: they are all of the part.
LanguageScore scored(const Transformer& model, const Corpus& corpus, Part part, const WindowOptions& options,
    const std::vector<index_t>& starts, index_t length, index_t rest, bool whole) {
  LanguageScore result;
  double nats = 0;
  const auto count = static_cast<index_t>(starts.size());
  for (index_t first = 0, end = 0; first < count; first = end) {
    const bool last = first == count - 1;
    end = last ? count : std::min(count - (rest < length), first + options.sequences);
    const std::vector<index_t> some(starts.begin() + first, starts.begin() + end);
    for (const auto& row : token_losses(model, windows_at(corpus, part, some, length), last ? rest : length)) {
      nats = std::accumulate(row.begin(), row.end(), nats);
      result.tokens += std::ssize(row);
      result.graded.push_back(std::ssize(row));
      result.nats.push_back(std::accumulate(row.begin(), row.end(), 0.0));
    }
  }
  const PartSize& size = corpus.size(part);
  const auto words = static_cast<double>(std::max<std::int64_t>(1, size.words));
  result.loss = nats / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.loss);
  result.bits_per_byte = result.loss / std::log(2.0) / corpus.bytes_per_token(part);
  result.perplexity_per_byte = std::exp(result.loss / corpus.bytes_per_token(part));
  result.perplexity_per_word = std::exp((whole ? nats : result.loss * static_cast<double>(size.tokens)) / words);
  return result;
}

}  // namespace

LanguageScore score(
    const Transformer& model, const Corpus& corpus, Part part, const WindowOptions& options, index_t windows) {
  corpus.require_window(part, options.length);
  const index_t places = corpus.size(part).tokens - options.length;  // starts of windows: 0 ... places - 1
  const index_t count = std::min(windows, 1 + (places - 1) / options.length);
  std::vector<index_t> starts;
  for (index_t w = 0; w < count; ++w) starts.push_back(count == 1 ? 0 : (places - 1) * w / (count - 1));
  return scored(model, corpus, part, options, starts, options.length, options.length, false);
}

LanguageScore score_whole(const Transformer& model, const Corpus& corpus, Part part, const WindowOptions& options) {
  corpus.require_window(part, 1);
  const index_t targets = corpus.size(part).tokens - 1, length = std::min(options.length, targets),
                rest = targets % length;
  std::vector<index_t> starts;
  for (index_t w = 0; w < targets / length; ++w) starts.push_back(w * length);
  if (rest > 0) starts.push_back(targets - length);
  return scored(model, corpus, part, options, starts, length, rest > 0 ? rest : length, true);
}

}  // namespace whence::language
