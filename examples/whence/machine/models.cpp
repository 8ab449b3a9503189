#include "examples/whence/machine/models.h"

#include <algorithm>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "nn/attention/plan.h"
#include "nn/layers/module.h"
#include "tensor/error.h"

namespace whence {
namespace {

TransformerOptions sized(
    index_t vocabulary, index_t length, index_t dim, index_t layers, index_t heads, const char* scheme) {
  TransformerOptions model;
  model.vocabulary = vocabulary, model.length = length, model.dim = dim, model.layers = layers, model.heads = heads;
  model.scheme = scheme;
  return model;
}

// Pre-LN, biases, untied, no dropout. 50304 rows: the GPT-2 vocabulary of 50257, rounded up to a multiple of 128 as NeoX
// does.
TransformerOptions neox(index_t dim, index_t layers, index_t heads) {
  TransformerOptions model = sized(50304, 512, dim, layers, heads, "rope");
  model.activation = Activation::gelu_erf, model.initialisation = Initialisation::neox, model.tied = false;
  return model;
}

std::vector<NamedModel> made_models() {
  // Pre-LN, tanh GELU, tied (Radford et al. 2019); CoPE's WikiText-103 model (Golovneva et al. 2024, App. D).
  TransformerOptions gpt2 = sized(50257, 1024, 768, 12, 12, "absolute");
  gpt2.dropout = gpt2.pattern_dropout = 0.1;
  TransformerOptions llama = sized(32000, 4096, 256, 4, 8, "rope");
  llama.hidden = 768, llama.activation = Activation::swiglu, llama.norm = NormKind::rms;
  llama.initialisation = Initialisation::llama, llama.bias = llama.tied = false;
  TransformerOptions smollm2 = sized(49152, 8192, 576, 30, 9, "rope(base=100000)");  // Allal et al. 2025
  smollm2.kv_heads = 3, smollm2.hidden = 1536, smollm2.activation = llama.activation, smollm2.norm = llama.norm;
  smollm2.initialisation = llama.initialisation, smollm2.bias = false;
  TransformerOptions ram = sized(32, 512, 256, 4, 4, "absolute");  // the counting task with five variables
  ram.activation = Activation::relu, ram.norm_place = NormPlace::after, ram.initialisation = Initialisation::ram;
  ram.dropout = ram.pattern_dropout = ram.hidden_dropout = 0.1;
  // Every token sees every other, attention projections without bias, embedding times sqrt(dim) (Deletang et al. 2023;
  // Ruoss et al. 2023). The vocabulary is that of the largest task.
  TransformerOptions che = sized(12, 40, 256, 5, 8, "sinusoidal(layout=concat)");
  che.activation = Activation::relu, che.norm_place = NormPlace::after, che.initialisation = Initialisation::che;
  che.causal = che.attention_bias = che.tied = false, che.scale_embedding = true, che.dropout = 0.1;
  return {{"gpt2-124m", "GPT-2 small: pre-LN, GELU, tied", gpt2},
      {"neox-125m", "GPT-NeoX style, the DAPE papers' 125M: pre-LN, untied, their initialisation", neox(768, 12, 12)},
      {"neox-350m", "the DAPE papers' 350M", neox(1024, 24, 16)},
      // The papers' configurations end at 350M (DAPE, Table 3). These are the sizes of GPT-NeoX, with which they train
      // (Black et al. 2022; its 2-7B.yml and 6-7B.yml), and of the paper after which both name their models (Brown et
      // al. 2020, Table 2.1).
      {"neox-2.7b", "the DAPE papers' 2.7B, of GPT-NeoX's sizes", neox(2560, 32, 32)},
      {"neox-6.7b", "the DAPE papers' 6.7B, likewise", neox(4096, 32, 32)},
      {"llama-20m", "Llama-2 style, CoPE's code model: RMS norm, SwiGLU, untied", llama},
      {"smollm2-135m", "of SmolLM2-135M's sizes: as Llama, keys and values shared by three heads, tied", smollm2},
      {"ram", "CoPE's counting model: post-LN, ReLU, tied", ram},
      {"che", "the bidirectional encoder of the Chomsky-hierarchy tasks: post-LN", che}};
}

PlannedOperations combined(const PlannedOperations& a, double times, const PlannedOperations& b) {
  return {a.products + times * b.products, a.others + times * b.others};
}

template <class Work> PlannedOperations counted(const Work& work) {
  const PlannedOperations before = planned_operations();
  work();
  return combined(planned_operations(), -1, before);
}

PlannedOperations of_model(TransformerOptions options, index_t length) {
  options.executor = "reference";
  options.length = std::max(options.length, length);
  const PlannedModules planned;
  const Transformer model(options);
  std::vector<Tensor> parameters;
  for (const Module::Parameter& parameter : model.parameters()) parameters.push_back(parameter.tensor);
  const Tensor tokens = Tensor::zeros({1, length}, DType::i64);
  return counted([&] {
    const Tensor logits = model(tokens, {.training = true});
    (void)grad(cross_entropy_sum(logits, tokens), {}, parameters, {.allow_unused = true});
  });
}

// Counts one layer.
PlannedOperations of_bare_attention(const TransformerOptions& options, index_t length) {
  const Device device = Device::planned(Device::cpu());
  const auto operand = [&](index_t heads) {
    return requires_grad(Tensor::empty({1, heads, length, options.dim / options.heads}, DType::f32, device));
  };
  const index_t key_heads = options.key_heads();
  AttendInputs inputs{{}, operand(options.heads), operand(key_heads), operand(key_heads),
      Sequence::run(length, options.causal).on(device)};
  if (options.pattern_dropout > 0) inputs.dropout = PatternDropout{options.pattern_dropout, Stream(0, "planned")};
  return counted([&] {
    const Tensor mixed = attend(inputs, Stages(), Executor::reference);
    const Tensor seed = Tensor::empty(mixed.shape(), mixed.dtype(), device);
    (void)grad(mixed, seed, {inputs.query, inputs.key, inputs.value});
  });
}

}  // namespace

const std::vector<NamedModel>& named_models() {
  static const std::vector<NamedModel> models = made_models();
  return models;
}

TransformerOptions named_model(const std::string& name, const std::string& scheme) {
  std::vector<std::string> names;
  for (const NamedModel& model : named_models()) {
    names.push_back(model.name);
    if (model.name != name) continue;
    TransformerOptions options = model.options;
    if (!scheme.empty()) options.scheme = scheme;
    return options;
  }
  refuse_name("model", name, names);
}

TrainingOperations training_operations(const TransformerOptions& model, index_t length) {
  TransformerOptions bare = model;
  bare.scheme = "none";
  const PlannedOperations whole = of_model(model, length), without = of_model(bare, length),
                          attention = of_bare_attention(model, length);
  const double layers = static_cast<double>(model.layers), share = 1 / static_cast<double>(length);
  const auto per_token = [&](const PlannedOperations& a) { return combined({}, share, a); };
  return {per_token(combined(without, -layers, attention)), per_token(combined({}, layers, attention)),
      per_token(combined(whole, -1, without))};
}

}  // namespace whence
