// The columns of the conformance matrix. Each is a function of a scheme; figures are the largest disagreement in f64.
#include <cmath>
#include <limits>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/whence/machine/memory_plan.h"
#include "examples/whence/verify/bare_attention.h"
#include "examples/whence/verify/conformance.h"
#include "examples/whence/verify/gradient_check.h"
#include "examples/whence/verify/probe_run.h"
#include "nn/decoding.h"
#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using Cell = ConformanceCell;
using Subject = ConformanceSubject;

constexpr index_t batch = 2, length = 6, capacity = 16;
constexpr double rounding = 1e-12;  // f64, a few layers deep

Cell passed(double figure, std::string note = {}) { return {Cell::Mark::passed, figure, std::move(note)}; }
Cell failed(double figure, std::string note = {}) { return {Cell::Mark::failed, figure, std::move(note)}; }
Cell differs(double figure, std::string note) { return {Cell::Mark::differs_as_claimed, figure, std::move(note)}; }
Cell refused(const Error& error) { return {Cell::Mark::refused_as_claimed, 0, to_text("refused: ", error.what())}; }
Cell not_applicable(std::string note) { return {Cell::Mark::not_applicable, 0, std::move(note)}; }
Cell within(double figure, double tolerance, const std::string& note = {}) {
  const std::string demand = to_text(note, note.empty() ? "" : "; ", "at most ", tolerance, " required");
  return figure <= tolerance ? passed(figure, demand) : failed(figure, demand);
}

double largest_difference(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape())) fail("conformance", "shapes ", a.shape(), " and ", b.shape(), " are compared");
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double largest = 0;
  for (std::size_t n = 0; n < x.size(); ++n) {
    const double apart = std::fabs(x[n] - y[n]);
    largest = std::isnan(apart) ? std::numeric_limits<double>::infinity() : std::max(largest, apart);
  }
  return largest;
}

double largest_size(const Tensor& x) {
  double largest = 0;
  for (const double value : x.to_vector())
    largest = std::isnan(value) ? std::numeric_limits<double>::infinity() : std::max(largest, std::fabs(value));
  return largest;
}

// Every token of a batch is another one, so that the gradient of a row of the embedding is that of one token.
Tensor tokens_of(index_t sequences, index_t count, index_t first = 0) {
  std::vector<double> tokens;
  for (index_t b = 0; b < sequences; ++b)
    for (index_t t = 0; t < count; ++t) tokens.push_back(static_cast<double>(first + b * capacity + t));
  return Tensor::of(tokens, {sequences, count}, DType::i64);
}

// All runs of a subject may become equally long: positions that are drawn are then the same ones.
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

// ---- gradients ----

Cell gradients(const Subject& subject) {
  const GradientChecks checks = check_scheme(subject.text(), {.length = 4, .one_by_one = 8, .seed = subject.seed()});
  if (!checks.ok()) {
    std::string problems = checks.problem;
    for (const GradientCase& one : checks.cases)
      for (const std::string& problem : one.report.problems)
        problems += (problems.empty() ? "" : "; ") + one.label + ": " + problem;
    return failed(checks.worst_by_duals(), problems);
  }
  return passed(checks.worst_by_duals(), checks.note.empty() ? "by duals and by differences" : checks.note);
}

// d(rows up to t) / d(token after t), exactly 0; and the same bits whatever those tokens are.
Cell causality(const Subject& subject) {
  const auto model = subject.model(2);
  const Tensor tokens = tokens_of(1, length), table = model->parameters().front().tensor;
  double leak = 0, sight = std::numeric_limits<double>::infinity();
  for (index_t t = 0; t + 1 < length; ++t) {
    const Tensor y = rows((*model)(tokens, run_of(length), {}), 0, t + 1);
    const Tensor by_token =
        slice(grad(y, Tensor::normal(y.shape(), 0, 1, Stream(subject.seed(), "cotangent"), DType::f64), {table})[0], 0,
            0, length);
    leak = std::max(leak, largest_size(slice(by_token, 0, t + 1, length)));
    sight = std::min(sight, largest_size(slice(by_token, 0, 0, t + 1)));
    const Tensor other = concat_along(
        1, {cast(rows(tokens, 0, t + 1), DType::f64), cast(rows(tokens_of(1, length, 20), t + 1, length), DType::f64)});
    leak = std::max(leak, largest_difference(rows(logits(*model, raw::cast(other, DType::i64)), 0, t + 1),
                              rows(logits(*model, tokens), 0, t + 1)));
  }
  if (sight == 0) return failed(0, "a row does not depend on the tokens that it may see");
  if (subject.claims().sees_no_future) return within(leak, 0);
  return leak > 0 ? differs(leak, "sees the future, as it says")
                  : failed(leak, "says that it sees the future, and does not");
}

