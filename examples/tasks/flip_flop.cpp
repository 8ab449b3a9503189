// Samples flip-flop strings, cuts them into batches, and counts the bits that were read wrongly.
#include "examples/tasks/flip_flop.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tensor/error.h"

namespace whence::tasks {
namespace {

constexpr std::string_view symbols = "wri01";

bool is_instruction(std::int64_t token) { return token == write_token || token == read_token || token == ignore_token; }

double percent(std::int64_t part, std::int64_t whole) {
  if (whole == 0) return std::numeric_limits<double>::quiet_NaN();
  return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::size_t to_size(std::int64_t count) { return static_cast<std::size_t>(count); }

[[noreturn]] void refuse_text(std::size_t place, const std::string& given, const std::string& required) {
  throw InputError(to_text(
      "flip-flop string: character ", place + 1, ": ", given, " given; ", required, " required; example: w0i1r0"));
}

}  // namespace

void check(const FlipFlop& task) {
  if (task.length < 4 || task.length % 2 != 0) {
    throw InputError(to_text("flip-flop: length ", task.length,
        " given; an even number, at least 4, required; each instruction has one bit"));
  }
  if (!(task.p_ignore >= 0 && task.p_ignore < 1)) {
    throw InputError(
        to_text("flip-flop: p_ignore ", task.p_ignore, " given; at least 0 and below 1 required; 0.8 is the paper's"));
  }
}

Tokens sample(const FlipFlop& task, Stream stream) {
  check(task);
  Tokens tokens(static_cast<std::size_t>(task.length));
  const std::size_t pairs = tokens.size() / 2;
  std::int64_t stored = zero_token;
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    // P(i) = p, P(w) = P(r) = (1-p)/2. Numbers 2n and 2n+1 of the stream belong to pair n, used or not.
    const double u = stream.uniform(2 * pair), p = task.p_ignore;
    std::int64_t instruction = u < p ? ignore_token : u < p + (1 - p) / 2 ? write_token : read_token;
    if (pair == 0) instruction = write_token;
    if (pair == pairs - 1) instruction = read_token;
    const std::int64_t coin = stream.bits(2 * pair + 1) >> 31 == 0 ? zero_token : one_token;
    if (instruction == write_token) stored = coin;
    tokens[2 * pair] = instruction;
    tokens[2 * pair + 1] = instruction == read_token ? stored : coin;
  }
  return tokens;
}

FlipFlopBatch flip_flop_batch(
    const FlipFlopSet& set, int length, std::uint64_t seed, std::uint64_t first, int count, Targets targets) {
  const FlipFlop task = {length, set.p_ignore};
  check(task);
  if (count < 1)
    throw InputError(
        to_text("flip-flop: a batch of ", count, " sequences given; at least 1 required; choose a larger batch"));
  FlipFlopBatch batch = {count, length - 1, {}, {}};
  batch.inputs.reserve(to_size(batch.sequences * batch.positions));
  batch.targets.reserve(batch.inputs.capacity());
  for (std::uint64_t row = 0; row < static_cast<std::uint64_t>(count); ++row) {
    const Tokens tokens = sample(task, Stream(seed, set.purpose, first + row));
    for (std::size_t t = 0; t + 1 < tokens.size(); ++t) {
      batch.inputs.push_back(tokens[t]);
      batch.targets.push_back(targets == Targets::all || tokens[t] == read_token ? tokens[t + 1] : ignored_target);
    }
  }
  return batch;
}

void ReadErrors::add(const FlipFlopBatch& batch, std::span<const std::int64_t> predicted) {
  if (predicted.size() != batch.inputs.size()) {
    throw Error(to_text(
        "read errors: ", predicted.size(), " predictions given; ", batch.inputs.size(), " required, one per input"));
  }
  for (std::int64_t row = 0; row < batch.sequences; ++row) {
    std::int64_t wrong = 0;
    for (std::size_t i = to_size(row * batch.positions); i < to_size((row + 1) * batch.positions); ++i) {
      if (batch.inputs[i] != read_token) continue;
      ++reads;
      wrong += predicted[i] != batch.targets[i] ? 1 : 0;
    }
    wrong_reads += wrong;
    wrong_sequences += wrong > 0 ? 1 : 0;
    ++sequences;
  }
}

double ReadErrors::error_percent() const { return percent(wrong_reads, reads); }
double ReadErrors::sequence_error_percent() const { return percent(wrong_sequences, sequences); }

Tokens most_probable(std::span<const float> logits, Answers answers) {
  constexpr auto row_size = static_cast<std::size_t>(flip_flop_vocabulary);
  if (logits.size() % row_size != 0) {
    throw Error(
        to_text("most probable token: ", logits.size(), " logits given; a multiple of ", row_size, " required"));
  }
  const std::ptrdiff_t first = answers == Answers::bits ? zero_token : 0;
  Tokens tokens;
  for (std::size_t row = 0; row < logits.size() / row_size; ++row) {
    const auto values = logits.subspan(row * row_size, row_size);
    // A comparison with nan is false, so that the search alone would quietly call such a row "w" or "0".
    const bool broken = std::any_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
    tokens.push_back(broken ? -1 : std::max_element(values.begin() + first, values.end()) - values.begin());
  }
  return tokens;
}

std::string_view name(Baseline baseline) {
  switch (baseline) {
    case Baseline::always_zero: return "always 0";
    case Baseline::first_bit: return "first bit";
    case Baseline::last_bit_of_any_pair: return "last bit of any pair";
    case Baseline::most_frequent_bit: return "most frequent bit so far";
  }
  throw Error("flip-flop: an unknown baseline given; one of the listed required");
}

Tokens predict(Baseline baseline, const FlipFlopBatch& batch) {
  Tokens predicted;
  predicted.reserve(batch.inputs.size());
  std::int64_t zeros = 0, ones = 0, last = zero_token, first = zero_token;
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    if (i % to_size(batch.positions) == 0) zeros = ones = 0;
    const std::int64_t token = batch.inputs[i];
    if (!is_instruction(token)) {
      if (zeros + ones == 0) first = token;
      last = token;
      (token == zero_token ? zeros : ones) += 1;
    }
    switch (baseline) {
      case Baseline::always_zero: predicted.push_back(zero_token); break;
      case Baseline::first_bit: predicted.push_back(first); break;
      case Baseline::last_bit_of_any_pair: predicted.push_back(last); break;
      case Baseline::most_frequent_bit: predicted.push_back(ones > zeros ? one_token : zero_token); break;
    }
  }
  return predicted;
}

