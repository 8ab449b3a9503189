#include "examples/whence/tasks/recall_construction.h"

#include <algorithm>
#include <cmath>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "nn/attention/attention.h"
#include "nn/layers/embedding.h"
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

// What a cdape scheme adds to the scores, without them.
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

std::unique_ptr<PositionalScheme> cdape() {
  auto scheme = parse_schemes("cdape(none, width=2, kernel=3)")[0].make({.dim = 1, .heads = 1});
  set_recall_kernels(*scheme, "");
  return scheme;
}

void set(const Module& module, const std::string& path, const Tensor& value) {
  for (const Module::Parameter& parameter : module.parameters()) {
    if (parameter.path != path) continue;
    raw::copy_into(raw::cast(value, parameter.tensor.dtype()), parameter.tensor.detach());
    return;
  }
  throw Error("recall: parameter ", path, " wanted; the model has none of that path");
}

// [rows columns] with `value` at (k + down, k + right).
Tensor diagonal(index_t rows, index_t columns, double value, index_t down = 0, index_t right = 0) {
  const Tensor matrix = Tensor::zeros({rows, columns});
  for (index_t k = 0; k + down < rows && k + right < columns; ++k)
    matrix.data<float>()[(k + down) * columns + k + right] = static_cast<float>(value);
  return matrix;
}

// A square matrix that scales `count` numbers and moves them: coordinates from + k to to + k.
struct Move {
  index_t from, to, count;
  double times;
};
Tensor moving(index_t wide, const std::vector<Move>& moves) {
  const Tensor matrix = Tensor::zeros({wide, wide});
  for (const Move& move : moves)
    for (index_t k = 0; k < move.count; ++k)
      matrix.data<float>()[(move.to + k) * wide + move.from + k] = static_cast<float>(move.times);
  return matrix;
}

RecallOutcome outcome_of(const Batch& batch, const Tensor& mixed) {  // [b 1 t v]: the mass on each token
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

}  // namespace

std::unique_ptr<PositionalScheme> recall_scheme(KernelForm form, bool residual) {
  if (form == KernelForm::linear) return std::make_unique<LinearKernel>(residual);
  if (residual) return cdape();
  return std::make_unique<WithoutResidual>(cdape());
}

void set_recall_kernels(const Module& module, const std::string& path) {
  const std::string prefix = path.empty() ? "" : path + ".";
  const double half = 1 / 1.01;
  set(module, prefix + "hidden.weight", Tensor::of({1, -1, 0, -1, 1, 0}, {2, 1, 1, 3}));
  set(module, prefix + "hidden.bias", Tensor::zeros({2}));
  set(module, prefix + "output.weight", Tensor::of({0, half, 0, 0, -half, 0}, {1, 2, 1, 3}, DType::f64));
  set(module, prefix + "output.bias", Tensor::zeros({1}));
}

double recall_sharpness(index_t length) { return std::log(static_cast<double>(length)) + 4; }

RecallOutcome recall_by_construction(
    const Batch& batch, index_t vocabulary, KernelForm form, bool residual, const RecallPlace& place) {
  const NoGrad no_grad;
  const auto scheme = recall_scheme(form, residual);
  scheme->to(place.dtype);
  scheme->to(place.device);
  const auto placed = [&](double value) {
    return raw::to_device(raw::cast(one_hot(batch, vocabulary, value), place.dtype), place.device);
  };
  const Stages stages = Stages::of({scheme.get()});
  AttendInputs inputs{
      Tensor(), placed(recall_sharpness(batch.positions)), placed(1), placed(1), Sequence::run(batch.positions)};
  inputs.scale = 1;  // beta is in the queries
  return outcome_of(batch, raw::to_device(place.executor.attend(inputs, stages), Device::cpu()));
}

RecallOutcome recall_by_two_layers(const Batch& batch, index_t vocabulary, SecondKey key, const RecallPlace& place) {
  const NoGrad no_grad;
  const index_t length = batch.positions;
  const double beta = recall_sharpness(length);
  const auto placed = [&](const Tensor& x) { return raw::to_device(raw::cast(x, place.dtype), place.device); };
  const auto positions = [&](const Tensor& one) {  // [t t] for every sequence
    return placed(raw::copy(raw::expand(one, {batch.sequences, 1, length, length})));
  };
  const Tensor x = placed(one_hot(batch, vocabulary, 1));
  const auto attend = [&](const Tensor& query, const Tensor& keys) {
    AttendInputs inputs{Tensor(), query, keys, x, Sequence::run(length)};
    inputs.scale = 1;  // beta is in the queries
    return place.executor.attend(inputs, Stages());
  };
  const Tensor previous =
      attend(positions(diagonal(length, length, beta, 1, 0)), positions(diagonal(length, length, 1)));
  const Tensor keys = key == SecondKey::as_printed ? previous : previous - x;
  return outcome_of(batch, raw::to_device(attend(x * beta, keys), Device::cpu()));
}

