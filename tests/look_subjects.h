// Small models with a sequence to look at.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "examples/look/subject.h"
#include "tensor/error.h"
#include "tests/models.h"

namespace whence::test {

inline look::Subject subject_with(const TransformerOptions& options, index_t length, bool random = true) {
  look::Subject subject;
  subject.title = options.scheme;
  subject.model = std::make_unique<Transformer>(options);
  if (random)
    randomise(*subject.model);
  else
    subject.model->initialise(1), subject.model->to(DType::f64);
  subject.tokens = random_tokens(1, length, options.vocabulary);
  subject.targets = random_tokens(1, length, options.vocabulary, 2);
  subject.texts.assign(static_cast<std::size_t>(length), "a");
  subject.answers.assign(static_cast<std::size_t>(length), "b");
  return subject;
}

// Nothing where the model refuses the scheme.
inline std::optional<look::Subject> subject_of_scheme(const std::string& text, bool causal) {
  TransformerOptions options = small(text);
  options.causal = causal;
  try {
    return subject_with(options, 7);
  } catch (const InputError&) { return std::nullopt; }
}

}  // namespace whence::test
