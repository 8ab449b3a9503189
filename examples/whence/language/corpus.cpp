#include "examples/whence/language/corpus.h"

#include <algorithm>
#include <numeric>

#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "nn/io/files.h"
#include "tensor/error.h"
#include "tensor/random.h"

namespace whence::language {
namespace {

namespace fs = std::filesystem;

using Files = std::vector<std::unique_ptr<TextFile>>;
using FilesOfParts = Files[part_count];
using Documents = std::vector<std::string_view>;

constexpr const char* part_names[part_count] = {"training", "validation", "test"};
constexpr const char* part_options[part_count] = {"data", "validation-data", "test-data"};

const char* name_of(Part part) { return part_names[static_cast<std::size_t>(part)]; }

// Returns files and folders as typed.
std::vector<std::string> paths_of(const CorpusOptions& options, std::size_t part) {
  std::vector<std::string> paths{part == 0 ? options.data : part == 1 ? options.validation_data : options.test_data};
  if (paths[0].empty()) paths.clear();
  if (part == 0) paths.insert(paths.end(), options.more.begin(), options.more.end());
  return paths;
}

std::vector<std::string> files_of_part(const CorpusOptions& options, std::size_t part, std::string* notes = nullptr) {
  return files_of(paths_of(options, part), {list_of(options.include), list_of(options.exclude)}, notes);
}

// Names the place of `at` in the files.
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

// Counts as Python's str.split() does, which also splits at U+001C to U+001F.
std::int64_t words_in(std::string_view text) {
  std::int64_t words = 0;
  for (bool inside = false; !text.empty();) {
    const CodePoint code = first_code_point(text);
    const bool white = is_white_space(code) || (code.value >= 0x1C && code.value <= 0x1F);
    words += !white && !inside;
    inside = !white;
    text.remove_prefix(code.bytes);
  }
  return words;
}

// Returns where to cut a text that is one document: before the last `share` of it, at the beginning of a line if one
// begins there, and never inside a character.
std::size_t split_point(std::string_view text, double share) {
  auto at = static_cast<std::size_t>(static_cast<double>(text.size()) * (1 - share));
  const std::size_t line = text.find('\n', at);
  if (line != std::string_view::npos && line + 1 < text.size()) return line + 1;
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

// Moves some training documents to validation.
void set_aside(const CorpusOptions& options, const std::string& path, Documents& training, Documents& validation,
    std::string& notes) {
  const Documents all = std::exchange(training, {});
  if (all.size() != 1) {
    const std::vector<bool> validates = validation_documents(all, options.validation_share, options.split_seed);
    for (std::size_t i = 0; i < all.size(); ++i) (validates[i] ? validation : training).push_back(all[i]);
    return;
  }
  const std::size_t at = split_point(all[0], options.validation_share);
  if (at == 0 || at == all[0].size())
    throw FileError(path, ": ", all[0].size(),
        " bytes given, some being set aside for validation; more text, or --validation 0, required");
  training = {all[0].substr(0, at)}, validation = {all[0].substr(at)};
  notes += to_text("validation is the end of ", one_line(path), ", which is one document",
      options.blank_lines > 0 && !is_token_file(path)
          ? to_text(": nowhere ", options.blank_lines, " blank lines between text")
          : "",
      "\n");
}

// Reads the documents of all parts, including validation.
void read_documents(
    const CorpusOptions& options, FilesOfParts& files, Documents (&documents)[part_count], std::string& notes) {
  for (std::size_t part = 0; part < part_count; ++part)
    for (const std::string& path : files_of_part(options, part, &notes))
      files[part].push_back(std::make_unique<TextFile>(path, options.field));
  if (files[0].empty()) throw InputError("its record names no text");
  for (std::size_t part = 0; part < part_count; ++part)
    for (const auto& file : files[part])
      for (const std::string_view each : file->documents(options.blank_lines)) documents[part].push_back(each);
  if (options.validation_data.empty() && options.validation_share > 0)
    set_aside(options, files[0][0]->path(), documents[0], documents[1], notes);
}

// Hashes the files' hashes, not their joined bytes: text moved from one file to the next is other data.
std::string hash_of(const FilesOfParts& parts) {
  std::string list;
  for (std::size_t part = 0; part < part_count; ++part) {
    if (part > 0 && !parts[part].empty()) list += to_text(part_names[part], '\n');
    for (const auto& file : parts[part]) list += file->hash() + '\n';
  }
  return sha256(list);
}

// The tokeniser sees where the document ends, but no text after it.
void encode_document(
    std::string_view document, const Tokeniser& tokeniser, const FilesOfParts& files, TokenIds& run, PartSize& size) {
  const std::size_t before = run.size();
  for (std::size_t done = 0; done < document.size();) {
    stop_if_interrupted("making tokens of text");
    try {
      done += tokeniser.encode_part(document.substr(done), run);
    } catch (const UnfitText& unfit) {
      throw FileError(place_of(files, document.data() + done + unfit.byte), ": ", unfit.reason);
    }
  }
  const auto made = std::span<const TokenId>(run).subspan(before);
  const std::string spelled = tokeniser.reads_numbers() ? tokeniser.decode(made) : std::string();
  const std::string_view read = tokeniser.reads_numbers() ? spelled : document;
  ++size.documents;
  size.bytes += static_cast<std::int64_t>(read.size());
  size.words += words_in(read);
  size.tokens += std::ssize(made);
  size.unknown += tokeniser.unknown() < 0 ? 0 : std::ranges::count(made, tokeniser.unknown());
}

}  // namespace

void declare(Fields& line, CorpusOptions& options) {
  line.heading("Text")
      .text("data", &options.data,
          {"training data, one or more: text files, JSON lines, folders of text, or token files, FILE.safetensors "
           "of examples/experiments/tokens.py"})
      .text("validation-data", &options.validation_data,
          {"a file for validation; otherwise some documents of --data are set aside"})
      .text("test-data", &options.test_data, {"a file whose tokens are each scored once, after training"})
      .text("field", &options.field, {"JSON lines: the field that holds the document"})
      .text("include", &options.include,
          {"folders: only files like these, as in \"*.cpp,*.h\"; ? is any one character, a comma too"})
      .text("exclude", &options.exclude, {"folders: no files like these, as in \"tests/*\""})
      .integer("blank-lines", &options.blank_lines, Range<std::int64_t>{0, 1000},
          {"this many in a row begin a new document; 0: only a new file does", "lines"})
      .number("validation", &options.validation_share, Range<double>{0, 1, false, true},
          {"share of the text set aside, in whole documents, or the end of a single one"})
      .integer("split-seed", &options.split_seed, Range<std::uint64_t>{0, ~std::uint64_t{0}},
          {"seed that draws these documents"})
      .names("FILE", &options.more, "more files, after --data FILE");
}

void check(const Fields& line, const CorpusOptions& options) {
  const bool own_validation = !options.validation_data.empty();
  line.refuse_unless("validation", !own_validation, "beside --validation-data, which is all of the validation text");
  line.refuse_unless(
      "split-seed", !own_validation && options.validation_share > 0, "documents of --data set aside for validation");
  if (paths_of(options, 0).empty()) line.refuse("data", "a text file", "any text or source code will do");
  bool folder = false;
  for (std::size_t part = 0; part < part_count; ++part)
    folder = folder || std::ranges::any_of(paths_of(options, part), is_folder);
  for (const char* pattern : {"include", "exclude"}) line.refuse_unless(pattern, folder, "a folder of text");
  if (!line.given("field") && !line.given("blank-lines")) return;
  bool jsonl = false, plain = false;
  for (std::size_t part = 0; part < part_count; ++part)
    for (const std::string& file : files_of_part(options, part)) {
      if (is_token_file(file)) continue;
      const std::string first = first_line_of(file);  // empty: it cannot be read, and reading it all reports that
      const bool lines = is_json_lines(file, first, options.field);
      jsonl = jsonl || first.empty() || lines, plain = plain || !lines;
    }
  line.refuse_unless("field", jsonl, to_text("a file of JSON lines with a text '", one_line(options.field), "'"));
  line.refuse_unless("blank-lines", plain, "a file other than JSON lines, where each line is a document");
}

void refuse_inside_text(const Fields& line, const CorpusOptions& options, const fs::path& output) {
  const auto place = [](const fs::path& path) { return fs::weakly_canonical(fs::absolute(path)); };
  for (std::size_t part = 0; part < part_count; ++part) {
    for (const std::string& path : paths_of(options, part)) {
      if (!is_folder(path)) continue;
      const fs::path below = place(output).lexically_relative(place(path));
      if (below.empty() || *below.begin() == "..") continue;
      line.refuse("out", to_text("a folder outside of ", path),
          to_text("--", part_options[part], " reads all files below it, and would read those of the run too"));
    }
  }
}

std::vector<bool> validation_documents(
    const std::vector<std::string_view>& documents, double share, std::uint64_t seed) {
  const Stream stream(seed, "validation documents");
  std::vector<std::size_t> order(documents.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto draw = [&stream](std::size_t i) { return stream.uniform53(i); };
  std::sort(order.begin(), order.end(),
      [&](std::size_t a, std::size_t b) { return std::pair(draw(a), a) < std::pair(draw(b), b); });
  double wanted = 0;
  for (const std::string_view each : documents) wanted += share * static_cast<double>(each.size());
  std::vector<bool> chosen(documents.size(), false);
  for (std::size_t i = 0; i + 1 < order.size() && wanted > 0; ++i) {
    chosen[order[i]] = true;
    wanted -= static_cast<double>(documents[order[i]].size());
  }
  return chosen;
}

std::size_t first_line_of_prose(std::string_view text) {
  std::size_t found = text.npos;  // the first line since a blank one that may be prose
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    int small_words = 0;
    for (std::size_t k = 0; k < line.size(); ++k)
      small_words += line[k] >= 'a' && line[k] <= 'z' && (k == 0 || line[k - 1] == ' ' || line[k - 1] == '\t');
    if (line.find_first_not_of(" \t\r") == line.npos) found = text.npos;
    if (found == text.npos && small_words >= 3) found = begin;
    const std::size_t last = line.find_last_not_of(" \t\r\"')]_*");
    const bool ends_sentence = last != line.npos && std::string_view(".!?").find(line[last]) != std::string_view::npos;
    if (found != text.npos && ends_sentence) return found;
  }
  return text.npos;
}

Passage passage_to_read(const CorpusOptions& options, const std::string& hash) {
  FilesOfParts files;
  Documents all[part_count];
  std::string notes;
  read_documents(options, files, all, notes);
  const bool aside = !all[1].empty();
  const Documents& documents = all[aside ? 1 : 0];
  std::size_t first = 0, byte = 0;
  for (std::size_t k = 0; k < documents.size(); ++k)
    if (const std::size_t prose = first_line_of_prose(documents[k]); prose != documents[k].npos) {
      first = k, byte = prose;
      break;
    }
  Passage passage;
  const std::string_view begins = documents[first].substr(byte);
  passage.about = !aside                             ? "of the text that it was trained on, as none was set aside"
                  : !options.validation_data.empty() ? "of the text for validation"
                                                     : "of a document that was set aside for validation";
  if (hash_of(files) != hash) passage.about += "; the text has changed since training, which may have read this";
  passage.place = place_of(files, begins.data());
  passage.text = begins;
  for (std::size_t k = first + 1; k < documents.size(); ++k) passage.text += documents[k];
  return passage;
}

void require_same_list(const TextFile& file, const Tokeniser& tokeniser) {
  if (!file.list().empty() && file.list() != tokeniser.json())
    throw FileError(file.path(), ": its list of tokens is not the run's; token files of one tokenizer.json required");
}

// Reads all files before it encodes anything: a bad file among many is found at once.
Corpus::Corpus(const CorpusOptions& options, const Tokeniser& tokeniser) {
  FilesOfParts files;
  Documents documents[part_count];
  read_documents(options, files, documents, notes_);
  hash_ = hash_of(files);
  description_ = {{"data", hash_}, {"tokeniser", tokeniser.hash()},
      {"blank-lines", std::to_string(options.blank_lines)},
      {"validation", options.validation_data.empty() ? exact(options.validation_share) : "a file"},
      {"split-seed", std::to_string(options.split_seed)}};
  std::vector<std::string> notes;
  for (std::size_t part = 0; part < part_count; ++part) {
    for (const auto& file : files[part]) {
      require_same_list(*file, tokeniser);
      if (std::string note = file->note(); !note.empty()) notes.push_back(std::move(note));
    }
    for (const std::string_view document : documents[part])
      encode_document(document, tokeniser, files, runs_[part], sizes_[part]);
  }
  if (!notes.empty()) notes_ += first_few(notes, "") + (notes_.ends_with('\n') ? "" : "\n");
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
  const index_t has = size(part).tokens;
  if (has > length) return;
  throw FileError(name_of(part), " text: ", has, has == 1 ? " token" : " tokens", " given; ", length + 1,
      " required for a window of ", length, " and the token after it; give more text or choose shorter windows");
}

TokenIds Corpus::slice(Part part, index_t first, index_t count) const {
  const auto begin = runs_[static_cast<std::size_t>(part)].begin() + first;
  return {begin, begin + count};
}

}  // namespace whence::language
