// Models as Hugging Face's transformers name and lay them out: FOLDER/config.json, and FOLDER/model.safetensors or the
// files that FOLDER/model.safetensors.index.json lists.
// (Which of their tensors a parameter of ours is: `names` in hugging_face.cpp.)
#pragma once

#include "nn/io/safetensors.h"
#include "nn/transformer.h"

namespace whence::language {

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
