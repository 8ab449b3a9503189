#include "examples/whence/tasks/recall_construction.h"

#include <algorithm>
#include <cmath>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "nn/attention/plan.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::tasks {
namespace {

// A = [S +] conv(S), the kernel on keys j - 1 and j, zero left of the first.    S:[b h i j], h = 1
class LinearKernel final : public PositionalScheme, public MapsScores {
 public:
  explicit LinearKernel(bool residual) : residual_(residual) {}
  Claims claims() const override { return {.shift_invariant = true, .uses_positions = false}; }
  Tensor map_scores(const Tensor& a, const AttendContext& at) const override {
    const Tensor& s = at.content_scores;
    const Tensor kernel = at.on_device(Tensor::of({1, -1}, {1, 1, 1, 2}, s.dtype()));
    const Tensor convolved = convolve_keys(at.masked(s), kernel, Tensor(), 1, 0);
    return residual_ ? a + convolved : convolved;
  }

 private:
  bool residual_;
};

// Returns what a cdape scheme adds to the scores.
class WithoutResidual final : public PositionalScheme, public MapsScores {
 public:
  explicit WithoutResidual(std::unique_ptr<PositionalScheme> scheme) : scheme_(std::move(scheme)) {
    child("scheme", *scheme_);
  }
  Claims claims() const override { return scheme_->claims(); }
  Tensor map_scores(const Tensor& a, const AttendContext& at) const override {
    return dynamic_cast<const MapsScores&>(*scheme_).map_scores(a * 0.0, at);
  }

 private:
  std::unique_ptr<PositionalScheme> scheme_;
};

void set(const Module& module, const std::string& path, const Tensor& value) {
  for (const Module::Parameter& parameter : module.parameters())
    if (parameter.path == path)
      return raw::copy_into(raw::cast(value, parameter.tensor.dtype()), parameter.tensor.detach());
  throw Error("recall: parameter ", path, " wanted; the model has none of that path");
}

// Sets the parameters below `path` of a cdape(none, width=2, kernel=3) to those of the construction:
//   w1 = [[1, -1, 0], [-1, 1, 0]],  w2 = [[0, 1/1.01, 0], [0, -1/1.01, 0]],  biases 0;
//   leaky_relu(u) - leaky_relu(-u) = 1.01 u
void set_kernels(const Module& module, const std::string& path) {
  const double half = 1 / 1.01;
  set(module, path + "hidden.weight", Tensor::of({1, -1, 0, -1, 1, 0}, {2, 1, 1, 3}));
  set(module, path + "hidden.bias", Tensor::zeros({2}));
  set(module, path + "output.weight", Tensor::of({0, half, 0, 0, -half, 0}, {1, 2, 1, 3}, DType::f64));
  set(module, path + "output.bias", Tensor::zeros({1}));
}

// Makes a matrix [rows columns] that scales `count` numbers and moves them: coordinates from + k to to + k.
struct Move {
  index_t from, to, count;
  double times = 1;
};
Tensor moving(index_t rows, index_t columns, const std::vector<Move>& moves) {
  const Tensor matrix = Tensor::zeros({rows, columns});
  for (const Move& move : moves)
    for (index_t k = 0; k < move.count; ++k)
      matrix.data<float>()[(move.to + k) * columns + move.from + k] = static_cast<float>(move.times);
  return matrix;
}

RecallOutcome outcome_of(const Batch& batch, const Tensor& weighted) {  // [b 1 t v]: the mass on each token
  const Tensor mixed = raw::to_device(weighted, Device::cpu());
  RecallOutcome outcome;
  outcome.errors.add(batch, most_probable(mixed));
  for (index_t row = 0; row < batch.sequences; ++row) {
    const index_t last = batch.positions - 1;
    const std::int64_t answer = batch.graded[static_cast<std::size_t>(row * batch.positions + last)];
    outcome.least_mass = std::min(outcome.least_mass, mixed.at({row, 0, last, answer}));
  }
  return outcome;
}

// [b 1 t v]
Tensor one_hot(const Batch& batch, index_t vocabulary, double value) {
  const Tensor x = Tensor::zeros({batch.sequences, 1, batch.positions, vocabulary});
  for (std::size_t i = 0; i < batch.inputs.size(); ++i)
    x.data<float>()[static_cast<index_t>(i) * vocabulary + batch.inputs[i]] = static_cast<float>(value);
  return x;
}

Tensor placed(const Tensor& x, const RecallPlace& place) {
  return raw::to_device(raw::cast(x, place.dtype), place.device);
}

// All [b 1 t v]. The queries include the sharpness beta.
Tensor attend(
    const Tensor& queries, const Tensor& keys, const Tensor& values, const Stages& stages, const RecallPlace& place) {
  AttendInputs inputs{Tensor(), queries, keys, values, Sequence::run(queries.size(2))};
  inputs.scale = 1;
  return whence::attend(inputs, stages, place.plan);
}

}  // namespace

