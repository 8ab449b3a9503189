// Models as Hugging Face's transformers name and lay them out: FOLDER/config.json, and FOLDER/model.safetensors or the
// files that FOLDER/model.safetensors.index.json lists.
//
//   ours                                    GPT-2                                GPT-NeoX
//   embedding.weight                        transformer.wte.weight               gpt_neox.embed_in.weight
//   position.table                          transformer.wpe.weight               -
//   blocks.N.norm1, norm2                   h.N.ln_1, ln_2                       layers.N.input_layernorm,
//                                                                                post_attention_layernorm
//   blocks.N.attention.query, key, value    h.N.attn.c_attn [in, q|k|v]          layers.N.attention.query_key_value
//                                                                                [heads, q|k|v, head dim]
//   blocks.N.attention.output               h.N.attn.c_proj [in, out]            layers.N.attention.dense
//   blocks.N.mlp.in, out                    h.N.mlp.c_fc, c_proj [in, out]       layers.N.mlp.dense_h_to_4h, dense_4h_to_h
//   norm                                    ln_f                                 final_layer_norm
//   head.weight                             lm_head.weight                       embed_out.weight
//
// Weights are [out, in] unless it says otherwise.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "nn/transformer.h"

namespace whence::language {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct ForeignModel {
  TransformerOptions options;
  NamedTensors weights;              // f32, by our paths
  std::vector<std::string> ignored;  // tensors that are no parameters: masks and frequencies that we compute
};

[[nodiscard]] bool is_hugging_face(const std::string& folder);

// FileError, naming the field of config.json and what is supported, for a model that ours cannot be; or the tensor that
// is missing, left over, of another shape or not finite. SystemError when a file cannot be read.
[[nodiscard]] ForeignModel read_hugging_face(const std::string& folder);

// config.json and model.safetensors, of a model whose scheme and options GPT-2 or GPT-NeoX have; else InputError naming
// the option. The folder exists.
void write_hugging_face(
    const std::string& folder, const TransformerOptions& options, const std::vector<Module::Parameter>& weights);

}  // namespace whence::language