// Shared parameters have twice the gradient when every sequence is there twice.
Cell batch_sum(const Subject& subject) {
  const auto model = subject.model(2);
  const auto gradients_of = [&](const Tensor& tokens) {
    std::vector<Tensor> leaves;
    for (const Module::Parameter& parameter : model->parameters()) leaves.push_back(parameter.tensor);
    const Tensor y = (*model)(tokens, run_of(length), {});
    Tensor cotangent = Tensor::normal({1, length, 5}, 0, 1, Stream(subject.seed(), "cotangent"), DType::f64);
    if (tokens.size(0) == 2) cotangent = concat_along(0, {cotangent, cotangent});
    return grad(y, cotangent, leaves, {.allow_unused = true});
  };
  const Tensor one = tokens_of(1, length), index = cast(one, DType::f64);
  const std::vector<Tensor> single = gradients_of(one),
                            twice = gradients_of(raw::cast(concat_along(0, {index, index}), DType::i64));
  double largest = 0;
  for (std::size_t k = 0; k < single.size(); ++k)
    if (single[k].defined())
      largest =
          std::max(largest, largest_difference(single[k] * 2.0, twice[k]) / std::max(1.0, largest_size(twice[k])));
  return within(largest, rounding);
}

// ---- independence ----

Cell batch_independence(const Subject& subject) {
  const auto model = subject.model(2);
  const Tensor tokens = tokens_of(batch, length), together = logits(*model, tokens);
  double largest = 0;
  for (index_t b = 0; b < batch; ++b)
    largest = std::max(largest, largest_difference(sequence_of(together, b), logits(*model, sequence_of(tokens, b))));
  return within(largest, rounding);
}

// [1 count] bool, true from `begin` to `end`
Sequence padded_run(index_t count, index_t begin, index_t end, bool causal) {
  std::vector<double> present;
  for (index_t t = 0; t < count; ++t) present.push_back(t >= begin && t < end);
  Sequence sequence = Sequence::padded(Tensor::of(present, {1, count}, DType::boolean), causal);
  sequence.positions.length = capacity;
  return sequence;
}

Cell padding(const Subject& subject) {
  double largest = 0;
  for (const bool causal : {true, false}) {
    if (!causal && subject.claims().causal_only) continue;
    const auto model = subject.model(2, causal);
    const index_t real = 4;
    const Tensor tokens = tokens_of(1, length);
    const Tensor right = logits(*model, tokens, padded_run(length, 0, real, causal)),
                 left = logits(*model, tokens, padded_run(length, length - real, length, causal));
    if (!std::isfinite(largest_size(left)) || !std::isfinite(largest_size(right)))
      return failed(0, "rows of padding are not finite");
    largest = std::max(largest, largest_difference(rows(right, 0, real), logits(*model, rows(tokens, 0, real))));
    largest = std::max(largest,
        largest_difference(rows(left, length - real, length), logits(*model, rows(tokens, length - real, length))));
  }
  return within(largest, rounding);
}

Cell prefix(const Subject& subject) {
  const auto model = subject.model(2);
  // Positions that are drawn are drawn for runs of `capacity`;
  // a claim that the length tells is given length enough to show it.
  const Tensor tokens = tokens_of(1, subject.claims().prefix_consistent ? capacity : 3 * capacity);
  const double apart =
      largest_difference(logits(*model, rows(tokens, 0, length)), rows(logits(*model, tokens), 0, length));
  if (subject.claims().prefix_consistent) return within(apart, rounding);
  return apart > rounding ? differs(apart, "rows depend on the run's length, as it says")
                          : failed(apart, "says that rows depend on the run's length, and they do not");
}

