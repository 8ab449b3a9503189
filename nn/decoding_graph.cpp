// Decoding on a GPU: the step of one token as a graph, recorded at the second token and replayed from then on. The tokens
// and their position are data on the device. The host does its part for every position up to the capacity, with the code
// of any run: embeddings, rotations and terms are those of all rows, of which the device picks its own. Only tiles know
// a row that the host does not (TiledCall::row).
#include <array>
#include <utility>

#include "autograd/observer.h"
#include "nn/attention/plan.h"
#include "nn/decoding.h"
#include "tensor/backend.h"
#include "tensor/device/device_runtime.h"
#include "tensor/error.h"
#include "tensor/raw.h"
#include "tensor/tiles/operands.h"

namespace whence {
namespace {

// Attends with the whole buffers, in which the new tokens are row row[0].
struct GraphCache final : AttentionCache {
  GraphCache(std::vector<CachedLayer>& all, index_t most, const Tensor& at) : layers(all), capacity(most), row(at) {}
  std::vector<CachedLayer>& layers;
  index_t capacity;
  Tensor row;  // i64 [1], on the device

  // Returns this row of x, which has all rows along `axis`.
  Tensor own_row(const Tensor& x, int axis) const {
    if (x.strides()[axis] == 0) return raw::slice(x, axis, 0, 1);
    Shape shape = x.shape();
    shape[axis] = 1;
    const Tensor own = Tensor::like(x, shape);
    kernels(x).copy_rows({&x, 1}, {&own, 1}, axis - x.rank(), row);
    return own;
  }
  Tensor at_every_row(const Tensor& x) const { return expand(x, {x.size(0), x.size(1), capacity, x.size(3)}); }

  std::array<Tensor, 3> project(
      index_t layer, const Tensor& x, const std::array<Projection, 3>& by, index_t heads) override {
    const CachedLayer& mine = layers[static_cast<std::size_t>(layer)];
    if (!mine.key.defined()) return {};
    std::vector<Tensor> weights, biases;
    for (const Projection& each : by) {
      weights.push_back(raw::transpose(each.weight));
      if (each.bias.defined()) biases.push_back(each.bias);
    }
    const std::array made{Tensor::like(x, {x.size(0), heads, 1, mine.key.size(3)}), mine.key, mine.value};
    const Tensor rows = raw::reshape(x, {x.size(0), x.size(2)});
    return kernels(x).matmul_beside(rows, weights, biases, made, row) ? made : std::array<Tensor, 3>();
  }

  Tensor attend(index_t layer, AttendInputs inputs, const Stages& stages, const AttendPlan& wanted) override {
    for (const PositionalScheme* scheme : stages.schemes)
      if (!scheme->claims().row_local)
        throw Error("a scheme that computes earlier rows again given; one row at a time required");
    const auto require = [](const std::string& refused) {
      if (!refused.empty()) throw Error(refused + "; attention in tiles required");
    };
    if (wanted.executor == Executor::reference || wanted.executor == Executor::strips)
      require(to_text("executor ", name_of(wanted.executor), " given"));
    require(refusal_of(Executor::tiled, stages)), require(refusal_on_gpu(stages));

    CachedLayer& mine = layers[static_cast<std::size_t>(layer)];
    std::vector<Tensor> from, to;
    const auto keep = [&](Tensor& buffer, Tensor& added) {
      if (buffer.identity() == added.identity()) return;  // written by project()
      reserve_tokens(buffer, added, capacity);
      from.push_back(std::exchange(added, buffer).detach()), to.push_back(buffer);
    };
    keep(mine.key, inputs.key), keep(mine.value, inputs.value);
    if (stages.reads_x())
      keep(mine.x, inputs.x);
    else
      inputs.x = {};
    if (!from.empty()) kernels(row).copy_rows(from, to, -2, row);

    inputs.query = at_every_row(inputs.query);
    const AttendContext all = rotated_context(inputs, stages);
    TileTerms terms = terms_of(all, stages);
    for (std::size_t k = 0; k < terms.operands.size(); ++k)
      each_axis(TiledCall::info[k].axes, [&](char letter, int axis, bool) {
        if (letter == 'i' && terms.operands[k].defined()) terms.operands[k] = own_row(terms.operands[k], axis);
      });
    terms.at.row = row, terms.at.first_row = capacity - 1;
    require(refusal_of(terms, row.device()));
    const Tensor output = run_tiles(std::move(terms));
    return stages.outputs.empty() ? output : own_row(output_of(at_every_row(output), all, stages), 2);
  }
};

}  // namespace

// The graph contains the address of this object.
struct Decoding::Graph {
  const Transformer& model;
  Pass pass;
  index_t capacity;
  std::vector<CachedLayer> layers;
  Tensor inputs;      // i64 [b+1]: the tokens, and their position
  Sequence sequence;  // of every position; a graph covers the lengths from now to the next at which rows change
  RecordedStep logits;

  Graph(const Decoding& of, index_t batch)
      : model(of.model_),
        pass(of.pass_),
        capacity(of.capacity_),
        layers(of.layers_),
        inputs(Tensor::zeros({batch + 1}, DType::i64, model.device())),
        sequence(Sequence::continued(0, capacity, capacity, of.present_)),
        logits(model.device(), [this] { return std::vector<Tensor>{compute()}; }) {
    sequence.positions.tokens = of.padding_;
    for (index_t& count : sequence.positions.tokens) count = of.filled_ + 1 - count;
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Tensor compute() {
    std::vector<CachedLayer> now = layers;
    const index_t batch = inputs.size(0) - 1;
    GraphCache cache(now, capacity, raw::slice(inputs, 0, batch, batch + 1));
    const Tensor tokens = raw::expand(raw::reshape(raw::slice(inputs, 0, 0, batch), {batch, 1}), {batch, capacity});
    Residual x{cache.own_row(model.embedded(tokens, sequence, pass), 1)};
    for (index_t layer = 0; layer < model.options().layers; ++layer) x = model.block(layer)(x, sequence, pass, &cache);
    const Tensor made = model.logits_of(x);
    layers = std::move(now);
    return made;
  }
};

Tensor Decoding::by_graph(const Tensor& tokens) {
  if (model_.device().is_cpu()) no_graph_ = "the cpu given; a GPU required";
  if (!no_graph_.empty() || detail::observer) return {};  // observers see nothing of a replay
  const index_t batch = tokens.size(0);
  const Tensor given = raw::to_device(tokens, Device::cpu());  // throws what was wrong with earlier tokens
  if (graph_ && graph_->inputs.device() != model_.device()) graph_.reset();
  try {
    if (!graph_) graph_ = std::make_shared<Graph>(*this, batch);
    const Tensor host = Tensor::empty({batch + 1}, DType::i64);
    raw::copy_into(raw::cast(raw::reshape(given, {batch}), DType::i64), raw::slice(host, 0, 0, batch));
    host.data<index_t>()[batch] = filled_;
    backend_of(model_.device())
        .memory->copy_from_cpu(
            host.bytes(), graph_->inputs.bytes(), static_cast<std::size_t>(batch + 1) * sizeof(index_t));
    const Tensor logits = raw::copy(graph_->logits.run()[0]);  // a copy, because the next step uses the same memory
    layers_ = graph_->layers;
    return logits;
  } catch (const Error& error) {
    if (graph_ && graph_->logits.recorded()) throw;
    no_graph_ = error.what();  // so far only things that may be done again
    graph_.reset();
    return {};
  }
}

}  // namespace whence
