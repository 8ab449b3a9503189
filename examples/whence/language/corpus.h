// Text as runs of tokens, for training, validation and a test. Windows are taken from these runs.
//
//   files -> documents -> some drawn for validation -> tokens, documents in the order of the files
//
// Files are plain, JSON lines with a document a line, all below a folder, or token files, which
// examples/experiments/tokens.py writes: safetensors with a tensor `tokens` [n] of I32 or I64, and as metadata
// `tokeniser` the file of a tokeniser of kind tokens. A token file is one document, whose bytes and words are those of
// its tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/cli/fields.h"
#include "examples/whence/language/tokeniser.h"

namespace whence::language {

struct CorpusOptions {
  std::string data = {};  // files or folders: the first
  std::vector<std::string> more = {};
  std::string validation_data = {};        // if given, all of `data` is for training
  std::string test_data = {};              // empty: no test
  std::string field = "text";              // for JSON lines
  std::string include = {}, exclude = {};  // for folders: patterns between commas
  std::int64_t blank_lines = 3;            // this many begin a new document in a file; 0: a file is one document
  double validation_share = 0.1;  // of the text, in whole documents, or the end of a single one; 0: no validation
  // Draws the validation documents. It is not training's seed, so that runs are compared on the same text.
  std::uint64_t split_seed = 0;
};

void declare(Fields& line, CorpusOptions& options);
// Checks the options after parsing: InputError if there is no text, or an option has no effect.
void check(const Fields& line, const CorpusOptions& options);
// InputError if a run's output folder is inside a folder of text: the next run would read the run's files as text.
void refuse_inside_text(const Fields& line, const CorpusOptions& options, const std::filesystem::path& output);

// Returns the files below a folder, sorted by name: regular, not empty, no links, no name that begins with a dot. The path
// below the folder or the file's name matches one of `include` (empty: any) and none of `exclude`: patterns of a shell,
// but * matches a slash too. A line on those left out is added to `notes`. FileError when no file is left.
[[nodiscard]] std::vector<std::string> files_below(const std::string& folder, const std::vector<std::string>& include,
    const std::vector<std::string>& exclude, std::string& notes);

// Cuts a plain file into documents, without a gap, after each run of `blank_lines` or more blank lines (only blanks, tabs,
// a CR) that follows text; 0: never. Throws Interrupted.
[[nodiscard]] std::vector<std::string_view> documents_of(std::string_view file, std::int64_t blank_lines);

// Returns, for each document, true if it is for validation. Documents are drawn from the stream (seed, "validation
// documents") until their bytes reach `share` of all; one at least is drawn, and left. REQUIRES: two documents or more.
[[nodiscard]] std::vector<bool> validation_documents(
    const std::vector<std::string_view>& documents, double share, std::uint64_t seed);

// True by the name, which ends with .safetensors.
[[nodiscard]] bool is_token_file(const std::string& path);

struct TextFile {
  // `with_field`: the field of each JSON line that holds its document (is_json_lines); empty: no file is read as JSON
  // lines. SystemError when the file cannot be read or is not regular. FileError when it is empty, begins as compressed
  // files and PDF do, has a line without such a text, or is no token file. Interrupted.
  explicit TextFile(const std::string& path, const std::string& with_field = {});

  [[nodiscard]] std::vector<std::string_view> documents(std::int64_t blank_lines) const;
  // Names the place of a byte of this file or of a document: "FILE: line 3, byte 57", counted from 0; empty: another
  // file's.
  [[nodiscard]] std::string place_of(const char* at) const;
  [[nodiscard]] std::string hash() const;  // SHA-256 of its bytes; of JSON lines with the field's name after it

  std::string path, bytes;                 // of a token file its numbers, one a line
  std::string field;                       // of JSON lines; empty: another file
  std::vector<std::string> texts, places;  // of JSON lines
  std::string list;                        // of a token file: its list of tokens, as the file of a tokeniser
  std::string note;                        // JSON lines by another name, lines without text
};

// FileError if the file has a list of tokens, and the tokeniser another.
void require_same_list(const TextFile& file, const Tokeniser& tokeniser);

// A run's own text, for inspection: that set aside for validation or, without any, that for training.
struct Passage {
  std::string text;   // all documents
  std::string place;  // "austen.txt: line 812, byte 45021"
  std::string about;  // "of a document that was set aside for validation"
};
// `hash` is that of the run's data. Throws as Corpus does.
[[nodiscard]] Passage passage_to_read(const CorpusOptions& options, const std::string& hash);

enum class Part : unsigned char { training, validation, test };
inline constexpr std::size_t part_count = 3;

struct PartSize {
  std::int64_t documents = 0, bytes = 0, tokens = 0;
  std::int64_t words = 0;  // runs of characters other than Unicode's white space
};

class Corpus {
 public:
  // Throws as TextFile does; FileError "FILE: line 3, byte 57: ..." for text that the tokeniser cannot take, for a token
  // file with another list, and when training or validation would be empty; Interrupted.
  Corpus(const CorpusOptions& options, const Tokeniser& tokeniser);

  const PartSize& size(Part part) const { return sizes_[static_cast<std::size_t>(part)]; }
  double bytes_per_token(Part part) const;
  const std::string& hash() const { return hash_; }  // SHA-256 over each file's hash: a run's data
  // Returns names and texts that a resumed run must share: data hash, tokeniser hash, rule and share of documents.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> description() const { return description_; }
  [[nodiscard]] std::string summary() const;  // lines for people

  // FileError unless the part holds a window of `length` tokens and the one after them.
  void require_window(Part part, index_t length) const;
  // Returns `count` tokens from `first` on. REQUIRES: the part has them.
  [[nodiscard]] TokenIds slice(Part part, index_t first, index_t count) const;

 private:
  TokenIds runs_[part_count];
  PartSize sizes_[part_count];
  std::string hash_, notes_;
  std::vector<std::pair<std::string, std::string>> description_;
};

}  // namespace whence::language