Cell shift(const Subject& subject) {
  if (!subject.claims().uses_positions) return not_applicable("reads no positions");
  const auto model = subject.model(2);
  const Tensor tokens = tokens_of(1, length);
  Sequence moved = run_of(length);
  // Beyond FIRE's threshold, where it begins to tell.
  moved.positions.query = moved.positions.key = moved.positions.query + 2000.0;
  double apart = 0;
  try {
    apart = largest_difference(logits(*model, tokens), logits(*model, tokens, moved));
  } catch (const Error& error) {
    if (subject.claims().longest == Claims::any_length) throw;
    return refused(error);
  }
  if (subject.claims().shift_invariant) return within(apart, 1e-10);
  return apart > rounding ? differs(apart, "moves with the positions, as it says")
                          : failed(apart, "does not claim shift invariance, and has it");
}

// ---- decoding ----

// What a decoded row must equal: the row of the full run; where rows depend on the run's length, the row of a run that
// goes on, or the last row of one that ends there.
double decoded_apart(
    const Transformer& model, const Tensor& tokens, index_t t, const Tensor& row, bool prefix_consistent) {
  const double apart = largest_difference(row, rows(logits(model, tokens), t, t + 1));
  if (prefix_consistent) return apart;
  return std::min(apart, largest_difference(row, rows(logits(model, rows(tokens, 0, t + 1)), t, t + 1)));
}

Cell decoding(const Subject& subject) {
  if (!subject.claims().sees_no_future) return not_applicable("a row needs later tokens");
  // Layers above the first read what the lower ones made of earlier tokens. Without prefix consistency, a prefix and
  // the whole give them different numbers.
  const auto model = subject.model(subject.claims().prefix_consistent ? 2 : 1);
  const Tensor tokens = tokens_of(batch, capacity);
  Decoding decoding(*model, capacity);
  double largest = 0;
  const auto feed = [&](index_t count) {
    const index_t begin = decoding.length();
    const Tensor y = decoding(rows(tokens, begin, begin + count));
    for (index_t r = 0; r < count; ++r) {
      if (!subject.claims().prefix_consistent && r + 1 < count) continue;  // in a chunk only the last row ends the run
      largest = std::max(
          largest, decoded_apart(*model, tokens, begin + r, rows(y, r, r + 1), subject.claims().prefix_consistent));
    }
  };
  for (const index_t count : {3, 1, 1, 4, 1}) feed(count);
  return within(largest, rounding, "3, 1, 1, 4, 1 tokens");
}

Cell padded_decoding(const Subject& subject) {
  if (!subject.claims().sees_no_future) return not_applicable("a row needs later tokens");
  const auto model = subject.model(subject.claims().prefix_consistent ? 2 : 1);
  const Tensor tokens = tokens_of(batch, length);
  const std::vector<index_t> missing{0, 2};
  Decoding together(*model, capacity, missing), alone(*model, capacity);
  const Tensor first = together(rows(tokens, 0, 4)), next = together(rows(tokens, 4, 5)),
               last = together(rows(tokens, 5, 6));
  const Tensor second = sequence_of(tokens, 1);
  const Tensor first_alone = alone(rows(second, 2, 4)), next_alone = alone(rows(second, 4, 5)),
               last_alone = alone(rows(second, 5, 6));
  const double largest = std::max({largest_difference(rows(sequence_of(first, 1), 2, 4), first_alone),
      largest_difference(sequence_of(next, 1), next_alone), largest_difference(sequence_of(last, 1), last_alone)});
  return within(largest, rounding, "prompts of 4 and 2 tokens");
}

// ---- executors, sizes, numbers ----

