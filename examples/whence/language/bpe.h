// Byte-level byte-pair encoding (Sennrich et al. 2016; over bytes: Radford et al. 2019): GPT-2's files, and our file.
// The library `tokenizers` trains one (examples/experiments/README.md).
//   vocab.json   {"!": 0, ..., "\u0120the": 262, ...}: tokens in GPT-2's spelling (gpt2_text.h), and their numbers
//   merges.txt   "#version: 0.2", then a merge per line, "\u0120 t", the first to be done first
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "examples/whence/cli/json.h"
#include "examples/whence/language/tokeniser.h"

namespace whence::language {

// Reads the content of GPT-2's files for a model of `rows` tokens; those beyond the vocabulary have no text. FileError
// with `place` when numbers have gaps, a byte has no token, or a merge makes no token.
[[nodiscard]] TokeniserPointer bpe_from(const std::map<std::string, std::int64_t>& vocabulary,
    const std::vector<std::string>& merges, const std::string& place, index_t rows = 0);
// Reads vocab.json's object. FileError when a number is not whole.
[[nodiscard]] std::map<std::string, std::int64_t> token_numbers(const Json& table);
[[nodiscard]] TokeniserPointer read_gpt2_files(const std::string& vocabulary_path, const std::string& merges_path);
}  // namespace whence::language
