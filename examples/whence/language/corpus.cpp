#include "examples/whence/language/corpus.h"

#include <fnmatch.h>

#include <algorithm>
#include <numeric>

#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/run_main.h"
#include "examples/whence/cli/text.h"
#include "nn/io/files.h"
#include "nn/io/safetensors.h"
#include "tensor/error.h"
#include "tensor/random.h"

namespace whence::language {
namespace {

namespace fs = std::filesystem;

constexpr const char* part_names[part_count] = {"training", "validation", "test"};

const char* name_of(Part part) { return part_names[static_cast<std::size_t>(part)]; }

bool is_folder(const std::string& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

// Returns files and folders as typed.
std::vector<std::string> paths_of(const CorpusOptions& options, std::size_t part) {
  std::vector<std::string> paths{part == 0 ? options.data : part == 1 ? options.validation_data : options.test_data};
  if (paths[0].empty()) paths.clear();
  if (part == 0) paths.insert(paths.end(), options.more.begin(), options.more.end());
  return paths;
}

std::vector<std::string> files_of_part(const CorpusOptions& options, std::size_t part, std::string& notes) {
  std::vector<std::string> files;
  for (const std::string& path : paths_of(options, part))
    if (!is_folder(path))
      files.push_back(path);
    else
      for (const std::string& file : files_below(path, list_of(options.include), list_of(options.exclude), notes))
        files.push_back(file);
  return files;
}

// Returns where to cut a text that is one document: before the last `share` of it, at the beginning of a line if one
// begins in its first half, and never inside a character.
std::size_t split_point(std::string_view text, double share) {
  auto at = static_cast<std::size_t>(static_cast<double>(text.size()) * (1 - share));
  const std::size_t line = text.find('\n', at);
  if (line != text.npos && line + 1 - at <= (text.size() - at) / 2) return line + 1;
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

// The files of all parts and their documents, after some were set aside for validation.
struct Texts {
  std::vector<std::unique_ptr<TextFile>> files[part_count];
  std::vector<std::string_view> documents[part_count];
  std::string hash, notes;

  explicit Texts(const CorpusOptions& options) {
    std::string hashes;  // of the files, not of their joined bytes: text moved from one file to the next is other data
    for (std::size_t part = 0; part < part_count; ++part) {
      for (const std::string& path : files_of_part(options, part, notes))
        files[part].push_back(std::make_unique<TextFile>(path, options.field));
      if (files[0].empty()) throw InputError("its record names no text");
      if (part > 0 && !files[part].empty()) hashes += to_text(part_names[part], '\n');
      for (const auto& file : files[part]) {
        hashes += file->hash() + '\n';
        for (const std::string_view each : file->documents(options.blank_lines)) documents[part].push_back(each);
      }
    }
    hash = sha256(hashes);
    if (options.validation_data.empty() && options.validation_share > 0) set_aside(options);
  }

  std::string place_of(const char* at) const {
    for (const auto& part : files)
      for (const auto& file : part)
        if (std::string place = file->place_of(at); !place.empty()) return place;
    return "text";
  }

 private:
  void set_aside(const CorpusOptions& options) {
    const std::string& path = files[0][0]->path;
    const std::vector<std::string_view> all = std::exchange(documents[0], {});
    if (all.size() > 1) {
      const std::vector<bool> validates = validation_documents(all, options.validation_share, options.split_seed);
      for (std::size_t i = 0; i < all.size(); ++i) documents[validates[i]].push_back(all[i]);
      return;
    }
    const std::size_t at = split_point(all[0], options.validation_share);
    if (at == 0 || at == all[0].size())
      throw FileError(
          path, ": ", all[0].size(), " bytes given, some being set aside for validation; more text required");
    documents[0] = {all[0].substr(0, at)}, documents[1] = {all[0].substr(at)};
    notes += to_text("validation is the end of ", one_line(path), ", which is one document",
        options.blank_lines > 0 && !is_token_file(path)
            ? to_text(": nowhere ", options.blank_lines, " blank lines between text")
            : "",
        "\n");
  }
};

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

// The tokeniser sees where the document ends, but no text after it.
void encode_document(
    std::string_view document, const Tokeniser& tokeniser, const Texts& texts, TokenIds& run, PartSize& size) {
  const std::size_t before = run.size();
  for (std::size_t done = 0; done < document.size();) {
    stop_if_interrupted("making tokens of text");
    try {
      done += tokeniser.encode_part(document.substr(done), run);
    } catch (const UnfitText& unfit) {
      throw FileError(texts.place_of(document.data() + done + unfit.byte), ": ", unfit.reason);
    }
  }
  const auto made = std::span<const TokenId>(run).subspan(before);
  const std::string spelled = tokeniser.reads_numbers() ? tokeniser.decode(made) : std::string();
  const std::string_view read = tokeniser.reads_numbers() ? spelled : document;
  ++size.documents;
  size.bytes += std::ssize(read);
  size.words += words_in(read);
  size.tokens += std::ssize(made);
}

// Refuses compressed files and PDF: a user who trains on one means the text in it.
void refuse_packed(const std::string& path, std::string_view bytes) {
  constexpr std::pair<std::string_view, const char*> kinds[] = {{"\x1f\x8b", "gzip"}, {"\x28\xb5\x2f\xfd", "zstd"},
      {"PK\x03\x04", "zip"}, {"\xfd\x37zXZ", "xz"}, {"BZh91AY&SY", "bzip2"}, {"%PDF-", "PDF"}};
  for (const auto& [begins, name] : kinds)
    if (bytes.starts_with(begins))
      throw FileError(path, ": ", name, " given; text required; take the text out of it first, or leave it out");
}

void read_tokens(TextFile& file) {
  SafetensorsFile read = read_safetensors(file.path);
  file.list = std::move(read.metadata["tokeniser"]);
  const Tensor ids = read.tensors.size() == 1 && read.tensors[0].first == "tokens" ? read.tensors[0].second : Tensor();
  if (file.list.empty() || !ids.defined() || ids.rank() != 1 ||
      (ids.dtype() != DType::i32 && ids.dtype() != DType::i64))
    throw FileError(file.path,
        ": no token file: a tensor 'tokens' [n] of I32 or I64 and the metadata 'tokeniser' required; ",
        "examples/experiments/tokens.py writes one");
  for (const double id : ids.to_vector()) file.bytes += to_text(static_cast<std::int64_t>(id), '\n');
  if (file.bytes.empty()) throw FileError(file.path, ": no token in it; one or more required; leave it out");
}

void read_json_lines(TextFile& file, const std::string& field) {
  const auto say = [&](const auto&... what) {
    file.note += to_text("note: ", one_line(file.path), ": ", what..., '\n');
  };
  if (!is_json_lines(file.path, file.bytes, field)) {
    if (first_json_line(file.bytes) || file.path.ends_with(".json"))
      say("JSON, but not JSON lines with a text '", one_line(field),
          "': all of it is read as plain text; --field names the text of JSON lines");
    return;
  }
  file.field = field;
  std::int64_t empty = 0;
  for_each_json_line(file.bytes, file.path, [&](const Json& line) {
    stop_if_interrupted("reading JSON lines");
    if (line.text(field).empty()) return void(++empty);
    file.texts.push_back(line.text(field)), file.places.push_back(line.place());
  });
  if (file.texts.empty()) throw FileError(file.path, ": no text in any line's '", field, "'; some text required");
  if (!is_jsonl(file.path))
    say("JSON lines, as its first line is one: the text '", one_line(field), "' of each is a document");
  if (empty > 0)
    say(empty, " of ", empty + std::ssize(file.texts), " lines have an empty '", one_line(field), "' and are left out");
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
      .number("validation", &options.validation_share, Range<double>{0, 1, true, true},
          {"share of the text set aside, in whole documents, or the end of a single one"})
      .integer("split-seed", &options.split_seed, Range<std::uint64_t>{0, ~std::uint64_t{0}},
          {"seed that draws these documents"})
      .names("FILE", &options.more, "more files, after --data FILE");
}

void check(const Fields& line, const CorpusOptions& options) {
  const bool own_validation = !options.validation_data.empty();
  line.refuse_unless("validation", !own_validation, "beside --validation-data, which is all of the validation text");
  line.refuse_unless("split-seed", !own_validation, "documents of --data set aside for validation");
  if (paths_of(options, 0).empty()) line.refuse("data", "a text file", "any text or source code will do");
  bool folder = false, jsonl = false, plain = false;
  for (std::size_t part = 0; part < part_count; ++part)
    folder = folder || std::ranges::any_of(paths_of(options, part), is_folder);
  for (const char* pattern : {"include", "exclude"}) line.refuse_unless(pattern, folder, "a folder of text");
  if (!line.given("field") && !line.given("blank-lines")) return;
  std::string notes;
  for (std::size_t part = 0; part < part_count; ++part)
    for (const std::string& file : files_of_part(options, part, notes)) {
      if (is_token_file(file)) continue;
      const std::string first = first_line_of(file);  // empty: it cannot be read, and reading it all reports that
      const bool lines = is_json_lines(file, first, options.field);
      jsonl = jsonl || first.empty() || lines, plain = plain || !lines;
    }
  line.refuse_unless("field", jsonl, to_text("a file of JSON lines with a text '", one_line(options.field), "'"));
  line.refuse_unless("blank-lines", plain, "a file other than JSON lines, where each line is a document");
}

void refuse_inside_text(const Fields& line, const CorpusOptions& options, const fs::path& output) {
  for (std::size_t part = 0; part < part_count; ++part)
    for (const std::string& path : paths_of(options, part)) {
      if (!is_folder(path)) continue;
      const fs::path below = fs::weakly_canonical(fs::absolute(output)).lexically_relative(fs::canonical(path));
      if (!below.empty() && *below.begin() != "..")
        line.refuse("out", to_text("a folder outside of ", path),
            "all files below it are read as text, and those of the run would be too");
    }
}

std::vector<std::string> files_below(const std::string& folder, const std::vector<std::string>& include,
    const std::vector<std::string>& exclude, std::string& notes) {
  std::vector<std::string> files;
  std::pair<const char*, int> left[] = {{"hidden names", 0}, {"links", 0}, {"empty files", 0}};
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error); !error && entry != fs::end(entry);
       entry.increment(error)) {
    stop_if_interrupted("reading folders");
    const std::string name = entry->path().filename().string(),
                      below = entry->path().lexically_relative(folder).string();
    const auto like = [&](const std::string& pattern) {
      return fnmatch(pattern.c_str(), below.c_str(), 0) == 0 || fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    };
    if (name.starts_with('.')) {
      entry.disable_recursion_pending();
      ++left[0].second;
    } else if (std::ranges::any_of(exclude, like) || (!include.empty() && std::ranges::none_of(include, like))) {
      continue;
    } else if (entry->is_symlink()) {
      ++left[1].second;
    } else if (entry->is_regular_file() && entry->file_size() > 0) {
      files.push_back(entry->path().string());
    } else {
      left[2].second += entry->is_regular_file();
    }
  }
  std::string left_out;
  for (const auto& [what, count] : left)
    if (count > 0) left_out += to_text(left_out.empty() ? "left out: " : ", ", what, " (", count, ')');
  if (error) throw SystemError(folder, ": ", error.message(), "; a folder that can be read required");
  if (files.empty())
    throw FileError(folder, ": no file that --include and --exclude leave; one with text required",
        left_out.empty() ? "" : "; ", left_out);
  if (!left_out.empty()) notes += to_text("note: ", one_line(folder), ": ", left_out, '\n');
  std::ranges::sort(files);
  return files;
}

std::vector<std::string_view> documents_of(std::string_view file, std::int64_t blank_lines) {
  std::vector<std::string_view> documents;
  std::size_t begin = 0;
  std::int64_t blanks = 0;
  bool text_seen = false;
  for (std::size_t line = 0, end = 0; line < file.size() && blank_lines > 0; line = end) {
    stop_if_interrupted("cutting text");
    end = std::min(file.find('\n', line), file.size() - 1) + 1;
    const bool blank = file.substr(line, end - line).find_first_not_of(" \t\r\n") == file.npos;
    if (!blank && blanks >= blank_lines && text_seen) {
      documents.push_back(file.substr(begin, line - begin));
      begin = line;
    }
    blanks = blank ? blanks + 1 : 0;
    text_seen = text_seen || !blank;
  }
  if (begin < file.size()) documents.push_back(file.substr(begin));
  return documents;
}

std::vector<bool> validation_documents(
    const std::vector<std::string_view>& documents, double share, std::uint64_t seed) {
  const Stream stream(seed, "validation documents");
  std::vector<std::size_t> order(documents.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(stream.uniform53(i), i); });
  double wanted = 0;
  for (const std::string_view each : documents) wanted += share * static_cast<double>(each.size());
  std::vector<bool> chosen(documents.size(), false);
  for (std::size_t i = 0; i + 1 < order.size() && wanted > 0; ++i) {
    chosen[order[i]] = true;
    wanted -= static_cast<double>(documents[order[i]].size());
  }
  return chosen;
}

bool is_token_file(const std::string& path) { return path.ends_with(".safetensors"); }

TextFile::TextFile(const std::string& from, const std::string& with_field) : path(from) {
  stop_if_interrupted("reading text");
  if (is_token_file(path)) {
    read_tokens(*this);
    return;
  }
  bytes = InputFile(path).text(~std::uint64_t{0});
  if (bytes.empty()) throw FileError(path, ": an empty file given; some text required; leave it out");
  refuse_packed(path, bytes);
  if (!with_field.empty()) read_json_lines(*this, with_field);
}

std::vector<std::string_view> TextFile::documents(std::int64_t blank_lines) const {
  if (field.empty()) return documents_of(bytes, blank_lines);
  return {texts.begin(), texts.end()};
}

std::string TextFile::place_of(const char* at) const {
  const auto inside = [at](std::string_view text) { return at >= text.data() && at < text.data() + text.size(); };
  if (inside(bytes))
    return to_text(path, ": line ", 1 + std::count(bytes.data(), at, '\n'), ", byte ", at - bytes.data());
  for (std::size_t k = 0; k < texts.size(); ++k)
    if (inside(texts[k])) return to_text(places[k], ", byte ", at - texts[k].data(), " of its ", field);
  return {};
}

std::string TextFile::hash() const {
  stop_if_interrupted("hashing text");
  return sha256(bytes) + (field.empty() ? "" : " " + field);
}

void require_same_list(const TextFile& file, const Tokeniser& tokeniser) {
  if (!file.list.empty() && file.list != tokeniser.json())
    throw FileError(file.path, ": its list of tokens is not the run's; token files of one tokenizer.json required");
}

Passage passage_to_read(const CorpusOptions& options, const std::string& hash) {
  const Texts texts(options);
  const bool aside = !texts.documents[1].empty();
  Passage passage{{}, texts.place_of(texts.documents[aside][0].data()),
      !aside                             ? "of the text that it was trained on, as none was set aside"
      : !options.validation_data.empty() ? "of the text for validation"
                                         : "of a document that was set aside for validation"};
  if (texts.hash != hash) passage.about += "; the text has changed since training, which may have read this";
  for (const std::string_view each : texts.documents[aside]) passage.text += each;
  return passage;
}

// Reads all files before it encodes anything: a bad file among many is found at once.
Corpus::Corpus(const CorpusOptions& options, const Tokeniser& tokeniser) {
  const Texts texts(options);
  hash_ = texts.hash;
  description_ = {{"data", hash_}, {"tokeniser", tokeniser.hash()},
      {"blank-lines", std::to_string(options.blank_lines)},
      {"validation", options.validation_data.empty() ? exact(options.validation_share) : "a file"},
      {"split-seed", std::to_string(options.split_seed)}};
  std::vector<std::string> notes;
  for (std::size_t part = 0; part < part_count; ++part) {
    for (const auto& file : texts.files[part]) {
      require_same_list(*file, tokeniser);
      if (!file->note.empty()) notes.push_back(file->note);
    }
    for (const std::string_view document : texts.documents[part])
      encode_document(document, tokeniser, texts, runs_[part], sizes_[part]);
  }
  notes_ = texts.notes;
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
        " tokens (", fixed(bytes_per_token(part), 2), " bytes each)\n");
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
