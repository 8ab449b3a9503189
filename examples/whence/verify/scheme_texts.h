// All scheme texts to check, made from the registry, so that registering a scheme adds its texts.
#pragma once

#include <string>
#include <vector>

#include "tensor/shape.h"

namespace whence {

// Returns canonical texts, each once: every scheme bare (over every base, if it takes one), with each single option away
// from its default, and its registered variants. Integer options become at least `length`. The schemes refuse some.
[[nodiscard]] std::vector<std::string> scheme_texts(index_t length);

// Returns sums of two bare schemes, each pair once. The schemes refuse some.
[[nodiscard]] std::vector<std::string> scheme_sums();

// Returns the texts that a registration promises to run: bare names and variants.
[[nodiscard]] std::vector<std::string> promised_texts();

}  // namespace whence
