// The files that a text is read from: plain files, JSON lines with a document a line, all files below a folder, and token
// files, which examples/experiments/tokens.py writes: safetensors with a tensor `tokens` [n] of I32 or I64, and as
// metadata `tokeniser` the file of a tokeniser of kind tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace whence::language {

// Selects files below a folder. A pattern, "*.cpp" or "tests/*", is like a shell's, except that * matches a slash too.
// It is matched against the path below the folder and against the file's name.
struct TreePatterns {
  std::vector<std::string> include = {};  // empty: all
  std::vector<std::string> exclude = {};  // takes precedence over include
};

// Returns `paths` with each folder replaced by its files, sorted by name: regular, not empty, no links, no name that
// begins with a dot. A line on those left out is added to `notes`. SystemError when a folder cannot be read, FileError
// when it has no file.
[[nodiscard]] std::vector<std::string> files_of(
    const std::vector<std::string>& paths, const TreePatterns& patterns, std::string* notes = nullptr);

// Returns the documents of a plain file, one after another without a gap: it is cut after each run of `blank_lines` or
// more blank lines (only blanks, tabs, a CR); 0: never. Such a run belongs to the document before it; at the file's
// beginning it makes no document. Throws Interrupted.
[[nodiscard]] std::vector<std::string_view> documents_of(std::string_view file, std::int64_t blank_lines);

// True by the name, which ends with .safetensors.
[[nodiscard]] bool is_token_file(const std::string& path);

// All bytes stay in memory until they are tokens.
class TextFile {
 public:
  // `field`: the field of each JSON line that holds its document (is_json_lines); empty: no file is read as JSON lines.
  // SystemError when the file cannot be read or is not regular. FileError when it is empty, begins as compressed files
  // and PDF do, has a line without such a text, or is no token file. Interrupted.
  explicit TextFile(const std::string& path, const std::string& field = {});

  const std::string& path() const { return path_; }
  // The bytes of the file; of a token file its numbers, one a line.
  std::string_view bytes() const { return bytes_; }
  // Notes on doubtful content: JSON lines by another name, lines without text, NUL among the first 64 KiB.
  const std::string& note() const { return about_; }
  [[nodiscard]] std::vector<std::string_view> documents(std::int64_t blank_lines) const;
  // Names the place of a byte of this file or of a document: "FILE: line 3, byte 57", counted from 0; empty: another file's.
  [[nodiscard]] std::string place_of(const char* at) const;
  [[nodiscard]] std::string hash() const;  // SHA-256 of its bytes; of JSON lines with the field's name after it
  // The list of tokens of a token file, as the file of a tokeniser; empty for another file.
  const std::string& list() const { return list_; }

 private:
  void read_tokens();
  void read_json_lines(const std::string& field);

  std::string path_, bytes_, list_, field_, about_;  // no field: a plain file; about: notes
  std::vector<std::string> texts_, places_;          // for JSON lines
};

}  // namespace whence::language
