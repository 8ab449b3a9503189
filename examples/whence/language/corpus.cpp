#include "examples/whence/language/corpus.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/language/documents.h"
#include "nn/io/sha256.h"

namespace whence::language {
namespace {

namespace fs = std::filesystem;

using Files = std::vector<std::unique_ptr<TextFile>>;
using FilesOfParts = Files[part_count];

const char* name_of(Part part) {
  return part == Part::training ? "training" : part == Part::validation ? "validation" : "test";
}

// All of them at once: a bad one among many is found before anything is encoded.
Files open_all(const std::vector<std::string>& paths, const CorpusOptions& options) {
  Files files;
  for (const std::string& path : files_of(paths, options.patterns))
    files.push_back(std::make_unique<TextFile>(path, options.field));
  return files;
}

// Where `at` lies among the files.
std::string place_of(const FilesOfParts& parts, const char* at) {
  for (const Files& files : parts)
    for (const auto& file : files)
      if (std::string place = file->place_of(at); !place.empty()) return place;
  return "text";
}

bool is_folder(const std::string& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

// `inside`: whether the text before ends in a word, and then whether this one does.
std::int64_t words_in(std::string_view text, bool& inside) {
  std::int64_t words = 0;
  for (const char c : text) {
    const bool white = c == ' ' || (c >= '\t' && c <= '\r');
    words += !white && !inside;
    inside = !white;
  }
  return words;
}

// Of each part, in the order of the files.
struct Documents {
  std::vector<std::string_view> of[part_count];
};

void cut(const Files& files, std::int64_t blank_lines, std::vector<std::string_view>& documents) {
  for (const auto& file : files)
    for (const std::string_view each : file->documents(blank_lines)) documents.push_back(each);
}

// Where to cut a text that is one document: in front of the last `share` of it, at the beginning of a line if one
// begins there, and of a character in any case.
std::size_t cut_of(std::string_view text, double share) {
  auto at = static_cast<std::size_t>(static_cast<double>(text.size()) * (1 - share));
  const std::size_t line = text.find('\n', at);
  if (line != std::string_view::npos && line + 1 < text.size()) return line + 1;
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

Documents split(const FilesOfParts& parts, const CorpusOptions& options, std::string& notes) {
  const auto& [files, validation_files, test_files] = parts;
  Documents documents;
  std::vector<std::string_view> all;
  cut(files, options.blank_lines, all);
  cut(validation_files, options.blank_lines, documents.of[1]);
  cut(test_files, options.blank_lines, documents.of[2]);
  if (!validation_files.empty() || options.validation_share == 0) {
    documents.of[0] = std::move(all);
  } else if (all.size() == 1) {
    const std::size_t at = cut_of(all[0], options.validation_share);
    if (at == 0 || at == all[0].size())
      throw FileError(files[0]->path(), ": ", all[0].size(),
          " bytes given, some being set aside for validation; more text, or --validation 0, required");
    for (const std::string_view part : {all[0].substr(0, at), all[0].substr(at)})
      documents.of[part.data() != all[0].data()].push_back(part);
    notes = to_text("validation is the end of ", one_line(files[0]->path()), ", which is one document",
        options.blank_lines > 0 ? to_text(": nowhere ", options.blank_lines, " blank lines between text") : "", "\n");
  } else {
    const std::vector<bool> validates = validation_documents(all, options.validation_share, options.split_seed);
    for (std::size_t i = 0; i < all.size(); ++i) documents.of[validates[i] ? 1 : 0].push_back(all[i]);
  }
  return documents;
}

// Of the hashes, not of the bytes run together: text moved from one file to the next is other data.
std::string hash_of(const FilesOfParts& parts) {
  std::string list;
  for (const Part part : {Part::training, Part::validation, Part::test}) {
    const Files& files = parts[static_cast<std::size_t>(part)];
    if (part != Part::training && !files.empty()) list += to_text(name_of(part), '\n');
    for (const auto& file : files) list += file->hash() + '\n';
  }
  return sha256(list);
}

// The tokeniser sees where the document ends, never what follows it.
void encode_document(
    std::string_view document, const Tokeniser& tokeniser, const FilesOfParts& files, TokenRun& run, PartSize& size) {
  ++size.documents;
  size.bytes += static_cast<std::int64_t>(document.size());
  TokenIds ids;
  for (bool inside_word = false; !document.empty();) {
    stop_if_interrupted("making tokens of text");
    ids.clear();
    try {
      const std::size_t taken = tokeniser.encode_part(document, ids);
      size.words += words_in(document.substr(0, taken), inside_word);
      document.remove_prefix(taken);
    } catch (const UnfitText& unfit) {
      throw FileError(place_of(files, document.data() + unfit.byte), ": ", unfit.reason);
    }
    size.tokens += static_cast<std::int64_t>(ids.size());
    size.unknown += tokeniser.unknown() < 0 ? 0 : std::count(ids.begin(), ids.end(), tokeniser.unknown());
    run.add(ids);
  }
}

void encode_all(const Documents& documents, const Tokeniser& tokeniser, const FilesOfParts& files, bool separate,
    TokenRun (&runs)[part_count], PartSize (&sizes)[part_count]) {
  for (std::size_t part = 0; part < part_count; ++part) {
    for (const std::string_view document : documents.of[part]) {
      encode_document(document, tokeniser, files, runs[part], sizes[part]);
      if (!separate) continue;
      runs[part].add(TokenIds{tokeniser.end_of_text()});
      ++sizes[part].tokens;
    }
  }
}

std::vector<std::pair<std::string, std::string>> description_of(
    const CorpusOptions& options, const std::string& data, const Tokeniser& tokeniser) {
  return {{"data", data}, {"tokeniser", tokeniser.hash()}, {"blank-lines", std::to_string(options.blank_lines)},
      {"validation", options.validation_files.empty() ? exact(options.validation_share) : "a file"},
      {"split-seed", std::to_string(options.split_seed)}, {"separate", options.separate ? "true" : "false"}};
}

void check(const CorpusOptions& options, const Tokeniser& tokeniser) {
  if (options.files.empty()) throw InputError("--data: no file given; one or more required");
  if (!(options.validation_share >= 0 && options.validation_share < 1))
    throw InputError("--validation: ", options.validation_share, " given; at least 0 and below 1 required");
  if (options.separate && tokeniser.end_of_text() < 0) {
    throw InputError(
        "--separate: the tokeniser has no <|endoftext|>; a vocabulary with it required; leave the option out");
  }
}

}  // namespace

void TokenRun::add(std::span<const TokenId> ids) {
  if (wide_)
    long_.insert(long_.end(), ids.begin(), ids.end());
  else
    std::ranges::transform(ids, std::back_inserter(short_), [](TokenId id) { return static_cast<std::uint16_t>(id); });
}

void declare(CommandLine& line, CorpusOptions& corpus, CorpusWords& words) {
  line.heading("Text")
      .text("data", &words.data, {"what to train on, one or more: text files, JSON lines (.jsonl), folders of text"})
      .text("validation-data", &words.validation_data,
          {"a file for validation; otherwise some documents of --data are set aside"})
      .text("test-data", &words.test_data, {"a file that is scored as a whole, when training has ended"})
      .text("field", &corpus.field, {"of JSON lines: which of their texts is the document"})
      .text("include", &words.include, {"of folders: only files like these, as in \"*.cpp,*.h\""})
      .text("exclude", &words.exclude, {"of folders: no files like these, as in \"tests/*\""})
      .integer("blank-lines", &corpus.blank_lines, Range<std::int64_t>{0, 1000},
          {"so many in a row begin a new document; 0: only a new file does", "lines"})
      .number("validation", &corpus.validation_share, Range<double>{0, 1, false, true},
          {"share of the text set aside, in whole documents; of a single one, its end"})
      .integer("split-seed", &corpus.split_seed, Range<std::uint64_t>{0, ~std::uint64_t{0}},
          {"draws which documents these are"})
      .flag("separate", &corpus.separate, {"the tokeniser's <|endoftext|> behind each document"})
      .names("FILE", &words.more, "more files, behind --data FILE");
}

void take(const CommandLine& line, CorpusOptions& corpus, const CorpusWords& words) {
  const bool own_validation = !words.validation_data.empty();
  line.refuse_unless("validation", !own_validation,
      "setting documents of --data aside; --validation-data is all of the validation text");
  line.refuse_unless(
      "split-seed", !own_validation && corpus.validation_share > 0, "documents of --data set aside for validation");
  corpus.files.clear();
  if (!words.data.empty()) corpus.files.push_back(words.data);
  corpus.files.insert(corpus.files.end(), words.more.begin(), words.more.end());
  if (corpus.files.empty()) line.refuse("data", "a text file", "any text or source code will do");
  corpus.validation_files.clear();
  if (own_validation) corpus.validation_files.push_back(words.validation_data);
  corpus.test_files.clear();
  if (!words.test_data.empty()) corpus.test_files.push_back(words.test_data);
  corpus.patterns = {list_of(words.include), list_of(words.exclude)};
  std::vector<std::string> all = corpus.files;
  for (const auto* files : {&corpus.validation_files, &corpus.test_files})
    all.insert(all.end(), files->begin(), files->end());
  const bool folder = std::ranges::any_of(all, is_folder);
  for (const char* pattern : {"include", "exclude"}) line.refuse_unless(pattern, folder, "a folder of text");
  if (!line.given("field") && !line.given("blank-lines")) return;
  const std::vector<std::string> files = files_of(all, corpus.patterns);
  line.refuse_unless("field", std::ranges::any_of(files, is_jsonl), "a file of JSON lines (.jsonl)");
  line.refuse_unless("blank-lines", !std::ranges::all_of(files, is_jsonl),
      "a file other than JSON lines (.jsonl), where each line is a document");
}

void refuse_inside_text(const CommandLine& line, const CorpusOptions& corpus, const fs::path& output) {
  const auto place = [](const fs::path& path) { return fs::weakly_canonical(fs::absolute(path)); };
  const std::pair<const char*, const std::vector<std::string>*> texts[] = {
      {"data", &corpus.files}, {"validation-data", &corpus.validation_files}, {"test-data", &corpus.test_files}};
  for (const auto& [option, paths] : texts) {
    for (const std::string& path : *paths) {
      if (!is_folder(path)) continue;
      const fs::path below = place(output).lexically_relative(place(path));
      if (below.empty() || *below.begin() == "..") continue;
      line.refuse("out", to_text("a folder outside of ", path),
          to_text("--", option, " reads all files below it, and would read those of the run too"));
    }
  }
}

Corpus::Corpus(const CorpusOptions& options, const Tokeniser& tokeniser) : vocabulary_(tokeniser.vocabulary()) {
  check(options, tokeniser);
  std::ranges::fill(runs_, TokenRun(vocabulary_));
  const FilesOfParts files = {open_all(options.files, options), open_all(options.validation_files, options),
      open_all(options.test_files, options)};
  hash_ = hash_of(files);
  description_ = description_of(options, hash_, tokeniser);
  const Documents documents = split(files, options, notes_);
  for (const Files& part : files)
    for (const auto& file : part) notes_ += file->note();
  encode_all(documents, tokeniser, files, options.separate, runs_, sizes_);
}

double Corpus::bytes_per_token(Part part) const {
  return static_cast<double>(size(part).bytes) / static_cast<double>(std::max<std::int64_t>(1, size(part).tokens));
}

std::string Corpus::summary() const {
  std::string text;
  for (const Part part : {Part::training, Part::validation, Part::test}) {
    const PartSize& each = size(part);
    if (part == Part::test && each.documents == 0) continue;
    text += to_text(name_of(part), ": ", each.documents, " documents, ", each.bytes, " bytes, ", each.tokens,
        " tokens (", fixed(bytes_per_token(part), 2), " bytes each",
        each.unknown > 0 ? to_text(", ", each.unknown, " unknown") : "", ")\n");
  }
  return text + notes_;
}

void Corpus::require_window(Part part, index_t length) const {
  const index_t has = tokens(part).size();
  if (has > length) return;
  throw FileError(name_of(part), " text: ", has, has == 1 ? " token" : " tokens", " given; ", length + 1,
      " required for a window of ", length, " and the token after it; give more text or choose shorter windows");
}

TokenIds Corpus::slice(Part part, index_t first, index_t count) const {
  const TokenRun& run = tokens(part);
  if (first < 0 || count < 0 || first > run.size() - count) {
    throw Error(
        "corpus: tokens ", first, " to ", first + count, " asked for; the ", name_of(part), " text has ", run.size());
  }
  TokenIds ids;
  ids.reserve(static_cast<std::size_t>(count));
  for (index_t i = first; i < first + count; ++i) ids.push_back(run[i]);
  return ids;
}

}  // namespace whence::language
