// Byte-level byte-pair encoding (Sennrich et al. 2016; over bytes: Radford et al. 2019): GPT-2's own
// files, our file, and a trainer.
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

// Two tokens as one number, to look them up by.
constexpr std::uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

// From the content of GPT-2's files, for a model of `rows` tokens: those beyond the vocabulary have no text. FileError
// with `place` when numbers have gaps, a byte has no token, or a merge makes no token.
[[nodiscard]] TokeniserPointer bpe_from(const std::map<std::string, std::int64_t>& vocabulary,
    const std::vector<std::string>& merges, const std::string& place, index_t rows = 0);
// vocab.json's object. FileError when a number is not whole.
[[nodiscard]] std::map<std::string, std::int64_t> token_numbers(const Json& table);
[[nodiscard]] TokeniserPointer read_gpt2_files(const std::string& vocabulary_path, const std::string& merges_path);
// FOLDER/vocab.json and FOLDER/merges.txt. InputError when the tokeniser is no bpe.
void write_gpt2_files(const Tokeniser& tokeniser, const std::string& folder);

// Merges the most frequent pair inside the pieces of the texts, again and again, until there are `vocabulary` tokens
// (257 or more) or no pair occurs twice. Ties go to the pair of smaller numbers: the same texts give the same file,
// and the merges of other trainers.
[[nodiscard]] TokeniserPointer train_bpe(std::span<const std::string_view> texts, index_t vocabulary);

}  // namespace whence::language
