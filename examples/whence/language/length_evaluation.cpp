#include "examples/whence/language/length_evaluation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "nn/io/files.h"
#include "tensor/suggest.h"

namespace whence::language {
namespace {

constexpr double undecided = std::numeric_limits<double>::quiet_NaN();

std::vector<index_t> lengths_of(const LengthOptions& options) {
  std::set<index_t> lengths{options.train_length};
  for (const index_t multiple : options.multiples) lengths.insert(multiple * options.train_length);
  return {lengths.begin(), lengths.end()};
}

// Returns the last target of each window. They are spread evenly, `graded` tokens or more apart, and each has room
// before it for the longest window.
std::vector<index_t> ends_of(index_t tokens, index_t longest, index_t graded, index_t windows) {
  const index_t span = tokens - 1 - longest, count = std::min(windows, 1 + span / graded);
  std::vector<index_t> ends;
  for (index_t w = 0; w < count; ++w) ends.push_back(count == 1 ? tokens - 1 : longest + span * w / (count - 1));
  return ends;
}

void require_room(const Corpus& corpus, Part part, const std::vector<index_t>& lengths) {
  const index_t has = corpus.size(part).tokens, longest = lengths.back();
  if (has > longest) return;
  std::vector<index_t> fitting;
  std::ranges::copy_if(lengths, std::back_inserter(fitting), [&](index_t length) { return has > length; });
  throw FileError("evaluation at length ", longest, ": ", has, " tokens of text given; ", longest + 1, " required; ",
      fitting.empty() ? std::string("no length fits: give more text") : to_text("lengths that fit: ", joined(fitting)));
}

using Losses = std::vector<std::vector<double>>;  // the last targets of each window

double mean_of_last(const std::vector<double>& window, index_t last) {
  return std::accumulate(window.end() - last, window.end(), 0.0) / static_cast<double>(last);
}

double perplexity(const Losses& losses, index_t last) {
  double total = 0;
  for (const auto& window : losses) total += mean_of_last(window, last);
  return std::exp(total / static_cast<double>(losses.size()));
}

// d exp(m) = exp(m) dm, with the standard error of the mean m over windows.
double standard_error(const Losses& losses, index_t last) {
  const auto count = static_cast<double>(losses.size());
  double sum = 0, squares = 0;
  for (const auto& window : losses) sum += mean_of_last(window, last);
  for (const auto& window : losses) squares += std::pow(mean_of_last(window, last) - sum / count, 2);
  return losses.size() < 2 ? undecided : std::exp(sum / count) * std::sqrt(squares / (count - 1) / count);
}

LengthScore score_of(
    index_t length, const Losses& losses, const Losses& at_train_length, const LengthOptions& options) {
  LengthScore score{
      .length = length, .windows = static_cast<index_t>(losses.size()), .last = std::min(options.last, length)};
  score.perplexity = perplexity(losses, score.last);
  score.standard_error = standard_error(losses, score.last);
  for (const auto& window : losses)
    score.nats.push_back(mean_of_last(window, score.last) * static_cast<double>(score.last));
  if (length == options.train_length) return score;
  const index_t fewer = std::min(options.last, options.train_length);
  for (const index_t last : {fewer, options.train_length})
    if (score.deltas.empty() || score.deltas.back().last != last)
      score.deltas.push_back({last, perplexity(losses, last), perplexity(at_train_length, last)});
  return score;
}

std::string number(double value, int digits) { return std::isfinite(value) ? fixed(value, digits) : "-"; }

}  // namespace

std::vector<LengthScore> perplexity_by_length(
    const Transformer& model, const Corpus& corpus, const LengthOptions& options, Part part) {
  const std::vector<index_t> lengths = lengths_of(options);
  require_room(corpus, part, lengths);
  const index_t kept = std::max(options.last, options.train_length);
  const std::vector<index_t> ends = ends_of(corpus.size(part).tokens, lengths.back(), kept, options.windows);
  const auto windows = static_cast<index_t>(ends.size());
  const std::int64_t all = static_cast<std::int64_t>(lengths.size()) * windows;
  Progress progress("evaluate " + model.scheme(), all, options.quiet);
  std::vector<LengthScore> scores;
  Losses at_train_length;
  for (const index_t length : lengths) {
    Losses losses;
    const index_t together = std::max<index_t>(1, options.tokens_at_once / length);
    try {
      for (index_t first = 0; first < windows; first += together) {
        if (interrupt_requested()) throw Interrupted("evaluation: stopped before the results were complete");
        std::vector<index_t> starts;
        for (index_t w = first; w < std::min(windows, first + together); ++w)
          starts.push_back(ends[static_cast<std::size_t>(w)] - length);
        const Losses found = token_losses(model, windows_at(corpus, part, starts, length), kept);
        losses.insert(losses.end(), found.begin(), found.end());
        const auto done =
            static_cast<std::int64_t>(scores.size()) * windows + first + static_cast<index_t>(starts.size());
        progress.update(done, static_cast<index_t>(starts.size()) * length, {});
      }
    } catch (const Interrupted&) { throw; } catch (const OutOfMemory&) {
      throw;
    } catch (const Error& error) {
      if (length == options.train_length) throw;
      // A scheme with a table of positions has no row for these: the table says so.
      scores.push_back(
          {.length = length, .perplexity = undecided, .standard_error = undecided, .refused = error.what()});
      continue;
    }
    if (length == options.train_length) at_train_length = losses;
    scores.push_back(score_of(length, losses, at_train_length, options));
  }
  progress.finish();
  return scores;
}

Table length_table(const std::vector<LengthScore>& scores) {
  Table table({"length", "x training", "windows", "last tokens", "perplexity", "standard error", "note"});
  for (const LengthScore& score : scores) {
    const auto count = [&](index_t n) { return score.refused.empty() ? std::to_string(n) : "-"; };
    table.row({std::to_string(score.length), std::to_string(score.length / scores.front().length), count(score.windows),
        count(score.last), number(score.perplexity, 3), number(score.standard_error, 3), score.refused});
  }
  return table;
}

Table delta_table(const std::vector<LengthScore>& scores) {
  Table table({"length", "last tokens", "full", "truncated", "Delta-P"});
  for (const LengthScore& score : scores)
    for (const DeltaP& delta : score.deltas)
      table.row({std::to_string(score.length), std::to_string(delta.last), number(delta.full, 3),
          number(delta.truncated, 3), number(delta.value(), 3)});
  return table;
}

}  // namespace whence::language
