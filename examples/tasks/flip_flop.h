// Flip-flop language modelling (Liu et al. 2023; Golovneva et al. 2024, section 5.1): remember one bit among
// distractors.
//   w0i1r0w1i0i1i1r -> 1.  A string is pairs of an instruction (w writes, r reads, i is to be ignored) and a bit.
// The first instruction is w, the last r; the others are i with probability p_ignore, else w or r evenly. The bit after
// w and i is a fair coin, the bit after r is the bit of the most recent w.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/random.h"

namespace whence::tasks {

// The vocabulary, in this order: a token is its place in "wri01".
inline constexpr std::int64_t write_token = 0, read_token = 1, ignore_token = 2, zero_token = 3, one_token = 4;
inline constexpr std::int64_t flip_flop_vocabulary = 5;
inline constexpr std::int64_t ignored_target = -1;  // no loss here

using Tokens = std::vector<std::int64_t>;

struct FlipFlop {
  int length = 512;  // tokens, two per pair: even, at least 4
  double p_ignore = 0.8;
};

// Sequence `index` of a set: a pure function of the seed, the set's name, the index and the task.
// Different sets are different streams, so no evaluation string comes from the training stream.
struct FlipFlopSet {
  std::string_view name;     // for tables
  std::string_view purpose;  // of the random stream
  double p_ignore;
};
inline constexpr FlipFlopSet training_set = {"training", "flip_flop.train", 0.8};
inline constexpr FlipFlopSet in_distribution_set = {"in distribution", "flip_flop.in_distribution", 0.8};
inline constexpr FlipFlopSet sparse_set = {"sparse", "flip_flop.sparse", 0.98};
inline constexpr FlipFlopSet dense_set = {"dense", "flip_flop.dense", 0.1};

// InputError unless the length is even and at least 4 and p_ignore is a probability below 1.
void check(const FlipFlop& task);

// One sequence of task.length tokens, all its randomness from `stream`.
[[nodiscard]] Tokens sample(const FlipFlop& task, Stream stream);

// Where the loss is taken: `clean` only where the input token is r (its target is determined), `all` everywhere.
enum class Targets { clean, all };

// Sequences cut into inputs (tokens 0..T-2) and targets (tokens 1..T-1, or ignored_target). Row-major [b t], t = T-1.
struct FlipFlopBatch {
  std::int64_t sequences = 0, positions = 0;  // b and t
  Tokens inputs, targets;
};

// Sequences first, first+1, ... of a set. How they are cut into batches does not change them.
[[nodiscard]] FlipFlopBatch flip_flop_batch(
    const FlipFlopSet& set, int length, std::uint64_t seed, std::uint64_t first, int count, Targets targets);

// What a model got wrong, over as many batches as are added.
struct ReadErrors {
  std::int64_t reads = 0, wrong_reads = 0;          // bits after an r
  std::int64_t sequences = 0, wrong_sequences = 0;  // with at least one wrong bit

  // `predicted` is the token expected next at every position, [b t] as in the batch. Only positions of r count,
  // whatever the targets of the batch are.
  void add(const FlipFlopBatch& batch, std::span<const std::int64_t> predicted);

  // Percent; nan while nothing was added.
  [[nodiscard]] double error_percent() const;
  [[nodiscard]] double sequence_error_percent() const;
};

// Which tokens a prediction may be: the paper's metric lets the model be wrong about more than the bit.
enum class Answers { vocabulary, bits };

// The most probable token of each row of logits [rows 5]. The first of equals; -1, never right, where a logit is nan.
[[nodiscard]] Tokens most_probable(std::span<const float> logits, Answers answers = Answers::vocabulary);

// Guesses that need no memory of the last w, to compare a model with.
enum class Baseline { always_zero, first_bit, last_bit_of_any_pair, most_frequent_bit };
inline constexpr Baseline baselines[] = {
    Baseline::always_zero, Baseline::first_bit, Baseline::last_bit_of_any_pair, Baseline::most_frequent_bit};
[[nodiscard]] std::string_view name(Baseline baseline);
[[nodiscard]] Tokens predict(Baseline baseline, const FlipFlopBatch& batch);

// "w0i1r0" and back. parse() takes any beginning of a string, also one that ends in an instruction, and throws
// InputError for other characters, a wrong order, a first instruction that is not w, or a bit after r that is not the
// one written.
[[nodiscard]] std::string text(std::span<const std::int64_t> tokens);
[[nodiscard]] Tokens parse(std::string_view text);

// The bit token of the most recent w: what stands, or has to stand, after an r at the end. Error if there is no w.
[[nodiscard]] std::int64_t stored_bit(std::span<const std::int64_t> tokens);

}  // namespace whence::tasks
