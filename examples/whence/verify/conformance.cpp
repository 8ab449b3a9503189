// The conformance matrix: columns that small transformers show, then those of bare attention, by every executor. Each figure
// is the largest difference in f64.
#include "examples/whence/verify/conformance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/whence/machine/memory.h"
#include "examples/whence/verify/bare_attention.h"
#include "examples/whence/verify/compare.h"
#include "examples/whence/verify/gradient_check.h"
#include "examples/whence/verify/probe_run.h"
#include "nn/attention/plan.h"
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
  // Drawn positions are for runs of `capacity`. A claim that rows depend on the length gets a run that can show it,
  // or the longest that there is: then rows that stay are no failure.
  const index_t most = consistent ? capacity : std::min(3 * capacity, subject.claims.longest);
  const Tensor tokens = tokens_of(1, most);
  const double apart =
      largest_difference(logits(*model, rows(tokens, 0, length)), rows(logits(*model, tokens), 0, length));
  if (!consistent && most < 3 * capacity && apart <= rounding)
    return Cell::passed(apart, to_text("in a run of ", most));
  const Cell ends = as_claimed(consistent, apart, rounding, "rows depend on the run's length");
  if (consistent || !subject.claims.sees_no_future || ends.mark == Cell::Mark::failed) return ends;
  // In a run that is continued, rows must change at the claimed lengths, and at no length before or after them.
  const auto [first, last] = subject.claims.changes_rows;
  const auto changed = [&](index_t shorter, index_t longer) {
    const auto run = [&](index_t count) {
      return rows(logits(*model, rows(tokens, 0, count), Sequence::continued(0, count, most)), 0, shorter);
    };
    return largest_difference(run(shorter), run(longer)) > rounding;
  };
  const bool some = first <= last;
  for (const auto& [shorter, longer] : {std::pair{index_t{2}, some ? first - 1 : most}, std::pair{first - 1, first},
           std::pair{first, first + 1}, std::pair{first + 1, most}})
    if (shorter > 0 && longer <= most &&
        changed(shorter, longer) != subject.claims.changes_rows.reached(shorter, longer))
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