// Output and all gradients of bare attention by one executor, against the composed ops.
double apart_from_reference(const Subject& subject, const BareAttention& scheme, const Executor& executor,
    index_t tokens, const Tensor& present) {
  BareOperands operands = random_operands(scheme, batch, tokens, subject.seed());
  std::vector<Tensor> leaves;
  for (Tensor* operand : {&operands.q, &operands.k, &operands.v, &operands.x})
    if (operand->defined()) leaves.push_back(requires_grad(*operand));
  for (const Module::Parameter& parameter : scheme.root().parameters()) leaves.push_back(parameter.tensor);
  double largest = 0;
  for (const bool causal : {true, false}) {
    if (!causal && subject.claims().causal_only) continue;
    const BareSetting setting{.causal = causal, .present = present};
    // What rows of padding give means nothing.
    const Tensor counted = present.defined() ? raw::cast(reshape(present, {batch, 1, tokens, 1}), DType::f64)
                                             : Tensor::ones({1, 1, 1, 1}, DType::f64);
    const Tensor expected = scheme.run(operands, setting, reference_executor()).output * counted;
    const Tensor found = scheme.run(operands, setting, executor).output * counted;
    largest = std::max(largest, largest_difference(expected, found));
    const Tensor cotangent = Tensor::normal(expected.shape(), 0, 1, Stream(subject.seed(), "cotangent"), DType::f64);
    const auto wanted = grad(expected, cotangent, leaves, {.allow_unused = true}),
               got = grad(found, cotangent, leaves, {.allow_unused = true});
    for (std::size_t k = 0; k < leaves.size(); ++k) {
      const Tensor zeros = Tensor::zeros(leaves[k].shape(), DType::f64);
      const Tensor a = wanted[k].defined() ? wanted[k] : zeros, b = got[k].defined() ? got[k] : zeros;
      largest = std::max(largest, largest_difference(a, b) / std::max(1.0, largest_size(a)));
    }
  }
  return largest;
}

Cell strips(const Subject& subject) {
  const BareAttention scheme(subject.text(), {8, 2, capacity});
  if (!scheme.attends()) return not_applicable("takes no part in attention");
  scheme.draw_parameters(subject.seed());
  const auto blocks = strips_executor_of(2);
  const std::string refusal = blocks->refusal(scheme.stages());
  if (!refusal.empty()) return not_applicable(refusal);
  return within(apart_from_reference(subject, scheme, *blocks, 7, {}), rounding, "blocks of two rows");
}

// One token, some that fill no vector, and more than a tile; padding on the left, on the right and on both sides.
Cell tiled(const Subject& subject) {
  const BareAttention small(subject.text(), {8, 2, capacity});
  if (!small.attends()) return not_applicable("takes no part in attention");
  const std::string refusal = tiled_executor().refusal(small.stages());
  if (!refusal.empty()) return not_applicable(refusal);
  double largest = 0;
  const auto present = [](index_t tokens, index_t left, index_t right) {
    std::vector<double> there;
    for (index_t n = 0; n < batch * tokens; ++n)
      there.push_back(n < tokens || (n - tokens >= left && n - tokens < tokens - right));
    return Tensor::of(there, {batch, tokens}, DType::boolean);
  };
  for (const auto& [heads, wanted] : {std::pair<index_t, index_t>{2, 1}, {1, 17}, {3, 9}, {1, 67}}) {
    const index_t tokens =
        subject.claims().drawn_each_step ? std::min(wanted, capacity) : wanted;  // as many as are drawn
    const BareAttention scheme(subject.text(), {4 * heads, heads, std::max(capacity, tokens)});
    scheme.draw_parameters(subject.seed());
    largest = std::max(largest, apart_from_reference(subject, scheme, tiled_executor(), tokens, {}));
    if (tokens != 9) continue;
    for (const auto& [left, right] : {std::pair<index_t, index_t>{2, 0}, {0, 3}, {1, 2}})
      largest = std::max(
          largest, apart_from_reference(subject, scheme, tiled_executor(), tokens, present(tokens, left, right)));
  }
  return within(largest, rounding, "1, 9, 17 and 67 tokens, or as many as are drawn, 1 to 3 heads, padded");
}

