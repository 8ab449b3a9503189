// Where one document ends and the next begins, and which of them are for validation.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace whence::language {

// The documents of one file, one after another without a gap: the file is cut behind each run of `blank_lines` or
// more blank lines (nothing but blanks, tabs, a CR); 0: never. Such a run belongs to the document before it; at the
// file's beginning it makes none. Throws Interrupted.
[[nodiscard]] std::vector<std::string_view> documents_of(std::string_view file, std::int64_t blank_lines);

// For each document whether it is for validation. They are drawn one after another from the stream (seed, "validation
// documents") until their bytes come to `share` of all. At least one is drawn, and at least one is left. REQUIRES: 0 <
// share < 1, two documents or more.
[[nodiscard]] std::vector<bool> validation_documents(
    const std::vector<std::string_view>& documents, double share, std::uint64_t seed);

}  // namespace whence::language
