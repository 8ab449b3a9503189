// A trained language model as a folder: training writes it, and sampling reads it.
//   FOLDER/run.json              run/run_record.h; with language_facts(): the model's options, the tokeniser's hash
//   FOLDER/tokeniser.json        the tokeniser
//   FOLDER/weights.safetensors   parameters by path
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/language/tokeniser.h"
#include "examples/whence/run/run_record.h"
#include "nn/io/safetensors.h"
#include "nn/layers/module.h"
#include "nn/transformer.h"

namespace whence::language {

using Facts = std::vector<std::pair<std::string, std::string>>;

inline constexpr const char* tokeniser_file = "tokeniser.json";

// Name of the study that trains on text, as typed and recorded.
inline constexpr const char* text_study = "lm";
[[nodiscard]] inline bool is_of_text(const RunRecord& record) { return record.subject == text_study; }

// For RunRecord::facts: {"model.vocabulary", "256"}, ..., {"model.scheme", "rope"},
// {"tokeniser.kind", "bytes"}, {"tokeniser.sha256", "..."}.
[[nodiscard]] Facts language_facts(const TransformerOptions& model, const Tokeniser& tokeniser);
// Reads a model's options from such facts. FileError with `place` when one is missing, unknown, or of another kind.
[[nodiscard]] TransformerOptions model_of(const Facts& facts, const std::string& place);

struct SavedModel {
  std::unique_ptr<Transformer> model;
  TokeniserPointer tokeniser;
};

// Builds the model without its weights, for a caller that loads a checkpoint's, say. Throws as the next function.
[[nodiscard]] SavedModel language_model_without_weights(const std::string& folder, const std::string& executor = {});

// `executor`: another than in training; empty: the same. SystemError when a file is missing. FileError when a file is
// damaged, the tokeniser is not the model's, or weights do not fit.
[[nodiscard]] SavedModel load_language_model(const std::string& folder, const std::string& executor = {});

// Initial weights from another run, which may have another scheme: DroPE, position interpolation.
class FirstWeights {
 public:
  // InputError if weights of the run mean something else in such a model; FileError and SystemError as from the readers
  // of its files.
  FirstWeights(const std::string& folder, const TransformerOptions& model);
  const std::string& hash() const { return hash_; }  // SHA-256 of names, kinds, shapes and numbers

  // Copies tensors of the same name and shape, and returns a line about them. A positional parameter that only one model
  // has, or that differs in size, keeps its initial value or is dropped. For any other, an InputError names it.
  std::string take(const std::vector<Module::Parameter>& into) const;

 private:
  std::string folder_, hash_;
  NamedTensors tensors_;  // by our paths
};

}  // namespace whence::language