// A run whose first sequence has `other` in one operand of its token `at`, and whose second one has it in its padding:
// what must not change by it, and the row that must. The cotangent is 0 in rows of padding.
struct Hidden {
  std::vector<Tensor> outputs;    // of tokens before `at`, and of the second sequence
  std::vector<Tensor> gradients;  // of their queries, and of the second sequence's other operands
  Tensor row;                     // of `at`
};
Hidden hidden_run(const Subject& subject, const BareAttention& scheme, const Executor& executor, int operand,
    double other, bool in_cotangent = false) {
  constexpr index_t tokens = 7, at = 4, padding = 2;
  BareOperands operands = random_operands(scheme, batch, tokens, subject.seed());
  const std::vector<Tensor*> all{&operands.q, &operands.k, &operands.v, &operands.x};
  if (operand >= 0 && all[static_cast<std::size_t>(operand)]->defined()) {
    const Tensor& x = *all[static_cast<std::size_t>(operand)];
    const auto put = [&](index_t b, index_t begin, index_t end) {
      const Tensor place = raw::slice(raw::slice(x, 0, b, b + 1), x.rank() - 2, begin, end);
      kernels({}).fill(raw::slice(place, -1, 0, 1), other);
    };
    put(0, at, at + 1), put(1, tokens - padding, tokens);
  }
  std::vector<Tensor> leaves;
  for (Tensor* x : all)
    if (x->defined()) leaves.push_back(requires_grad(*x));
  std::vector<double> present(2 * tokens, 1.0);
  std::fill(present.end() - padding, present.end(), 0.0);
  const BareSetting setting{.present = Tensor::of(present, {batch, tokens}, DType::boolean)};
  const Tensor output = scheme.run(operands, setting, executor).output;
  const Tensor cotangent = Tensor::normal(output.shape(), 0, 1, Stream(subject.seed(), "cotangent"), DType::f64);
  kernels({}).fill(raw::slice(raw::slice(cotangent, 0, 1, 2), 2, tokens - padding, tokens), 0);
  if (in_cotangent) kernels({}).fill(raw::slice(raw::slice(cotangent, 0, 0, 1), 2, at, at + 1), other);
  const auto gradients = grad(output, cotangent, leaves, {.allow_unused = true});
  const index_t seen = subject.claims().sees_no_future ? at : 0;
  const auto part = [](const Tensor& x, index_t b, index_t begin, index_t end) {
    return raw::slice(raw::slice(x, 0, b, b + 1), x.rank() - 2, begin, end);
  };
  Hidden found{.outputs = {}, .gradients = {}, .row = part(output.detach(), 0, at, at + 1)};
  for (const auto& [b, end] : {std::pair<index_t, index_t>{0, seen}, {1, tokens - padding}}) {
    found.outputs.push_back(part(output.detach(), b, 0, end));
    for (std::size_t k = 0; k < gradients.size(); ++k)
      if (gradients[k].defined() && (k == 0 || b == 1)) found.gradients.push_back(part(gradients[k], b, 0, end));
  }
  return found;
}

Cell hidden(const Subject& subject) {
  const BareAttention scheme(subject.text(), {8, 2, capacity});
  if (!scheme.attends()) return not_applicable("takes no part in attention");
  scheme.draw_parameters(subject.seed());
  const auto blocks = strips_executor_of(2);
  double largest = 0, largest_gradient = 0;
  for (const Executor* executor :
      std::initializer_list<const Executor*>{&reference_executor(), blocks.get(), &tiled_executor()}) {
    if (!executor->refusal(scheme.stages()).empty()) continue;
    const Hidden before = hidden_run(subject, scheme, *executor, -1, 0);
    double own_row = 0;
    for (const double other : {-3.0, 1e30}) {
      for (int operand = 0; operand < 5; ++operand) {  // the last one is the cotangent
        const Hidden found = hidden_run(subject, scheme, *executor, operand < 4 ? operand : -1, other, operand == 4);
        own_row = std::max(own_row, largest_difference(before.row, found.row));
        for (std::size_t k = 0; k < before.outputs.size(); ++k)
          largest = std::max(largest, largest_difference(before.outputs[k], found.outputs[k]));
        for (std::size_t k = 0; k < before.gradients.size(); ++k)
          largest_gradient = std::max(largest_gradient, largest_difference(before.gradients[k], found.gradients[k]));
      }
    }
    if (own_row == 0) return failed(0, to_text(executor->name(), ": a token's own row does not depend on it"));
  }
  if (largest_gradient > rounding)
    return failed(largest_gradient, "gradients of earlier queries, or of another sequence, moved");
  return within(
      largest, 0, "bits of earlier rows and of other sequences, by every executor; their gradients to rounding");
}

