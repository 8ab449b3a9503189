#include "examples/whence/machine/named_models.h"

#include "tensor/error.h"

namespace whence {
namespace {

// Pre-LN, tanh GELU, tied, dropout 0.1.
TransformerOptions gpt2_124m() {
  return {.vocabulary = 50257,
      .length = 1024,
      .dim = 768,
      .layers = 12,
      .heads = 12,
      .scheme = "absolute",
      .dropout = 0.1,
      .pattern_dropout = 0.1};
}

// Pre-LN, biases, untied, no dropout. 50304 rows:
// the GPT-2 vocabulary of 50257, rounded up to a multiple of 128 as NeoX does.
TransformerOptions neox(index_t dim, index_t layers, index_t heads) {
  return {.vocabulary = 50304,
      .length = 512,
      .dim = dim,
      .layers = layers,
      .heads = heads,
      .activation = Activation::gelu_erf,
      .initialisation = Initialisation::neox,
      .scheme = "rope",
      .tied = false};
}

// RMS norm, SwiGLU, no biases, untied.
TransformerOptions llama_20m() {
  return {.vocabulary = 32000,
      .length = 4096,
      .dim = 256,
      .layers = 4,
      .heads = 8,
      .hidden = 768,
      .activation = Activation::swiglu,
      .norm = NormKind::rms,
      .initialisation = Initialisation::llama,
      .scheme = "rope",
      .bias = false,
      .tied = false};
}

// Like llama, with 9 query heads for 3 heads of keys and values, tied, and a slower rope; 8192 tokens.
TransformerOptions smollm2_135m() {
  TransformerOptions options = llama_20m();
  options.vocabulary = 49152, options.length = 8192, options.dim = 576, options.layers = 30;
  options.heads = 9, options.kv_heads = 3, options.hidden = 1536;
  options.scheme = "rope(base=100000)", options.tied = true;
  return options;
}

// Vocabulary: for the counting task with five variables.
TransformerOptions ram() {
  return {.vocabulary = 32,
      .length = 512,
      .dim = 256,
      .layers = 4,
      .heads = 4,
      .activation = Activation::relu,
      .norm_place = NormPlace::after,
      .initialisation = Initialisation::ram,
      .scheme = "absolute",
      .dropout = 0.1,
      .pattern_dropout = 0.1,
      .hidden_dropout = 0.1};
}

// Post-LN, every token sees every other, embedding times sqrt(dim), attention projections without bias. Vocabulary: for
// the largest task.
TransformerOptions che() {
  return {.vocabulary = 12,
      .length = 40,
      .dim = 256,
      .layers = 5,
      .heads = 8,
      .activation = Activation::relu,
      .norm_place = NormPlace::after,
      .initialisation = Initialisation::che,
      .scheme = "sinusoidal(layout=concat)",
      .causal = false,
      .attention_bias = false,
      .tied = false,
      .scale_embedding = true,
      .dropout = 0.1};
}

}  // namespace

const std::vector<NamedModel>& named_models() {
  static const std::vector<NamedModel> models{{"gpt2-124m", "GPT-2 small: pre-LN, GELU, tied", gpt2_124m()},
      {"neox-125m", "GPT-NeoX style, the DAPE papers' 125M: pre-LN, untied, their initialisation", neox(768, 12, 12)},
      {"neox-350m", "the DAPE papers' 350M", neox(1024, 24, 16)},
      // The papers' configurations end at 350M (DAPE, Table 3). These are the sizes of GPT-NeoX, with which they train
      // (Black et al. 2022; its 2-7B.yml and 6-7B.yml), and of the paper after which both name their models (Brown et
      // al. 2020, Table 2.1).
      {"neox-2.7b", "the DAPE papers' 2.7B, of GPT-NeoX's sizes", neox(2560, 32, 32)},
      {"neox-6.7b", "the DAPE papers' 6.7B, likewise", neox(4096, 32, 32)},
      {"llama-20m", "Llama-2 style, CoPE's code model: RMS norm, SwiGLU, untied", llama_20m()},
      {"smollm2-135m", "of SmolLM2-135M's sizes: as Llama, keys and values shared by three heads, tied",
          smollm2_135m()},
      {"ram", "CoPE's counting model: post-LN, ReLU, tied", ram()},
      {"che", "the bidirectional encoder of the Chomsky-hierarchy tasks: post-LN", che()}};
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

}  // namespace whence
