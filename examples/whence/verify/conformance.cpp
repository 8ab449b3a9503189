// The conformance matrix, and its columns that small transformers show. Each figure is the largest difference in f64.
#include "examples/whence/verify/conformance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/whence/verify/bare_attention.h"
#include "examples/whence/verify/compare.h"
#include "examples/whence/verify/gradient_check.h"
#include "nn/decoding.h"
#include "nn/scheme.h"
#include "tensor/error.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using Cell = ConformanceCell;
using Subject = ConformanceSubject;

constexpr index_t batch = 2, length = 6, capacity = 16;
constexpr double rounding = 1e-12;  // f64, a few layers deep

// Returns tokens that are all different, so that each row of the embedding's gradient belongs to one token.
Tensor tokens_of(index_t sequences, index_t count) {
  std::vector<double> tokens;
  for (index_t b = 0; b < sequences; ++b)
    for (index_t t = 0; t < count; ++t) tokens.push_back(static_cast<double>(b * capacity + t));
  return Tensor::of(tokens, {sequences, count}, DType::i64);
}

// Gives all runs of a subject the same maximum length, so that drawn positions are the same.
Sequence run_of(index_t count, bool causal = true) {
  Sequence sequence = Sequence::run(count, causal);
  sequence.positions.length = std::max(capacity, count);
  return sequence;
}

Tensor logits(const Transformer& model, const Tensor& tokens, const Sequence& sequence) {
  const NoGrad values_only;
  return model(tokens, sequence, {});
}
Tensor logits(const Transformer& model, const Tensor& tokens) {
  return logits(model, tokens, run_of(tokens.size(1), model.options().causal));
}

Tensor rows(const Tensor& x, index_t begin, index_t end) { return slice(x, 1, begin, end); }
Tensor sequence_of(const Tensor& x, index_t b) { return slice(x, 0, b, b + 1); }

Tensor cotangent_of(const Subject& subject, const Shape& shape) {
  return Tensor::normal(shape, 0, 1, Stream(subject.seed, "cotangent"), DType::f64);
}

// A scheme that claims the property must show at most `tolerance`, and any other scheme more.
Cell as_claimed(bool holds, double apart, double tolerance, const std::string& otherwise) {
  if (holds) return Cell::within(apart, tolerance);
  return apart > tolerance ? Cell::passed(apart, otherwise + ", as it says")
                           : Cell::failed(apart, "says: " + otherwise + "; it does not");
}

Cell gradients(const Subject& subject) {
  const GradientChecks checks = check_gradients(subject.text, {.length = 4, .one_by_one = 8, .seed = subject.seed});
  const double worst = checks.figures().duals;
  if (!checks.ok()) return Cell::failed(worst, joined(checks.problems(), {}, "; "));
  return Cell::passed(worst, checks.note.empty() ? "by duals and by differences" : checks.note);
}

// Checks gradients of the embedding, of each block and the head, and of the parameters that all layers share.
Cell model_gradients(const Subject& subject) {
  const auto model = subject.model();
  const Tensor tokens = tokens_of(batch, length);
  std::vector<Named> parameters;
  for (const Module::Parameter& each : model->parameters())
    if (!each.frozen) parameters.push_back({each.path, each.tensor});
  const GradcheckReport report = gradcheck([&] { return (*model)(tokens, run_of(length), {}); }, parameters,
      {.differences = false, .one_by_one = 0, .seed = subject.seed});
  double worst = 0;
  for (const GradcheckInput& input : report.inputs) worst = std::max(worst, input.duals.relative);
  if (!report.ok()) return Cell::failed(worst, joined(report.problems, {}, "; "));
  return Cell::passed(worst, to_text(parameters.size(), " parameters of a model of two layers, by duals"));
}

// d(rows up to t) / d(token after t) must be exactly 0, and later tokens must change no bit.
Cell causality(const Subject& subject) {
  const auto model = subject.model();
  const Tensor tokens = tokens_of(1, length), table = model->parameters().front().tensor,
               whole = logits(*model, tokens);
  double leak = 0, sight = std::numeric_limits<double>::infinity();
  for (index_t t = 0; t + 1 < length; ++t) {
    const Tensor y = rows((*model)(tokens, run_of(length), {}), 0, t + 1);
    const Tensor by_token = slice(grad(y, cotangent_of(subject, y.shape()), {table})[0], 0, 0, length);
    sight = std::min(sight, largest_size(slice(by_token, 0, 0, t + 1)));
    std::vector<double> others = tokens.to_vector();
    for (index_t later = t + 1; later < length; ++later) others[static_cast<std::size_t>(later)] += 20;
    const Tensor beside_others = logits(*model, Tensor::of(others, {1, length}, DType::i64));
    leak = std::max({leak, largest_size(slice(by_token, 0, t + 1, length)),
        largest_difference(rows(beside_others, 0, t + 1), rows(whole, 0, t + 1))});
  }
  if (sight == 0) return Cell::failed(0, "a row does not depend on the tokens that it may see");
  return as_claimed(subject.claims.sees_no_future, leak, 0, "sees the future");
}

