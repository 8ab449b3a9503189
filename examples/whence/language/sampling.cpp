#include "examples/whence/language/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "nn/decoding.h"
#include "tensor/error.h"
#include "tensor/random.h"

namespace whence::language {
namespace {

// Keeps only the first tokens of `order`, scaled to a sum of 1. Probabilities are in double for every dtype of the
// model: large sums in single precision would move top_p's cut.
void keep_first(std::vector<double>& probabilities, const std::vector<std::size_t>& order, std::size_t kept) {
  for (std::size_t i = kept; i < order.size(); ++i) probabilities[order[i]] = 0;
  const double total = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (double& p : probabilities) p /= total;
}

}  // namespace

std::vector<double> next_token_distribution(const std::vector<double>& logits, const SamplingOptions& options) {
  if (logits.empty() || !std::ranges::all_of(logits, [](double z) { return std::isfinite(z); }))
    throw NotFinite("sampling: logits that are not finite given; finite ones required; is the model trained?");
  const auto best = std::ranges::max_element(logits);
  std::vector<double> probabilities(logits.size(), 0.0);
  if (options.temperature == 0) {
    probabilities[static_cast<std::size_t>(best - logits.begin())] = 1;
    return probabilities;
  }
  for (std::size_t v = 0; v < logits.size(); ++v)
    probabilities[v] = std::exp((logits[v] - *best) / options.temperature);
  std::size_t kept = logits.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(options.top_k));
  std::vector<std::size_t> order(kept < logits.size() || options.top_p < 1 ? logits.size() : 0);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t v) { return logits[v]; });
  keep_first(probabilities, order, kept);
  if (options.top_p < 1) {
    double total = 0;
    std::size_t needed = 0;
    while (needed < kept && total < options.top_p) total += probabilities[order[needed++]];
    keep_first(probabilities, order, needed);
  }
  return probabilities;
}

TokenId draw(const std::vector<double>& distribution, double uniform) {
  double total = 0;
  std::size_t last = 0;
  for (std::size_t v = 0; v < distribution.size() && (v == 0 || uniform >= total); ++v)
    if (distribution[v] > 0) total += distribution[last = v];
  return static_cast<TokenId>(last);  // also if rounding leaves the total below 1
}

TokenIds generate(const Transformer& model, const TokenIds& prompt, const GenerationOptions& options,
    const std::function<bool(TokenId)>& emit) {
  if (prompt.empty()) throw Error("generate: an empty prompt given; one token or more required");
  const NoGrad values_only;
  const auto whole = static_cast<index_t>(prompt.size()) + std::max<index_t>(options.tokens, 1);
  const index_t capacity = options.context > 0 ? std::min(options.context, whole) : whole;
  TokenIds text = prompt, made;
  // The tokens to read next: at first the prompt's end, then each new token, or a new beginning.
  TokenIds next(text.end() - std::min<index_t>(capacity, static_cast<index_t>(text.size())), text.end());
  auto decoding = std::make_unique<Decoding>(model, capacity);
  for (index_t i = 0; i < options.tokens; ++i) {
    if (decoding->length() + static_cast<index_t>(next.size()) > capacity) {
      decoding = std::make_unique<Decoding>(model, capacity);
      next.assign(text.end() - std::max<index_t>(1, capacity / 2), text.end());
    }
    const Tensor rows = (*decoding)(
        Tensor::of({next.begin(), next.end()}, {1, std::ssize(next)}, DType::i64));  // [1 n v]; the last row counts
    std::vector<double> logits = slice(rows, 1, rows.size(1) - 1, rows.size(1)).to_vector();
    if (options.named > 0) logits.resize(static_cast<std::size_t>(options.named));
    const Stream stream(options.seed, "sampling", static_cast<std::uint64_t>(i));
    const TokenId token = draw(next_token_distribution(logits, options.sampling), stream.uniform53(0));
    if (token == options.stop) break;
    made.push_back(token);
    text.push_back(token);
    next = {token};
    if (emit && !emit(token)) break;
  }
  return made;
}

}  // namespace whence::language
