// Tokens as a file: written once, mapped afterwards.
//   "whence tokens 2\n", then a line of JSON: key, bytes per token, sizes; blanks up to a multiple of 4096;
//   tokens for training, validation and test; numbers of 2 or 4 bytes, in this machine's byte order
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "examples/language/corpus.h"
#include "examples/language/mapped_file.h"

namespace whence::language {

struct CachedTokens {
  TokenRun runs[part_count];
  PartSize sizes[part_count];
};

// Takes tokens one part after another, to memory or to a temporary file beside `path`.
class TokenWriter {
 public:
  // `path` empty: memory. InputError when the file cannot be written.
  TokenWriter(const std::string& path, int bytes_per_token);
  ~TokenWriter();
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  void add(std::span<const TokenId> ids);
  // Ends the file, if there is one, and gives it its name. `key`: what the tokens were made from.
  void finish(const std::string& key, const PartSize (&sizes)[part_count]);
  int bytes_per_token() const { return width_; }
  [[nodiscard]] std::string take_memory() { return std::move(memory_); }

 private:
  void write(const void* data, std::size_t bytes);

  std::string path_, temporary_, memory_;
  int width_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

// The runs that a writer left in memory.
[[nodiscard]] CachedTokens runs_in(const char* tokens, int bytes_per_token, const PartSize (&sizes)[part_count]);
// The runs in a mapped cache. Nothing when it was made from something else, by another version, or is not whole.
[[nodiscard]] bool read_cache(const MappedFile& file, const std::string& key, CachedTokens& found);

}  // namespace whence::language