std::unique_ptr<PositionalScheme> recall_scheme(KernelForm form, bool residual) {
  if (form == KernelForm::linear) return std::make_unique<LinearKernel>(residual);
  auto scheme = parse_schemes("cdape(none, width=2, kernel=3)")[0].make({.dim = 1, .heads = 1});
  set_kernels(*scheme, "");
  if (residual) return scheme;
  return std::make_unique<WithoutResidual>(std::move(scheme));
}

double recall_sharpness(index_t length) { return std::log(static_cast<double>(length)) + 4; }

RecallOutcome recall_by_construction(
    const Batch& batch, index_t vocabulary, KernelForm form, bool residual, const RecallPlace& place) {
  const NoGrad no_grad;
  const auto scheme = recall_scheme(form, residual);
  scheme->to(place.dtype);
  scheme->to(place.device);
  const Tensor queries = placed(one_hot(batch, vocabulary, recall_sharpness(batch.positions)), place),
               x = placed(one_hot(batch, vocabulary, 1), place);
  return outcome_of(batch, attend(queries, x, x, Stages::of({scheme.get()}), place));
}

RecallOutcome recall_by_two_layers(const Batch& batch, index_t vocabulary, SecondKey key, const RecallPlace& place) {
  const NoGrad no_grad;
  const index_t length = batch.positions;
  const double beta = recall_sharpness(length);
  const auto positions = [&](const Move& move) {  // [t t], the same for every sequence
    const Tensor one = moving(length, length, {move});
    return placed(raw::copy(raw::expand(one, {batch.sequences, 1, length, length})), place);
  };
  const Tensor x = placed(one_hot(batch, vocabulary, 1), place);
  const Tensor previous = attend(positions({0, 1, length - 1, beta}), positions({0, 0, length}), x, Stages(), place);
  const Tensor keys = key == SecondKey::as_printed ? previous : previous - x;
  return outcome_of(batch, attend(x * beta, keys, x, Stages(), place));
}

RecallModel::RecallModel(int layers, index_t vocabulary, index_t length, const std::string& executor)
    : vocabulary_(vocabulary), embedding_(vocabulary, layers == 1 ? 2 * vocabulary : 3 * vocabulary + length) {
  const index_t v = vocabulary, wide = embedding_.weight().size(1);
  const double beta = recall_sharpness(length) * std::sqrt(static_cast<double>(wide));  // attention divides by sqrt(d)
  child("embedding", embedding_);
  set(*this, "embedding.weight", moving(v, wide, {{0, 0, v}}));
  const auto add_layer = [&](const std::string& name, const std::vector<SchemeSpec>& scheme,
                             const std::vector<Move>& query, const std::vector<Move>& key, const Move& value) {
    const AttentionOptions options{.dim = wide, .heads = 1, .length = length, .executor = executor, .bias = false};
    child(name, *layers_.emplace_back(std::make_unique<Attention>(options, scheme)));
    set(*this, name + ".query.weight", moving(wide, wide, query));
    set(*this, name + ".key.weight", moving(wide, wide, key));
    set(*this, name + ".value.weight", moving(wide, wide, {value}));
    set(*this, name + ".output.weight", moving(wide, wide, {{0, 0, wide}}));
  };
  if (layers == 1) {
    add_layer(
        "attention", parse_schemes("cdape(none, width=2, kernel=3)"), {{0, 0, wide, beta}}, {{0, 0, wide}}, {0, v, v});
    set_kernels(*this, "attention.position.");
    return;
  }
  const index_t position = v, previous = v + length, answer = 2 * v + length;  // first coordinates; the tokens' is 0
  positions_ = parse_schemes("absolute")[0].make({.dim = wide, .heads = 1, .length = length});
  child("position", *positions_);
  set(*this, "position.table", moving(length, wide, {{position, 0, length}}));
  add_layer(
      "first", {}, {{position + 1, position, length - 1, beta}}, {{position, position, length}}, {0, previous, v});
  add_layer("second", {}, {{0, 0, v, beta}}, {{previous, 0, v}, {0, 0, v, -1}}, {0, answer, v});
}

Tensor RecallModel::operator()(const Tensor& tokens) const {
  const Sequence sequence = Sequence::run(tokens.size(1));
  Tensor x = embedding_(tokens);
  if (positions_) x = dynamic_cast<const EmbedsTokens&>(*positions_).embed(x, sequence.positions);
  for (const auto& attention : layers_) x = x + (*attention)(x, sequence);
  return slice(x, -1, x.size(-1) - vocabulary_, x.size(-1));
}

}  // namespace whence::tasks