// Parameters must get twice the gradient if every sequence is in the batch twice.
Cell batch_sum(const Subject& subject) {
  const auto model = subject.model();
  std::vector<Tensor> leaves;
  for (const Module::Parameter& parameter : model->parameters()) leaves.push_back(parameter.tensor);
  const auto gradients_of = [&](index_t copies) {
    const auto copied = [&](const Tensor& x) {
      Shape shape = x.shape();
      shape[0] = copies;
      return raw::copy(raw::expand(x, shape));
    };
    const Tensor y = (*model)(copied(tokens_of(1, length)), run_of(length), {});
    return grad(y, copied(cotangent_of(subject, {1, length, 5})), leaves, {.allow_unused = true});
  };
  const std::vector<Tensor> single = gradients_of(1), twice = gradients_of(2);
  double largest = 0;
  for (std::size_t k = 0; k < single.size(); ++k)
    if (single[k].defined())
      largest =
          std::max(largest, largest_difference(single[k] * 2.0, twice[k]) / std::max(1.0, largest_size(twice[k])));
  return Cell::within(largest, rounding);
}

Cell batch_independence(const Subject& subject) {
  const auto model = subject.model();
  const Tensor tokens = tokens_of(batch, length), together = logits(*model, tokens);
  double largest = 0;
  for (index_t b = 0; b < batch; ++b)
    largest = std::max(largest, largest_difference(sequence_of(together, b), logits(*model, sequence_of(tokens, b))));
  return Cell::within(largest, rounding);
}

Cell padding(const Subject& subject) {
  const Tensor tokens = tokens_of(1, length);
  double largest = 0;
  for (const bool causal : {true, false}) {
    if (!causal && subject.claims.causal_only) continue;
    const auto model = subject.model(2, causal);
    for (const index_t begin : {0, 2}) {  // padding on the right, on the left
      const index_t end = begin + 4;
      std::vector<double> present(length, 0.0);
      std::fill(present.begin() + begin, present.begin() + end, 1.0);
      Sequence padded = Sequence::padded(Tensor::of(present, {1, length}, DType::boolean), causal);
      padded.positions.length = capacity;
      const Tensor found = logits(*model, tokens, padded);
      if (!std::isfinite(largest_size(found))) return Cell::failed(0, "rows of padding are not finite");
      largest =
          std::max(largest, largest_difference(rows(found, begin, end), logits(*model, rows(tokens, begin, end))));
    }
  }
  return Cell::within(largest, rounding);
}

Cell prefix(const Subject& subject) {
  const auto model = subject.model();
  const bool consistent = subject.claims.prefix_consistent;
  // Drawn positions are for runs of `capacity`. A claim that rows depend on the length gets a run long enough to show it.
  const Tensor tokens = tokens_of(1, consistent ? capacity : 3 * capacity);
  const double apart =
      largest_difference(logits(*model, rows(tokens, 0, length)), rows(logits(*model, tokens), 0, length));
  const Cell ends = as_claimed(consistent, apart, rounding, "rows depend on the run's length");
  if (consistent || !subject.claims.sees_no_future || ends.mark == Cell::Mark::failed) return ends;
  // In a run that is continued, rows must change at the claimed lengths, and at no length before or after them.
  const auto [first, last] = subject.claims.changes_rows;
  const auto changed = [&](index_t shorter, index_t longer) {
    const auto run = [&](index_t count) {
      return rows(logits(*model, rows(tokens, 0, count), Sequence::continued(0, count, 3 * capacity)), 0, shorter);
    };
    return largest_difference(run(shorter), run(longer)) > rounding;
  };
  const bool some = first <= last;
  for (const auto& [shorter, longer] : {std::pair{index_t{2}, some ? first - 1 : 3 * capacity},
           std::pair{first - 1, first}, std::pair{first, first + 1}, std::pair{first + 1, 3 * capacity}})
    if (shorter > 0 && changed(shorter, longer) != subject.claims.changes_rows.reached(shorter, longer))
      return Cell::failed(
          apart, to_text("a run of ", shorter, " tokens, continued to ", longer, ": the scheme claims otherwise"));
  return ends;
}

