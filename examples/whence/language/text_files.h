// The files that a text is read from: plain ones, JSON lines (.jsonl) with a document a line, and all below a folder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "examples/whence/language/file_bytes.h"

namespace whence::language {

// Which files below a folder are read. A pattern, "*.cpp" or "tests/*", as shells have them, with * for any text, a
// slash too; it is held against the path below the folder and against the file's own name.
struct TreePatterns {
  std::vector<std::string> include = {};  // none: all
  std::vector<std::string> exclude = {};  // comes before include
};

// `paths` with the files below in place of each folder, in the order of their names: regular ones that are not empty,
// no links, nothing whose name begins with a dot. SystemError when a folder cannot be read, FileError when it has none.
[[nodiscard]] std::vector<std::string> files_of(const std::vector<std::string>& paths, const TreePatterns& patterns);

[[nodiscard]] bool is_jsonl(const std::string& path);

class TextFile {
 public:
  // `field`: of each JSON line that holds its document. Throws what FileBytes does, and FileError for a line that has
  // no such text.
  TextFile(const std::string& path, const std::string& field);

  const std::string& path() const { return file_.path(); }
  std::string_view bytes() const { return file_.bytes(); }
  [[nodiscard]] std::string note() const { return file_.note(); }  // for people
  // Of a plain file (documents.h), or of each line that is not empty.
  [[nodiscard]] std::vector<std::string_view> documents(std::int64_t blank_lines) const;
  // Where a byte of a document of this file is, for people; empty: it is of another.
  [[nodiscard]] std::string place_of(const char* at) const;
  [[nodiscard]] std::string hash() const;  // SHA-256 of its bytes; of JSON lines with the field's name behind it

 private:
  FileBytes file_;
  std::string field_;                        // of JSON lines; empty: a plain file
  std::vector<std::string> texts_, places_;  // of JSON lines, which stay in memory
};

}  // namespace whence::language