struct RecallModel::Parts {
  index_t vocabulary;
  Embedding embedding;
  Attention attention;
};

RecallModel::~RecallModel() = default;

RecallModel::RecallModel(index_t vocabulary, index_t length, const std::string& executor)
    : parts_(new Parts{vocabulary, Embedding(vocabulary, 2 * vocabulary),
          Attention({.dim = 2 * vocabulary, .heads = 1, .length = length, .executor = executor, .bias = false},
              parse_schemes("cdape(none, width=2, kernel=3)"))}) {
  child("embedding", parts_->embedding);
  child("attention", parts_->attention);
  const index_t v = vocabulary, wide = 2 * v;
  const double beta = recall_sharpness(length) * std::sqrt(static_cast<double>(wide));  // attention divides by sqrt(d)
  set(*this, "embedding.weight", diagonal(v, wide, 1));
  set(*this, "attention.query.weight", diagonal(wide, wide, beta));
  set(*this, "attention.key.weight", diagonal(wide, wide, 1));
  set(*this, "attention.value.weight", diagonal(wide, wide, 1, v, 0));  // coordinate t to v + t
  set(*this, "attention.output.weight", diagonal(wide, wide, 1));
  set_recall_kernels(*this, "attention.position");
}

Tensor RecallModel::operator()(const Tensor& tokens) const {
  const Tensor x = parts_->embedding(tokens);                                     // [b t 2v]
  const Tensor stream = x + parts_->attention(x, Sequence::run(tokens.size(1)));  // x_N stays in the first half
  return slice(stream, -1, parts_->vocabulary, 2 * parts_->vocabulary);           // [b t v]
}

struct TwoLayerRecallModel::Parts {
  index_t vocabulary;
  Embedding embedding;
  std::unique_ptr<PositionalScheme> positions;
  Attention first, second;
};

TwoLayerRecallModel::~TwoLayerRecallModel() = default;

TwoLayerRecallModel::TwoLayerRecallModel(index_t vocabulary, index_t length, const std::string& executor) {
  const index_t v = vocabulary, wide = 3 * v + length;
  const index_t position = v, previous = v + length, answer = 2 * v + length;  // where each begins; tokens at 0
  const AttentionOptions options{.dim = wide, .heads = 1, .length = length, .executor = executor, .bias = false};
  parts_.reset(
      new Parts{v, Embedding(v, wide), parse_schemes("absolute")[0].make({.dim = wide, .heads = 1, .length = length}),
          Attention(options, {}), Attention(options, {})});
  child("embedding", parts_->embedding);
  child("position", *parts_->positions);
  child("first", parts_->first);
  child("second", parts_->second);
  const double beta = recall_sharpness(length) * std::sqrt(static_cast<double>(wide));  // attention divides by sqrt(d)
  const auto set_layer = [&](const std::string& layer, const std::vector<Move>& query, const std::vector<Move>& key,
                             const Move& value) {
    set(*this, layer + ".query.weight", moving(wide, query));
    set(*this, layer + ".key.weight", moving(wide, key));
    set(*this, layer + ".value.weight", moving(wide, {value}));
    set(*this, layer + ".output.weight", moving(wide, {{0, 0, wide, 1}}));
  };
  set(*this, "embedding.weight", diagonal(v, wide, 1));
  set(*this, "position.table", diagonal(length, wide, 1, 0, position));
  set_layer(
      "first", {{position + 1, position, length - 1, beta}}, {{position, position, length, 1}}, {0, previous, v, 1});
  set_layer("second", {{0, 0, v, beta}}, {{previous, 0, v, 1}, {0, 0, v, -1}}, {0, answer, v, 1});
}

Tensor TwoLayerRecallModel::operator()(const Tensor& tokens) const {
  const Sequence sequence = Sequence::run(tokens.size(1));
  const auto& positions = dynamic_cast<const EmbedsTokens&>(*parts_->positions);
  Tensor x = positions.embed(parts_->embedding(tokens), sequence.positions);  // [b t 3v+n]
  x = x + parts_->first(x, sequence);
  x = x + parts_->second(x, sequence);
  return slice(x, -1, x.size(-1) - parts_->vocabulary, x.size(-1));  // [b t v]
}

}  // namespace whence::tasks