Cell shift(const Subject& subject) {
  if (!subject.claims.uses_positions) return Cell::not_applicable("reads no positions");
  const auto model = subject.model();
  const Tensor tokens = tokens_of(1, length);
  Sequence moved = run_of(length);
  // Beyond FIRE's threshold, above which positions have an effect.
  moved.positions.query = moved.positions.key = moved.positions.query + 2000.0;
  try {
    const double apart = largest_difference(logits(*model, tokens), logits(*model, tokens, moved));
    return as_claimed(subject.claims.shift_invariant, apart, 1e-10, "moves with the positions");
  } catch (const OutOfMemory&) { throw; } catch (const Error& error) {
    if (subject.claims.longest == Claims::any_length) throw;
    return Cell::refused(error);
  }
}

Cell decoding(const Subject& subject) {
  if (!subject.claims.sees_no_future) return Cell::not_applicable("a row needs later tokens");
  const auto model = subject.model();
  const Tensor tokens = tokens_of(batch, capacity), whole = logits(*model, tokens);
  const bool stay = !subject.claims.changes_rows.reached(0, capacity);  // else compare with the run so far
  Decoding decoding(*model, capacity);
  double largest = 0;
  for (const index_t count : {3, 1, 1, 4, 1}) {
    const index_t begin = decoding.length(), end = begin + count;
    const Tensor decoded = decoding(rows(tokens, begin, end));
    const Tensor right = stay ? whole : logits(*model, rows(tokens, 0, end), Sequence::continued(0, end, capacity));
    largest = std::max(largest, largest_difference(decoded, rows(right, begin, end)));
  }
  return Cell::within(largest, rounding, "3, 1, 1, 4, 1 tokens");
}

Cell padded_decoding(const Subject& subject) {
  if (!subject.claims.sees_no_future) return Cell::not_applicable("a row needs later tokens");
  const auto model = subject.model();
  const Tensor tokens = tokens_of(batch, length);
  Decoding together(*model, capacity, {0, 2}), alone(*model, capacity);
  double largest = 0;
  for (const index_t end : {4, 5, 6}) {
    const index_t begin = together.length(), padding = begin == 0 ? 2 : 0;
    const Tensor padded = rows(sequence_of(together(rows(tokens, begin, end)), 1), padding, end - begin);
    largest = std::max(largest, largest_difference(padded, alone(rows(sequence_of(tokens, 1), begin + padding, end))));
  }
  return Cell::within(largest, rounding, "prompts of 4 and 2 tokens");
}

Cell one_token(const Subject& subject) {
  const double size = largest_size(logits(*subject.model(), tokens_of(batch, 1)));
  return std::isfinite(size) && size > 0 ? Cell::passed(0, "finite")
                                         : Cell::failed(size, "one token gives no finite number");
}

Cell longer_than_trained(const Subject& subject) {
  const auto model = subject.model();
  const Tensor tokens = tokens_of(1, 3 * capacity);
  const bool refuses = subject.claims.longest < tokens.size(1);
  try {
    const double size = largest_size(logits(*model, tokens));
    if (refuses) return Cell::failed(0, "accepts a run longer than it says");
    return std::isfinite(size) ? Cell::passed(0, "finite at 3 times the length") : Cell::failed(size, "not finite");
  } catch (const OutOfMemory&) { throw; } catch (const Error& error) {
    if (!refuses) throw;
    return Cell::refused(error);
  }
}

Cell narrow_numbers(const Subject& subject) {
  if (!subject.claims.exact_gradient) return Cell::not_applicable("an argmax jumps with the rounding");
  const Tensor tokens = tokens_of(1, length), exact = logits(*subject.model(1), tokens);
  const double size = std::max(1.0, largest_size(exact));
  std::string found;
  double worst = 0;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const double relative = largest_difference(logits(*subject.model(1, true, dtype), tokens), exact) / size;
    found += to_text(found.empty() ? "" : ", ", dtype, " ", relative);
    worst = std::max(worst, relative / epsilon_of(dtype));
  }
  return Cell::within(worst, 200, found);  // in units of each dtype's epsilon
}

