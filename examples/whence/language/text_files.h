// The files that a text is read from: plain ones, JSON lines with a document a line, and all below a folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace whence::language {

// Which files below a folder are read. A pattern, "*.cpp" or "tests/*", as shells have them, with * for any text, a
// slash too; it is held against the path below the folder and against the file's own name.
struct TreePatterns {
  std::vector<std::string> include = {};  // none: all
  std::vector<std::string> exclude = {};  // comes before include
};

// `paths` with the files below in place of each folder, in the order of their names: regular ones that are not empty,
// no links, nothing whose name begins with a dot; a line on those left out is added to `notes`. SystemError when a folder
// cannot be read, FileError when it has none.
[[nodiscard]] std::vector<std::string> files_of(
    const std::vector<std::string>& paths, const TreePatterns& patterns, std::string* notes = nullptr);

// The documents of a plain file, one after another without a gap: it is cut behind each run of `blank_lines` or more
// blank lines (nothing but blanks, tabs, a CR); 0: never. Such a run belongs to the document before it; at the file's
// beginning it makes none. Throws Interrupted.
[[nodiscard]] std::vector<std::string_view> documents_of(std::string_view file, std::int64_t blank_lines);

// All of its bytes are in memory until they have become tokens: a mapping would end the program with a signal where the
// file shrinks while it is read.
class TextFile {
 public:
  // `field`: of each JSON line that holds its document (is_json_lines); empty: no file is read as JSON lines. SystemError
  // when the file cannot be read or is no regular one. FileError when it is empty, changes while it is read, begins as
  // compressed files and PDF do, or has a line without such a text. Interrupted.
  explicit TextFile(const std::string& path, const std::string& field = {});

  const std::string& path() const { return path_; }
  std::string_view bytes() const { return {bytes_.get(), size_}; }
  // Lines on what a reader may take otherwise: JSON lines by another name, lines without text, NUL among the first 64 KiB.
  [[nodiscard]] std::string note() const;
  [[nodiscard]] std::vector<std::string_view> documents(std::int64_t blank_lines) const;
  // Where a byte of this file or of a document is: "FILE: line 3, byte 57", counted from 0; empty: it is of another.
  [[nodiscard]] std::string place_of(const char* at) const;
  [[nodiscard]] std::string hash() const;  // SHA-256 of its bytes; of JSON lines with the field's name behind it

 private:
  void read();

  std::string path_, field_, about_;  // no field: a plain file; about: notes
  std::unique_ptr<char[]> bytes_;
  std::size_t size_ = 0;
  std::vector<std::string> texts_, places_;  // of JSON lines
};

}  // namespace whence::language