// As programs run a pass: first on the planned device, which says what it will take, then on the CPU.
Cell planned(const Subject& subject) {
  const BareAttention scheme(subject.text(), {8, 2, capacity});
  const BareOperands operands = random_operands(scheme, batch, length, subject.seed());
  std::vector<std::pair<std::string, Tensor>> given;
  for (const auto& [name, tensor] : {std::pair<const char*, Tensor>{"q", operands.q}, {"k", operands.k},
           {"v", operands.v}, {"x", operands.x}, {"cotangent", scheme.attends() ? operands.q : operands.x}})
    if (tensor.defined()) given.emplace_back(name, tensor);
  const bool has_parameters = !scheme.root().parameters().empty();
  const auto input = [&] {
    return probe_input_of("", given, subject.text(), {}, has_parameters ? std::optional(subject.seed()) : std::nullopt);
  };
  double largest = 0;
  for (const Executor* executor : scheme.attends() ? executors() : std::vector{&reference_executor()}) {
    if (!executor->refusal(scheme.stages()).empty()) continue;
    const ProbeInput real = input();
    ProbeInput plan = input();
    plan.to(Device::planned(Device::cpu()));
    const SafetensorsFile alone = run_probe(real, *executor);
    SafetensorsFile shapes;
    if (planned_peak([&] { shapes = run_probe(plan, *executor); }) == 0) return failed(0, "takes no memory");
    const SafetensorsFile after = run_probe(real, *executor);
    for (std::size_t k = 0; k < alone.tensors.size(); ++k) {
      const auto& [name, tensor] = after.tensors[k];
      if (k >= shapes.tensors.size() || !(shapes.tensors[k].second.shape() == tensor.shape()))
        return failed(0, to_text(executor->name(), ": ", name, " is planned with another shape"));
      largest = std::max(largest, largest_difference(alone.tensors[k].second, tensor));
    }
  }
  return within(largest, 0, "the numbers of a pass that was not planned");
}

// Each head of a run with a mask per head against that head under its mask alone.
Cell head_masks(const Subject& subject) {
  const BareAttention scheme(subject.text(), {8, 2, capacity});
  if (!scheme.attends()) return not_applicable("takes no part in attention");
  scheme.draw_parameters(subject.seed());
  const BareOperands operands = random_operands(scheme, batch, length, subject.seed());
  std::vector<double> allowed[3];  // of head 0, of head 1, of both
  for (index_t n = 0; n < 2 * length * length; ++n) {
    const index_t head = n / (length * length), i = n / length % length, j = n % length;
    for (const index_t list : {head, index_t(2)}) allowed[list].push_back(i == j || (3 * i + 2 * j + head) % 4 != 0);
  }
  const auto output = [&](index_t list) {
    const Tensor mask = Tensor::of(allowed[list], {1, list == 2 ? 2 : 1, length, length}, DType::boolean);
    return scheme.run(operands, {.mask = mask}, reference_executor()).output.detach();
  };
  try {
    double apart = 0;
    for (index_t head = 0; head < 2; ++head)
      apart = std::max(apart, largest_difference(select(output(2), 1, head), select(output(head), 1, head)));
    if (!subject.claims().mask_per_head) return failed(apart, "says that it refuses a mask per head, and does not");
    return within(apart, rounding);
  } catch (const InputError& error) {
    if (subject.claims().mask_per_head) throw;
    return refused(error);
  }
}

Cell one_token(const Subject& subject) {
  const auto model = subject.model(2);
  const double size = largest_size(logits(*model, tokens_of(batch, 1)));
  return std::isfinite(size) && size > 0 ? passed(0, "finite") : failed(size, "one token gives no finite number");
}

