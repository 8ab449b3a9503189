// The papers' models by name, as values of TransformerOptions.
//   gpt2-124m   GPT-2 small (Radford et al. 2019); CoPE's WikiText-103 model (Golovneva et al. 2024, App. D)
//   neox-125m   GPT-NeoX style, the DAPE papers' 125M (Zheng et al. 2024)          neox-350m   their 350M
//   neox-2.7b   their 2.7B                                                         neox-6.7b   their 6.7B
//   llama-20m   Llama-2 style, CoPE's code model
//   smollm2-135m   the sizes of SmolLM2-135M (Allal et al. 2025): Llama style with grouped-query attention
//   ram         CoPE's counting model: post-LN, tied, ReLU
//   che         the bidirectional encoder of the Chomsky-hierarchy tasks (Deletang et al. 2023; Ruoss et al. 2023)
#pragma once

#include <string>
#include <vector>

#include "nn/transformer.h"

namespace whence {

struct NamedModel {
  std::string name;
  std::string description;     // one line
  TransformerOptions options;  // with the scheme of the paper's baseline
};

const std::vector<NamedModel>& named_models();

// Throws InputError with the nearest name if `name` is unknown. `scheme`: the grammar of nn/scheme.h; empty: the
// model's own.
TransformerOptions named_model(const std::string& name, const std::string& scheme = {});

}  // namespace whence