Cell lengths(const Subject& subject) {
  const auto model = subject.model();
  const double one = largest_size(logits(*model, tokens_of(1, 1)));
  if (!std::isfinite(one) || one == 0) return Cell::failed(one, "one token gives no finite number");
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

// ---- Checks of attention without a model

BareAttention drawn_attention(const Subject& subject, const SchemeSizes& sizes) {
  BareAttention scheme(subject.text, sizes);
  draw_parameters(scheme.root(), subject.seed);
  return scheme;
}

const std::vector<AttendPlan> plans{Executor::reference, {Executor::strips, 2}, Executor::tiled};

using AttentionCheck = Cell (*)(const Subject&, const BareAttention&);

std::function<Cell(const Subject&)> of_attention(AttentionCheck check) {
  return [check](const Subject& subject) {
    const BareAttention scheme = drawn_attention(subject, {8, 2, capacity});
    return scheme.attends() ? check(subject, scheme) : Cell::not_applicable("takes no part in attention");
  };
}

// Compares output and all gradients of bare attention by one executor with the composed ops.
double apart_from_reference(const Subject& subject, const BareAttention& scheme, const AttendPlan& plan, index_t tokens,
    index_t left = 0, index_t right = 0) {
  AttendInputs inputs = random_inputs(scheme, batch, tokens, subject.seed);
  const bool padded = left + right > 0;
  const Tensor present = present_but(tokens, left, right);
  // Rows of padding have no meaning.
  const Tensor counted = raw::cast(raw::reshape(present, {batch, 1, tokens, 1}), DType::f64);
  const Tensor cotangent = random_cotangent(inputs, subject.seed) * counted;
  double largest = 0;
  for (const bool causal : {true, false}) {
    if (!causal && subject.claims.causal_only) continue;
    inputs.sequence = padded ? Sequence::padded(present, causal) : Sequence::run(tokens, causal);
    const std::vector<Named> wanted = output_and_gradients(scheme, inputs, Executor::reference, cotangent),
                             found = output_and_gradients(scheme, inputs, plan, cotangent);
    largest = std::max(largest, largest_difference(wanted[0].tensor * counted, found[0].tensor * counted));
    for (std::size_t k = 1; k < wanted.size(); ++k) {
      const Tensor& gradient = wanted[k].tensor;
      largest =
          std::max(largest, largest_difference(gradient, found[k].tensor) / std::max(1.0, largest_size(gradient)));
    }
  }
  return largest;
}

Cell strips(const Subject& subject, const BareAttention& scheme) {
  const AttendPlan blocks(Executor::strips, 2);
  const std::string refusal = refusal_of(Executor::strips, scheme.stages());
  if (!refusal.empty()) return Cell::not_applicable(refusal);
  return Cell::within(apart_from_reference(subject, scheme, blocks, 7), rounding, "blocks of two rows");
}

// Runs one token, less than a vector, and more than a tile, with padding on the left, on the right and on both sides.
Cell tiled(const Subject& subject, const BareAttention& small) {
  const std::string refusal = refusal_of(Executor::tiled, small.stages());
  if (!refusal.empty()) return Cell::not_applicable(refusal);
  double largest = 0;
  for (const auto& [heads, wanted] : {std::pair<index_t, index_t>{2, 1}, {1, 17}, {3, 9}, {1, 67}}) {
    const index_t tokens =
        subject.claims.drawn_each_step ? std::min(wanted, capacity) : wanted;  // no more positions are drawn
    const BareAttention scheme = drawn_attention(subject, {4 * heads, heads, std::max(capacity, tokens)});
    for (const auto& [left, right] : {std::pair<index_t, index_t>{0, 0}, {2, 0}, {0, 3}, {1, 2}})
      if (tokens == 9 || left + right == 0)
        largest = std::max(largest, apart_from_reference(subject, scheme, Executor::tiled, tokens, left, right));
  }
  return Cell::within(largest, rounding, "1, 9, 17 and 67 tokens, or all drawn positions, 1 to 3 heads, padded");
}

// Returns the number of entries of x before its axis of heads, the first axis where `shape` differs.
index_t before_heads(const Tensor& x, const Shape& shape) {
  index_t count = 1;
  for (int axis = 0; shape[axis] == x.size(axis); ++axis) count *= shape[axis];
  return count;
}
// Returns x with each key head repeated for the query heads that read it, or x if it has no key heads.
Tensor copied_out(const Tensor& x, const Shape& shape, index_t key_heads, index_t copies) {
  if (shape == x.shape()) return x;
  const Tensor heads = raw::reshape(x, {before_heads(x, shape), key_heads, 1, -1});
  return raw::contiguous(raw::reshape(raw::expand(heads, {heads.size(0), key_heads, copies, heads.size(3)}), shape));
}
// Returns the sum over these copies, in the shape of x.
Tensor sum_of_copies(const Tensor& y, const Shape& shape, index_t key_heads, index_t copies) {
  if (shape == y.shape()) return y;
  return reshape(sum(reshape(y, {before_heads(y, shape), key_heads, copies, -1}), {2}), shape);
}

// Compares, if heads share keys and values, output and all gradients by every executor with composed ops on copies of the
// keys, the values and the scheme's parameters per key head.
Cell key_heads(const Subject& subject, const BareAttention&) {
  constexpr index_t heads = 8, tokens = 5;
  const BareAttention whole(subject.text, {4 * heads, heads, capacity});
  double largest = 0;
  for (const index_t shared : {heads / 2, heads / 4, index_t(1)}) {
    const BareAttention scheme = drawn_attention(subject, {4 * heads, heads, capacity, 0, shared});
    const auto copied = [&](const Tensor& x, const Shape& shape) {
      return copied_out(x, shape, shared, heads / shared);
    };
    const auto own = scheme.root().parameters(), theirs = whole.root().parameters();
    bool by_key_head = false;
    for (std::size_t k = 0; k < own.size(); ++k) {
      by_key_head |= own[k].tensor.shape() != theirs[k].tensor.shape();
      raw::copy_into(copied(own[k].tensor, theirs[k].tensor.shape()), theirs[k].tensor);
    }
    if (by_key_head != subject.claims.by_key_head)
      return Cell::failed(0, to_text("says that its parameters belong to ", by_key_head ? "query" : "key",
                                 " heads; they belong to the others"));
    AttendInputs inputs = random_inputs(scheme, batch, tokens, subject.seed);
    const Tensor cotangent = random_cotangent(inputs, subject.seed);
    for (const bool causal : {true, false}) {
      if (!causal && subject.claims.causal_only) continue;
      inputs.sequence = Sequence::run(tokens, causal);
      AttendInputs apart = inputs;
      apart.key = copied(inputs.key, inputs.query.shape()), apart.value = copied(inputs.value, inputs.query.shape());
      const std::vector<Named> wanted = output_and_gradients(whole, apart, Executor::reference, cotangent);
      for (const AttendPlan& plan : plans) {
        if (!refusal_of(plan.executor, scheme.stages()).empty()) continue;
        const std::vector<Named> found = output_and_gradients(scheme, inputs, plan, cotangent);
        for (std::size_t k = 0; k < wanted.size(); ++k) {
          const Tensor& each = found[k].tensor;
          const Tensor sums = sum_of_copies(wanted[k].tensor, each.shape(), shared, heads / shared);
          largest = std::max(largest, largest_difference(sums, each) / std::max(1.0, largest_size(each)));
        }
      }
    }
  }
  return Cell::within(largest, rounding, "8 query heads read 4, 2 and 1 key heads; by every executor");
}

// Returns rows [begin, end) of sequence b of [b h t d] or [b t c].
Tensor part(const Tensor& x, index_t b, index_t begin, index_t end) {
  return raw::slice(raw::slice(x, 0, b, b + 1), -2, begin, end);
}

// Results that must not depend on a later token or on padding, and the row that must.
struct Hidden {
  std::vector<Tensor> outputs;    // rows before `at`, and the second sequence
  std::vector<Tensor> gradients;  // of these rows' queries and the second sequence's other operands
  Tensor earlier_queries;         // gradient of earlier queries, if rows read other rows' queries
  Tensor row;                     // the row `at`
};

// Runs with `other` written into one operand (4: the cotangent) at token `at` of the first sequence and in the padding of
// the second, which is on both sides. The cotangent is 0 in rows of padding.
Hidden hidden_run(
    const Subject& subject, const BareAttention& scheme, const AttendPlan& plan, std::size_t changed, double other) {
  constexpr index_t tokens = 7, at = 4, begin = 1, end = 5;
  AttendInputs inputs = random_inputs(scheme, batch, tokens, subject.seed);
  inputs.sequence = Sequence::padded(present_but(tokens, begin, tokens - end));
  const Tensor cotangent = random_cotangent(inputs, subject.seed);
  for (const Tensor& padding : {part(cotangent, 1, 0, begin), part(cotangent, 1, end, tokens)})
    kernels(Device::cpu()).fill(padding, 0);
  if (changed == 4) kernels(Device::cpu()).fill(part(cotangent, 0, at, at + 1), other);
  if (const Tensor* x = changed < 4 ? named_operands(inputs)[changed].second : nullptr; x && x->defined())
    for (const Tensor& place : {part(*x, 0, at, at + 1), part(*x, 1, 0, begin), part(*x, 1, end, tokens)})
      kernels(Device::cpu()).fill(raw::slice(place, -1, 0, 1), other);
  const std::vector<Named> results = output_and_gradients(scheme, inputs, plan, cotangent);
  const index_t seen = subject.claims.sees_no_future ? at : 0;
  const Tensor &output = results[0].tensor, &of_queries = results[1].tensor;
  Hidden found{.outputs = {part(output, 0, 0, seen), part(output, 1, begin, end)},
      .gradients = {part(of_queries, 0, 0, subject.claims.row_local ? seen : 0)},
      .earlier_queries = part(of_queries, 0, 0, at),
      .row = part(output, 0, at, at + 1)};
  const std::size_t operands = inputs.x.defined() ? 4 : 3;
  for (std::size_t k = 1; k <= operands; ++k) found.gradients.push_back(part(results[k].tensor, 1, begin, end));
  return found;
}

double largest_difference_of_any(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double largest = 0;
  for (std::size_t k = 0; k < a.size(); ++k) largest = std::max(largest, largest_difference(a[k], b[k]));
  return largest;
}

Cell hidden(const Subject& subject, const BareAttention& scheme) {
  double largest = 0, largest_gradient = 0;
  for (const AttendPlan& plan : plans) {
    if (!refusal_of(plan.executor, scheme.stages()).empty()) continue;
    constexpr std::size_t nothing = 5;
    const Hidden before = hidden_run(subject, scheme, plan, nothing, 0);
    double own_row = 0, of_other_rows = 0;
    for (const double other : {-3.0, 1e30}) {
      for (std::size_t changed = 0; changed < nothing; ++changed) {
        const Hidden found = hidden_run(subject, scheme, plan, changed, other);
        own_row = std::max(own_row, largest_difference(before.row, found.row));
        if (changed == 4)
          of_other_rows = std::max(of_other_rows, largest_difference(before.earlier_queries, found.earlier_queries));
        largest = std::max(largest, largest_difference_of_any(before.outputs, found.outputs));
        largest_gradient = std::max(largest_gradient, largest_difference_of_any(before.gradients, found.gradients));
      }
    }
    if (own_row == 0)
      return Cell::failed(0, to_text(name_of(plan.executor), ": a token's own row does not depend on it"));
    if ((of_other_rows > rounding) == subject.claims.row_local)
      return Cell::failed(of_other_rows, to_text(name_of(plan.executor), ": a row's gradient ",
                                             subject.claims.row_local ? "reaches" : "does not reach",
                                             " the queries of earlier rows, and the scheme claims otherwise"));
  }
  if (largest_gradient > rounding)
    return Cell::failed(largest_gradient, "gradients of earlier queries, or of another sequence, moved");
  return Cell::within(
      largest, 0, "bits of earlier rows and of other sequences, by every executor; their gradients to rounding");
}

// Runs a pass as programs do: first on the planned device, which measures its memory, then on the CPU.
Cell planned(const Subject& subject) {
  const BareAttention scheme(subject.text, {8, 2, capacity});
  AttendInputs inputs = random_inputs(scheme, batch, length, subject.seed);
  NamedTensors given{{"cotangent", random_cotangent(inputs, subject.seed)}};
  for (const auto& [name, operand] : named_operands(inputs))
    if (operand->defined()) given.emplace_back(name, *operand);
  const bool has_parameters = !scheme.root().parameters().empty();
  const auto input = [&] {
    return probe_input_of("", given, subject.text, {}, has_parameters ? std::optional(subject.seed) : std::nullopt);
  };
  double largest = 0;
  for (const Executor executor : all_executors) {
    if (scheme.attends() ? !refusal_of(executor, scheme.stages()).empty() : executor != Executor::reference) continue;
    const ProbeInput real = input();
    ProbeInput plan = input();
    plan.to(Device::planned(Device::cpu()));
    const SafetensorsFile alone = run_probe(real, executor);
    SafetensorsFile shapes;
    if (planned_peak([&] { shapes = run_probe(plan, executor); }) == 0) return Cell::failed(0, "takes no memory");
    const SafetensorsFile after = run_probe(real, executor);
    for (std::size_t k = 0; k < alone.tensors.size(); ++k) {
      const auto& [name, tensor] = after.tensors[k];
      if (k >= shapes.tensors.size() || !(shapes.tensors[k].second.shape() == tensor.shape()))
        return Cell::failed(0, to_text(name_of(executor), ": ", name, " is planned with another shape"));
      largest = std::max(largest, largest_difference(alone.tensors[k].second, tensor));
    }
  }
  return Cell::within(largest, 0, "the numbers of a pass that was not planned");
}

// Compares each head of a run with a mask per head with a run of that head's mask alone.
Cell head_masks(const Subject& subject, const BareAttention& scheme) {
  AttendInputs inputs = random_inputs(scheme, batch, length, subject.seed);
  std::vector<double> allowed;
  for (index_t head = 0; head < 2; ++head)
    for (index_t i = 0; i < length; ++i)
      for (index_t j = 0; j < length; ++j) allowed.push_back(i == j || (3 * i + 2 * j + head) % 4 != 0);
  const Tensor masks = Tensor::of(allowed, {1, 2, length, length}, DType::boolean);
  const auto output = [&](const Tensor& mask) {
    inputs.sequence.given_mask = mask;
    return scheme.run(inputs, Executor::reference).output.detach();
  };
  try {
    const Tensor together = output(masks);
    double apart = 0;
    for (index_t head = 0; head < 2; ++head) {
      const Tensor alone = output(raw::contiguous(raw::slice(masks, 1, head, head + 1)));
      apart = std::max(apart, largest_difference(raw::select(together, 1, head), raw::select(alone, 1, head)));
    }
    if (!subject.claims.mask_per_head) return Cell::failed(apart, "claims to refuse a mask per head, and does not");
    return Cell::within(apart, rounding);
  } catch (const InputError& error) {
    if (subject.claims.mask_per_head) throw;
    return Cell::refused(error);
  }
}

std::vector<ConformanceCheck> all_checks() {
  return {{"gradcheck", "gradients of inputs and parameters by dual numbers and by differences", gradients},
      {"model gradients", "gradients of all parameters of a model by dual numbers", model_gradients},
      {"causality", "no row depends on a later token: Jacobian exactly 0, same bits whatever follows", causality},
      {"prefix", "a row is the same in a longer run", prefix},
      {"decoding", "tokens one by one and in chunks through a cache give the rows of the full pass", decoding},
      {"padded decoding", "prompts of different lengths, padded on the left, decode as each alone", padded_decoding},
      {"padding", "a padded run gives the rows of the run without padding, left and right", padding},
      {"shift", "moving all positions changes nothing, if claimed", shift},
      {"lengths", "a run of one token works; one of three times the training length works, or is refused", lengths},
      {"f32 f16 bf16", "logits in narrower dtypes: difference from f64, in epsilons", narrow_numbers},
      {"same bits", "any number of threads, any time: the same bits", same_bits},
      {"strips", "blocks of query rows give the same output and gradients", of_attention(strips)},
      {"tiled", "tile programs give the same output and gradients", of_attention(tiled)},
      {"key heads", "heads that share keys and values equal heads with copies of them", of_attention(key_heads)},
      {"hidden", "later tokens and padding change no bit of rows that do not see them", of_attention(hidden)},
      {"planned", "a pass that was planned first has the planned shapes and the same numbers", planned},
      {"head masks", "each head may have its own mask, if claimed", of_attention(head_masks)}};
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
