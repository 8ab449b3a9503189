#include "examples/whence/language/language_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/run_main.h"
#include "nn/io/files.h"
#include "tensor/error.h"
#include "tensor/random.h"

namespace whence::language {
namespace {

constexpr double undecided = std::numeric_limits<double>::quiet_NaN();

using Losses = std::vector<std::vector<double>>;  // of the last targets of each window

// Returns -log softmax(z)_target = log sum_v e^{z_v - m} + m - z_target of one row of logits.
double negative_log_probability(const double* logits, index_t vocabulary, std::int64_t target) {
  const double largest = *std::max_element(logits, logits + vocabulary);
  double total = 0;
  for (index_t v = 0; v < vocabulary; ++v) total += std::exp(logits[v] - largest);
  return std::log(total) + largest - logits[target];
}

// Returns the last target of each window. They are spread evenly, `graded` tokens or more apart, and each has room
// before it for the longest window.
std::vector<index_t> ends_of(index_t tokens, index_t longest, index_t graded, index_t windows) {
  const index_t span = tokens - 1 - longest, count = std::min(windows, 1 + span / graded);
  std::vector<index_t> ends;
  for (index_t w = 0; w < count; ++w) ends.push_back(count == 1 ? tokens - 1 : longest + span * w / (count - 1));
  return ends;
}

double mean_of_last(const std::vector<double>& window, index_t last) {
  return std::accumulate(window.end() - last, window.end(), 0.0) / static_cast<double>(last);
}

// Returns the perplexity and its standard error, from that of the mean m over windows: d exp(m) = exp(m) dm.
std::pair<double, double> perplexity(const Losses& losses, index_t last) {
  const auto count = static_cast<double>(losses.size());
  double sum = 0, squares = 0;
  for (const auto& window : losses) sum += mean_of_last(window, last);
  for (const auto& window : losses) squares += std::pow(mean_of_last(window, last) - sum / count, 2);
  const double found = std::exp(sum / count);
  return {found, losses.size() < 2 ? undecided : found * std::sqrt(squares / (count - 1) / count)};
}

LengthScore score_of(
    index_t length, const Losses& losses, const Losses& at_train_length, const LengthOptions& options) {
  LengthScore score{.length = length, .windows = std::ssize(losses), .last = std::min(options.last, length)};
  std::tie(score.perplexity, score.standard_error) = perplexity(losses, score.last);
  for (const auto& window : losses)
    score.nats.push_back(mean_of_last(window, score.last) * static_cast<double>(score.last));
  if (length == options.train_length) return score;
  for (const index_t last : std::set{std::min(options.last, options.train_length), options.train_length})
    score.deltas.push_back({last, perplexity(losses, last).first, perplexity(at_train_length, last).first});
  return score;
}

std::string number(double value) { return std::isfinite(value) ? fixed(value, 3) : "-"; }

}  // namespace

Windows windows_at(const Corpus& corpus, Part part, const std::vector<index_t>& starts, index_t length) {
  const index_t rows = std::ssize(starts);
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

std::vector<std::vector<double>> token_losses(const Transformer& model, const Windows& windows, index_t last) {
  const NoGrad values_only;
  const Tensor logits = model(windows.inputs);
  const index_t rows = logits.size(0), length = logits.size(1), vocabulary = logits.size(2),
                graded = std::min(last, length);
  Losses losses;
  for (index_t b = 0; b < rows; ++b) {
    const std::vector<double> numbers = slice(slice(logits, 0, b, b + 1), 1, length - graded, length).to_vector();
    const std::int64_t* targets = windows.targets.data<std::int64_t>() + (b + 1) * length - graded;
    std::vector<double>& row = losses.emplace_back();
    for (index_t t = 0; t < graded; ++t)
      row.push_back(negative_log_probability(numbers.data() + t * vocabulary, vocabulary, targets[t]));
  }
  return losses;
}

LanguageScore score(
    const Transformer& model, const Corpus& corpus, Part part, const WindowOptions& options, index_t windows) {
  const bool whole = windows == 0;
  corpus.require_window(part, whole ? 1 : options.length);
  const PartSize& size = corpus.size(part);
  const index_t length = std::min(options.length, size.tokens - 1), span = size.tokens - 1 - length,  // the last start
      rest = whole ? (size.tokens - 2) % length + 1 : length,  // targets of the last window
      count = whole ? (size.tokens - 2) / length + 1 : std::min(windows, 1 + span / length);
  LanguageScore result;
  double nats = 0;
  std::vector<index_t> starts;
  for (index_t w = 0; w < count; ++w) {
    const bool last = w == count - 1;
    starts.push_back(whole ? std::min(w * length, span) : count == 1 ? 0 : span * w / (count - 1));
    if (!last && (w < count - 2 || rest == length) && std::ssize(starts) < options.sequences) continue;
    for (const auto& row : token_losses(model, windows_at(corpus, part, starts, length), last ? rest : length)) {
      nats = std::accumulate(row.begin(), row.end(), nats);
      result.tokens += std::ssize(row);
      result.graded.push_back(std::ssize(row));
      result.nats.push_back(std::accumulate(row.begin(), row.end(), 0.0));
    }
    starts.clear();
  }
  const double bytes = corpus.bytes_per_token(part), words = static_cast<double>(std::max<std::int64_t>(1, size.words));
  result.loss = nats / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.loss);
  result.bits_per_byte = result.loss / std::log(2.0) / bytes;
  result.perplexity_per_byte = std::exp(result.loss / bytes);
  result.perplexity_per_word = std::exp((whole ? nats : result.loss * static_cast<double>(size.tokens)) / words);
  return result;
}

std::vector<LengthScore> perplexity_by_length(
    const Transformer& model, const Corpus& corpus, const LengthOptions& options, Part part) {
  std::set<index_t> lengths{options.train_length}, fitting;
  for (const index_t multiple : options.multiples) lengths.insert(multiple * options.train_length);
  const index_t tokens = corpus.size(part).tokens, longest = *lengths.rbegin(),
                kept = std::max(options.last, options.train_length);
  std::ranges::copy_if(lengths, std::inserter(fitting, fitting.end()), [&](index_t length) { return tokens > length; });
  if (fitting.size() < lengths.size())
    throw FileError("evaluation at length ", longest, ": ", tokens, " tokens of text given; ", longest + 1,
        " required; ", fitting.empty() ? "no length fits: give more text" : "lengths that fit: " + joined(fitting));
  const std::vector<index_t> ends = ends_of(tokens, longest, kept, options.windows);
  Progress progress("evaluate " + model.scheme(), std::ssize(lengths) * std::ssize(ends), options.quiet);
  std::vector<LengthScore> scores;
  Losses at_train_length;
  std::int64_t done = 0;
  for (const index_t length : lengths) try {
      Losses losses;
      for (auto end = ends.begin(); end != ends.end();) {
        stop_if_interrupted("evaluation");
        std::vector<index_t> starts;
        const index_t together = std::max<index_t>(1, options.tokens_at_once / length);
        for (; end != ends.end() && std::ssize(starts) < together; ++end) starts.push_back(*end - length);
        for (auto& row : token_losses(model, windows_at(corpus, part, starts, length), kept))
          losses.push_back(std::move(row));
        progress.update(done += std::ssize(starts), std::ssize(starts) * length, {});
      }
      if (length == options.train_length) at_train_length = losses;
      scores.push_back(score_of(length, losses, at_train_length, options));
    } catch (const Interrupted&) { throw; } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      if (length == options.train_length) throw;
      // A scheme with a table of positions has no row for these: the table says so.
      scores.push_back(
          {.length = length, .perplexity = undecided, .standard_error = undecided, .refused = error.what()});
      done = std::ssize(scores) * std::ssize(ends);
    }
  progress.finish();
  return scores;
}

Table length_table(const std::vector<LengthScore>& scores) {
  Table table({"length", "x training", "windows", "last tokens", "perplexity", "standard error", "note"});
  for (const LengthScore& score : scores) {
    const auto count = [&](index_t n) { return score.refused.empty() ? std::to_string(n) : "-"; };
    table.row({std::to_string(score.length), std::to_string(score.length / scores.front().length), count(score.windows),
        count(score.last), number(score.perplexity), number(score.standard_error), score.refused});
  }
  return table;
}

Table delta_table(const std::vector<LengthScore>& scores) {
  Table table({"length", "last tokens", "full", "truncated", "Delta-P"});
  for (const LengthScore& score : scores)
    for (const DeltaP& delta : score.deltas)
      table.row({std::to_string(score.length), std::to_string(delta.last), number(delta.full), number(delta.truncated),
          number(delta.value())});
  return table;
}

}  // namespace whence::language