Cell same_bits(const Subject& subject) {
  const auto model = subject.model();
  const Tensor tokens = tokens_of(batch, length), table = model->parameters().front().tensor;
  const auto run = [&](int count) {
    const WithThreads chosen(count);
    const Tensor y = (*model)(tokens, run_of(length), {});
    return std::pair{y.detach(), grad(sum(square(y)), {}, {table})[0]};
  };
  const auto [y1, g1] = run(1);
  double apart = 0;
  for (const int count : {1, 2, 3}) {
    const auto [y, g] = run(count);
    apart = std::max({apart, largest_difference(y, y1), largest_difference(g, g1)});
  }
  return Cell::within(apart, 0, "1, 2 and 3 threads");
}

std::vector<ConformanceCheck> all_checks() {
  std::vector<ConformanceCheck> checks{
      {"gradcheck", "gradients of inputs and parameters by dual numbers and by differences", gradients},
      {"model gradients", "gradients of all parameters of a model by dual numbers", model_gradients},
      {"causality", "no row depends on a later token: Jacobian exactly 0, same bits whatever follows", causality},
      {"prefix", "a row is the same in a longer run", prefix},
      {"decoding", "tokens one by one and in chunks through a cache give the rows of the full pass", decoding},
      {"padded decoding", "prompts of different lengths, padded on the left, decode as each alone", padded_decoding},
      {"padding", "a padded run gives the rows of the run without padding, left and right", padding},
      {"batch", "sequences of a batch do not see each other", batch_independence},
      {"batch sum", "a doubled batch gives twice the gradient", batch_sum},
      {"shift", "moving all positions changes nothing, if claimed", shift}};
  for (const ConformanceCheck& check : attention_checks()) checks.push_back(check);
  for (const ConformanceCheck& check : std::vector<ConformanceCheck>{{"one token", "a run of one token", one_token},
           {"longer", "a run of three times the training length works, or is refused", longer_than_trained},
           {"f32 f16 bf16", "logits in narrower dtypes: difference from f64, in epsilons", narrow_numbers},
           {"same bits", "any number of threads, any time: the same bits", same_bits}})
    checks.push_back(check);
  return checks;
}

}  // namespace

const std::vector<ConformanceCheck>& conformance_checks() {
  static const std::vector<ConformanceCheck> checks = all_checks();
  return checks;
}

ConformanceCell ConformanceCell::within(double figure, double tolerance, const std::string& note) {
  const std::string demand = to_text(note, note.empty() ? "" : "; ", "at most ", tolerance, " required");
  return figure <= tolerance ? passed(figure, demand) : failed(figure, demand);
}

std::unique_ptr<Transformer> ConformanceSubject::model(index_t layers, bool causal, DType dtype) const {
  auto model = std::make_unique<Transformer>(TransformerOptions{.vocabulary = 64,
      .outputs = 5,
      .length = capacity,
      .dim = 8,
      .layers = layers,
      .heads = 2,
      .hidden = 12,
      .scheme = text,
      .executor = "reference",
      .causal = causal,
      .tied = false});
  model->to(dtype);
  for (const Module::Parameter& parameter : model->parameters()) {
    const Tensor drawn = Tensor::normal(parameter.tensor.shape(), 0, 0.4, Stream(seed, parameter.path), DType::f64);
    raw::copy_into(raw::cast(drawn, dtype), parameter.tensor);
    parameter.put_inside_bounds();
  }
  return model;
}

int ConformanceRow::count(ConformanceCell::Mark mark) const {
  return static_cast<int>(std::ranges::count(cells, mark, &ConformanceCell::mark));
}

ConformanceRow conform(const std::string& text, std::uint64_t seed, const std::vector<ConformanceCheck>& checks) {
  ConformanceRow row{.scheme = text, .refusal = {}, .cells = {}};
  ConformanceSubject subject{text, {}, seed};
  try {
    row.scheme = subject.text = canonical_text(parse_schemes(text));
    subject.claims = BareAttention(text, {8, 2, capacity}).claims();
  } catch (const InputError& error) {
    row.refusal = error.what();
    return row;
  }
  for (const ConformanceCheck& check : checks) {
    try {
      row.cells.push_back(check.run(subject));
    } catch (const OutOfMemory&) { throw; } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) { row.cells.push_back(ConformanceCell::failed(0, error.what())); }
  }
  return row;
}

}  // namespace whence