Cell longer_than_trained(const Subject& subject) {
  const auto model = subject.model(2);
  const Tensor tokens = tokens_of(1, 3 * capacity);
  if (subject.claims().longest >= tokens.size(1)) {
    const double size = largest_size(logits(*model, tokens));
    return std::isfinite(size) ? passed(0, "finite at 3 times the length") : failed(size, "not finite");
  }
  try {
    (void)logits(*model, tokens);
  } catch (const Error& error) { return refused(error); }
  return failed(0, "accepts a run longer than it says");
}

Cell narrow_numbers(const Subject& subject) {
  if (!subject.claims().exact_gradient) return not_applicable("an argmax jumps with the rounding");
  const Tensor tokens = tokens_of(1, length), exact = logits(*subject.model(1), tokens);
  const double size = std::max(1.0, largest_size(exact));
  std::string found;
  double worst = 0;
  for (const auto& [dtype, epsilon] :
      {std::pair{DType::f32, 0x1p-23}, std::pair{DType::f16, 0x1p-10}, std::pair{DType::bf16, 0x1p-7}}) {
    const double relative =
        largest_difference(raw::cast(logits(*subject.model(1, true, dtype), tokens), DType::f64), exact) / size;
    found += to_text(found.empty() ? "" : ", ", dtype, " ", relative);
    worst = std::max(worst, relative / epsilon);
  }
  return within(worst, 200, found);  // in units of each dtype's epsilon
}

// The number of threads as it was, when this goes.
struct ThreadsBack {
  int before = threads();
  ~ThreadsBack() { set_threads(before); }
};

Cell same_bits(const Subject& subject) {
  const auto model = subject.model(2);
  const Tensor tokens = tokens_of(batch, length), table = model->parameters().front().tensor;
  const ThreadsBack as_before;
  const auto run = [&](int count) {
    set_threads(count);
    const Tensor y = (*model)(tokens, run_of(length), {});
    return std::pair{y.detach(), grad(sum(square(y)), {}, {table})[0]};
  };
  const auto [y1, g1] = run(1);
  double apart = 0;
  for (const int count : {1, 2, 3}) {
    const auto [y, g] = run(count);
    apart = std::max({apart, largest_difference(y, y1), largest_difference(g, g1)});
  }
  return within(apart, 0, "1, 2 and 3 threads");
}

}  // namespace

const std::vector<ConformanceCheck>& conformance_checks() {
  static const std::vector<ConformanceCheck> checks{
      {"gradcheck", "gradients of inputs and parameters by dual numbers and by differences", gradients},
      {"causality", "no row depends on a later token: Jacobian exactly 0, same bits whatever follows", causality},
      {"prefix", "a row is the same in a longer run", prefix},
      {"decoding", "tokens one by one and in chunks through a cache give the rows of the full pass", decoding},
      {"padded decoding", "prompts of different lengths, padded on the left, decode as each alone", padded_decoding},
      {"padding", "a padded run gives the rows of the run without padding, left and right", padding},
      {"batch", "sequences of a batch do not see each other", batch_independence},
      {"batch sum", "a batch that is there twice gives twice the gradient", batch_sum},
      {"shift", "moving all positions changes nothing, where that is claimed", shift},
      {"strips", "blocks of query rows give the same output and gradients", strips},
      {"tiled", "tile programs give the same output and gradients", tiled},
      {"hidden", "what a later token or padding holds changes no bit of what does not see it", hidden},
      {"planned", "planned first, as programs do, a pass has the same shapes and then the same numbers", planned},
      {"head masks", "each head may have a mask of its own, where that is claimed", head_masks},
      {"one token", "a run of one token", one_token},
      {"longer", "a run of three times the training length works, or is refused", longer_than_trained},
      {"f32 f16 bf16", "logits of narrower numbers, apart from f64 by so many of their epsilons", narrow_numbers},
      {"same bits", "any number of threads, any time: the same bits", same_bits}};
  return checks;
}

}  // namespace whence
