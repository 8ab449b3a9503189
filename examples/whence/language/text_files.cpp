#include "examples/whence/language/text_files.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/text.h"
#include "nn/io/files.h"
#include "nn/io/safetensors.h"
#include "nn/io/seal.h"
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

std::vector<std::string> files_below(const fs::path& folder, const TreePatterns& patterns, std::string* notes) {
  std::vector<std::string> files;
  std::int64_t hidden = 0, links = 0, empty = 0;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error); !error && entry != fs::end(entry);
       entry.increment(error)) {
    stop_if_interrupted("reading folders");
    if (entry->path().filename().string().starts_with('.')) {
      entry.disable_recursion_pending();
      ++hidden;
      continue;
    }
    const std::string below = entry->path().lexically_relative(folder).string();
    if (matches(patterns.exclude, below) || (!patterns.include.empty() && !matches(patterns.include, below))) continue;
    if (entry->is_symlink()) ++links;
    if (entry->is_symlink() || !entry->is_regular_file()) continue;
    if (entry->file_size() > 0)
      files.push_back(entry->path().string());
    else
      ++empty;
  }
  std::string left_out;
  for (const auto& [what, count] : {std::pair("hidden names", hidden), {"links", links}, {"empty files", empty}})
    if (count > 0) left_out += to_text(left_out.empty() ? "left out: " : ", ", what, " (", count, ')');
  if (error) throw SystemError(folder.string(), ": ", error.message(), "; a folder that can be read required");
  if (files.empty())
    throw FileError(folder.string(), ": no file that --include and --exclude leave; one with text required",
        left_out.empty() ? "" : "; ", left_out);
  if (notes && !left_out.empty()) *notes += to_text("note: ", one_line(folder.string()), ": ", left_out, '\n');
  std::ranges::sort(files);
  return files;
}

// Refuses compressed files and PDF: a user who trains on one means the text in it.
void refuse_packed(const std::string& path, std::string_view bytes) {
  constexpr std::string_view kinds[][3] = {{"\x1f\x8b", "gzip", "gunzip it"}, {"\x28\xb5\x2f\xfd", "zstd", "unzstd it"},
      {"PK\x03\x04", "zip", "unzip it"}, {"\xfd\x37zXZ", "xz", "unxz it"}, {"BZh91AY&SY", "bzip2", "bunzip2 it"},
      {"%PDF-", "PDF", "take its text out, as pdftotext does"}};
  for (const auto& [begins, name, advice] : kinds)
    if (bytes.starts_with(begins))
      throw FileError(path, ": ", name, " given; text required; ", advice, " first, or leave it out");
}

}  // namespace

std::vector<std::string> files_of(
    const std::vector<std::string>& paths, const TreePatterns& patterns, std::string* notes) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code none;
    if (fs::is_directory(path, none))
      for (std::string& file : files_below(path, patterns, notes)) files.push_back(std::move(file));
    else
      files.push_back(path);
  }
  return files;
}

std::vector<std::string_view> documents_of(std::string_view file, std::int64_t blank_lines) {
  std::vector<std::string_view> documents;
  std::size_t begin = 0;
  std::int64_t blanks = 0;
  bool text_seen = false;
  for (std::size_t line = 0; line < file.size() && blank_lines > 0;) {
    stop_if_interrupted("cutting text");
    const std::size_t newline = file.find('\n', line),
                      end = newline == std::string_view::npos ? file.size() : newline + 1;
    const bool blank = file.substr(line, end - line).find_first_not_of(" \t\r\n") == std::string_view::npos;
    if (!blank && blanks >= blank_lines && text_seen) {
      documents.push_back(file.substr(begin, line - begin));
      begin = line;
    }
    blanks = blank ? blanks + 1 : 0;
    text_seen = text_seen || !blank;
    line = end;
  }
  if (begin < file.size()) documents.push_back(file.substr(begin));
  return documents;
}

bool is_token_file(const std::string& path) { return path.ends_with(".safetensors"); }

TextFile::TextFile(const std::string& path, const std::string& field) : path_(path) {
  stop_if_interrupted("reading text");
  if (is_token_file(path)) {
    read_tokens();
    return;
  }
  bytes_ = InputFile(path).text(~std::uint64_t{0});
  if (bytes_.empty()) throw FileError(path_, ": an empty file given; some text required; leave it out");
  refuse_packed(path_, bytes_);
  if (!field.empty()) read_json_lines(field);
  const std::string_view looked_at = bytes().substr(0, std::size_t{1} << 16);
  if (const auto nuls = std::ranges::count(looked_at, '\0'); nuls > 0)
    about_ += to_text("note: ", one_line(path_), ": ", nuls, " of its first ", looked_at.size(),
        " bytes are NUL: binary, or not UTF-8; they are taken as they are\n");
}

void TextFile::read_json_lines(const std::string& field) {
  const auto say = [this](const auto&... what) { about_ += to_text("note: ", one_line(path_), ": ", what..., '\n'); };
  if (!is_json_lines(path_, bytes_, field)) {
    if (first_json_line(bytes_) || path_.ends_with(".json"))
      say("JSON, but not JSON lines with a text '", one_line(field),
          "': all of it is read as plain text; --field names the text of JSON lines");
    return;
  }
  field_ = field;
  std::int64_t lines = 0;
  for_each_json_line(bytes_, path_, [&](const Json& line) {
    stop_if_interrupted("reading JSON lines");
    ++lines;
    if (line.text(field_).empty()) return;
    texts_.push_back(line.text(field_));
    places_.push_back(line.place());
  });
  if (texts_.empty()) throw FileError(path_, ": no text in any line's '", field_, "'; some text required");
  if (!is_jsonl(path_))
    say("JSON lines, as its first line is one: the text '", one_line(field), "' of each is a document");
  if (lines > std::ssize(texts_))
    say(lines - std::ssize(texts_), " of ", lines, " lines have an empty '", one_line(field), "' and are left out");
}

void TextFile::read_tokens() {
  SafetensorsFile file = read_safetensors(path_);
  list_ = std::move(file.metadata["tokeniser"]);
  const Tensor ids = file.tensors.size() == 1 && file.tensors[0].first == "tokens" ? file.tensors[0].second : Tensor();
  if (list_.empty() || !ids.defined() || ids.rank() != 1 || (ids.dtype() != DType::i32 && ids.dtype() != DType::i64))
    throw FileError(path_,
        ": no token file: a tensor 'tokens' [n] of I32 or I64 and the metadata 'tokeniser' required; ",
        "examples/experiments/tokens.py writes one");
  for (const double id : ids.to_vector()) bytes_ += to_text(static_cast<std::int64_t>(id), '\n');
}

std::vector<std::string_view> TextFile::documents(std::int64_t blank_lines) const {
  if (field_.empty()) return documents_of(bytes(), blank_lines);
  return {texts_.begin(), texts_.end()};
}

std::string TextFile::place_of(const char* at) const {
  const auto inside = [at](std::string_view text) { return at >= text.data() && at < text.data() + text.size(); };
  if (inside(bytes()))
    return to_text(path_, ": line ", 1 + std::count(bytes_.data(), at, '\n'), ", byte ", at - bytes_.data());
  for (std::size_t k = 0; k < texts_.size(); ++k)
    if (inside(texts_[k])) return to_text(places_[k], ", byte ", at - texts_[k].data(), " of its ", field_);
  return {};
}

std::string TextFile::hash() const {
  stop_if_interrupted("hashing text");
  return sha256(bytes_) + (field_.empty() ? "" : " " + field_);
}

}  // namespace whence::language