std::string text(std::span<const std::int64_t> tokens) {
  std::string result;
  for (const std::int64_t token : tokens) {
    if (token < 0 || token >= flip_flop_vocabulary) {
      throw Error(to_text("flip-flop text: token ", token, " given; 0 to ", flip_flop_vocabulary - 1, " required"));
    }
    result += symbols[to_size(token)];
  }
  return result;
}

Tokens parse(std::string_view given) {
  Tokens tokens;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::size_t symbol = given[i] == '\0' ? std::string_view::npos : symbols.find(given[i]);
    const std::string shown = symbol == std::string_view::npos ? "an unknown one" : std::string(1, given[i]);
    const bool wants_instruction = i % 2 == 0;
    if (symbol == std::string_view::npos || is_instruction(static_cast<std::int64_t>(symbol)) != wants_instruction) {
      refuse_text(i, shown, wants_instruction ? "an instruction w, r or i" : "a bit 0 or 1");
    }
    if (i == 0 && given[i] != 'w') refuse_text(i, shown, "w at the beginning");
    const auto token = static_cast<std::int64_t>(symbol);
    if (!wants_instruction && tokens.back() == read_token && token != stored_bit(tokens)) {
      refuse_text(i, shown, "the bit of the most recent w");
    }
    tokens.push_back(token);
  }
  if (tokens.empty())
    throw InputError("flip-flop string: nothing given; pairs of w, r or i and a bit required; example: w0i1r0");
  return tokens;
}

std::int64_t stored_bit(std::span<const std::int64_t> tokens) {
  // A w at the very end has no bit yet.
  for (std::size_t i = tokens.size(); i-- > 0;) {
    if (tokens[i] == write_token && i + 1 < tokens.size()) return tokens[i + 1];
  }
  throw Error(to_text("flip-flop: ", tokens.size(), " tokens without a w and its bit given; one w required"));
}

}  // namespace whence::tasks
