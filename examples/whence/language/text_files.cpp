#include "examples/whence/language/text_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>

#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/language/documents.h"
#include "nn/io/json.h"
#include "nn/io/sha256.h"
#include "tensor/error.h"

namespace whence::language {
namespace {

namespace fs = std::filesystem;

bool matches(const std::vector<std::string>& patterns, const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), path.c_str(), 0) == 0 || fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

std::vector<std::string> files_below(const fs::path& folder, const TreePatterns& patterns) {
  std::vector<std::string> files;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error); !error && entry != fs::end(entry);
       entry.increment(error)) {
    stop_if_interrupted("reading folders");
    if (entry->path().filename().string().starts_with('.')) {
      entry.disable_recursion_pending();
      continue;
    }
    const std::string below = entry->path().lexically_relative(folder).string();
    if (entry->is_symlink() || !entry->is_regular_file() || entry->file_size() == 0) continue;
    if (matches(patterns.exclude, below) || (!patterns.include.empty() && !matches(patterns.include, below))) continue;
    files.push_back(entry->path().string());
  }
  if (error) throw SystemError(folder.string(), ": ", error.message(), "; a folder that can be read required");
  if (files.empty())
    throw FileError(folder.string(), ": no file that --include and --exclude leave; one with text required");
  std::ranges::sort(files);
  return files;
}

}  // namespace

bool is_jsonl(const std::string& path) { return path.ends_with(".jsonl"); }

std::vector<std::string> files_of(const std::vector<std::string>& paths, const TreePatterns& patterns) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code none;
    if (fs::is_directory(path, none))
      for (std::string& file : files_below(path, patterns)) files.push_back(std::move(file));
    else
      files.push_back(path);
  }
  return files;
}

TextFile::TextFile(const std::string& path, const std::string& field)
    : file_(path), field_(is_jsonl(path) ? field : std::string()) {
  if (field_.empty()) return;
  for_each_json_line(bytes(), path, [this](const Json& line) {
    stop_if_interrupted("reading JSON lines");
    if (line.text(field_).empty()) return;
    texts_.push_back(line.text(field_));
    places_.push_back(line.place());
  });
  if (texts_.empty()) throw FileError(path, ": no text in any line's '", field_, "'; some text required");
}

std::vector<std::string_view> TextFile::documents(std::int64_t blank_lines) const {
  if (field_.empty()) return documents_of(bytes(), blank_lines);
  return {texts_.begin(), texts_.end()};
}

std::string TextFile::place_of(const char* at) const {
  const auto inside = [at](std::string_view text) { return at >= text.data() && at < text.data() + text.size(); };
  if (inside(bytes())) return file_.place_of(static_cast<std::size_t>(at - bytes().data()));
  for (std::size_t k = 0; k < texts_.size(); ++k)
    if (inside(texts_[k])) return to_text(places_[k], ", byte ", at - texts_[k].data(), " of its ", field_);
  return {};
}

std::string TextFile::hash() const {
  Sha256 hash;
  for (std::string_view rest = bytes(); !rest.empty();) {
    stop_if_interrupted("hashing text");
    const std::string_view piece = rest.substr(0, std::size_t{1} << 20);
    hash.add(piece);
    rest.remove_prefix(piece.size());
  }
  return hash.hexadecimal() + (field_.empty() ? "" : " " + field_);
}

}  // namespace whence::language
