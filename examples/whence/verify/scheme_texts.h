// Every scheme text worth checking, made from the registry: registering a scheme adds it.
#pragma once

#include <string>
#include <vector>

#include "tensor/shape.h"

namespace whence {

// Canonical, each once: every scheme bare (over every scheme, where it takes one inside), with each
// single option away from its default, and its registered variants. Whole numbers become at least
// `length`. The schemes refuse some of these.
[[nodiscard]] std::vector<std::string> scheme_texts(index_t length);

// Sums of two bare schemes, each pair once. Refusals as above.
[[nodiscard]] std::vector<std::string> scheme_sums();

// What a registration promises to run: bare names and variants.
[[nodiscard]] std::vector<std::string> promised_texts();

}  // namespace whence
