// Every scheme text worth checking, made from the registry: a scheme that a user adds is in it by being registered.
#pragma once

#include <string>
#include <vector>

#include "tensor/shape.h"

namespace whence {

// Canonical, each once: every scheme bare (over every scheme, where it takes one inside), with each single option away
// from its default, and its registered variants. Whole numbers become at least `length`. Some of these the schemes
// themselves refuse.
[[nodiscard]] std::vector<std::string> scheme_texts(index_t length);

// Sums of two bare schemes, each pair once. Refusals as above.
[[nodiscard]] std::vector<std::string> scheme_sums();

// What a registration promises to run: bare names and variants.
[[nodiscard]] std::vector<std::string> promised_texts();

}  // namespace whence
