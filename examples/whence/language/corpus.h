// Text files as runs of tokens, for training, validation and a test. Windows are taken from these runs.
//
//   files (text_files.h) -> documents -> some drawn for validation -> tokens, documents in the order of the files
//
// A token file is one document, whose bytes and words are those of its tokens.
// Tokens take 2 bytes each, or 4 if there are more than 65536 different ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/cli/fields.h"
#include "examples/whence/language/text_files.h"
#include "examples/whence/language/tokeniser.h"
#include "tensor/tensor.h"

namespace whence::language {

struct CorpusOptions {
  std::string data = {};  // files or folders: the first
  std::vector<std::string> more = {};
  std::string validation_data = {};        // if given, all of `data` is for training
  std::string test_data = {};              // empty: no test
  std::string field = "text";              // for JSON lines
  std::string include = {}, exclude = {};  // for folders: TreePatterns between commas
  std::int64_t blank_lines = 3;            // this many begin a new document in a file; 0: a file is one document
  double validation_share = 0.1;  // of the text, in whole documents, or the end of a single one; 0: no validation
  // Draws the validation documents. It is not training's seed, so that runs are compared on the same text.
  std::uint64_t split_seed = 0;
};

void declare(Fields& line, CorpusOptions& options);
// Checks the options after parsing: InputError if there is no text, or an option has no effect.
void check(const Fields& line, const CorpusOptions& options);

// InputError if a run's output folder is one of the folders of text, or inside of one: the next run would read the
// run's files as text.
void refuse_inside_text(const Fields& line, const CorpusOptions& options, const std::filesystem::path& output);

// Returns, for each document, true if it is for validation. Documents are drawn one after another from the stream
// (seed, "validation documents") until their bytes reach `share` of all. At least one is drawn, and at least one is
// left. REQUIRES: 0 < share < 1, two documents or more.
[[nodiscard]] std::vector<bool> validation_documents(
    const std::vector<std::string_view>& documents, double share, std::uint64_t seed);

// A place in a run's own text, for inspection.
struct Passage {
  std::string text;   // from there to the end of the part's documents
  std::string place;  // "austen.txt: line 812, byte 45021"
  std::string about;  // "of a document that was set aside for validation"
};

// Finds the first line of prose in the validation text, or in the training text if no text was set aside; without
// prose, the beginning. `hash` is that of the run's data. Throws as Corpus does.
[[nodiscard]] Passage passage_to_read(const CorpusOptions& options, const std::string& hash);

// FileError if the file has a list of tokens, and the tokeniser another.
void require_same_list(const TextFile& file, const Tokeniser& tokeniser);

// Returns where the first line of prose begins: it has three words or more that begin with a small letter, and a
// sentence ends at the end of a line before the next blank line. npos: no such line, as in a table, in code, or without
// ASCII letters.
[[nodiscard]] std::size_t first_line_of_prose(std::string_view text);

enum class Part : unsigned char { training, validation, test };
inline constexpr std::size_t part_count = 3;

struct PartSize {
  std::int64_t documents = 0, bytes = 0, tokens = 0, unknown = 0;
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
