// "Did you mean": the known name nearest to an unknown one, for errors.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace whence {

// Insertions, deletions, substitutions and swaps of neighbours that turn one name into the other.
[[nodiscard]] std::size_t edit_distance(std::string_view from, std::string_view to);

// The candidate that `name` was probably meant to be: one that begins with it, or one within two edits or a third of
// its length. Case does not count: "CoPE" means "cope".
[[nodiscard]] std::optional<std::string> nearest_name(
    std::string_view name, const std::vector<std::string>& candidates);

}  // namespace whence
