// tokenize: trains a tokeniser on text, or takes GPT-2's files, shows how text is cut, and counts what becomes of it.
#include <algorithm>
#include <iostream>
#include <set>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/language/bpe.h"
#include "examples/whence/language/text_files.h"
#include "examples/whence/report/table.h"
#include "examples/whence/run/run_files.h"

namespace whence {
namespace {

using namespace whence::language;

struct Options {
  std::string kind = "bpe", data, out, tokeniser, vocab, merges, export_folder, text, field = "text";
  std::vector<std::string> more;
  std::int64_t vocabulary = 1024, show = 240;
};

void declare_options(CommandLine& line, Options& options) {
  line.heading("Which tokeniser")
      .choice("kind", &options.kind, {"bytes", "characters", "words", "bpe"}, {"what to train on --data"})
      .integer("vocabulary", &options.vocabulary, Range<std::int64_t>{2, 1000000},
          {"at most; without it, characters are as many as occur", "tokens", "bpe needs 257 or more"})
      .text("tokeniser", &options.tokeniser, {"a file that --out wrote, instead of training"})
      .text("vocab", &options.vocab, {"GPT-2's vocab.json, with --merges, instead of training"})
      .text("merges", &options.merges, {"GPT-2's merges.txt"});
  line.heading("Text")
      .text("data", &options.data, {"files to train on and to count, one or more"})
      .names("FILE", &options.more, "more files, behind --data FILE")
      .text("field", &options.field, {"of JSON lines: which of their texts is the document"})
      .text("text", &options.text, {"show how this is cut, instead of the beginning of --data"})
      .integer("show", &options.show, Range<std::int64_t>{0, 1000000}, {"of the data shown cut into tokens", "bytes"});
  line.heading("Output")
      .text("out", &options.out, {"file for the tokeniser (JSON)"})
      .text("export", &options.export_folder, {"folder for vocab.json and merges.txt as other programs read them"});
  line.example(
      "whence tokenize --kind bpe --vocabulary 1024 --data austen.txt --out bpe.json", "seconds for megabytes");
  line.example("whence tokenize --tokeniser bpe.json --text \"Emma Woodhouse, handsome\"", "how text is cut");
  line.example("whence tokenize --vocab vocab.json --merges merges.txt --out gpt2.json", "GPT-2's own, for training");
}

// A tokeniser has one source: training, a file of ours, or GPT-2's two files. Options of the others would do nothing.
void check(const CommandLine& line, const Options& options) {
  const bool loads = !options.tokeniser.empty(), imports = !options.vocab.empty() || !options.merges.empty();
  const bool trains = !loads && !imports;
  if (loads && imports) line.refuse("tokeniser", "no --vocab and --merges beside it", "leave one of the two out");
  line.refuse_unless("show", options.text.empty(), "the data shown; --text is shown in their place");
  for (const char* name : {"kind", "vocabulary"}) line.refuse_unless(name, trains, "a tokeniser to train");
  line.refuse_unless("vocabulary", options.kind != "bytes", "a kind other than bytes, which are always 256");
  for (const char* name : {"vocab", "merges"})
    if (imports && !line.given(name)) line.refuse(name, "GPT-2's file of that name", "both belong to one model");
  if (trains && options.data.empty() && options.kind != "bytes")
    line.refuse("data", "a text file", "or choose --tokeniser");
  if (options.data.empty() && !options.more.empty())
    line.refuse("data", "--data in front of the first file", "write --data FILE FILE");
  line.refuse_onto("out", options.data);
  for (const std::string& path : options.more) line.refuse_onto("out", path);
  line.refuse_unless("field", !options.data.empty(), "--data");
  line.refuse_unless("export", !trains || options.kind == "bpe", "bpe: the files know no other");
  ensure_output_file(options.out);
}

std::vector<TextFile> open_files(const Options& options) {
  std::vector<TextFile> files;
  if (!options.data.empty()) files.emplace_back(options.data, options.field);
  for (const std::string& path : options.more) files.emplace_back(path, options.field);
  for (const TextFile& file : files) std::cerr << file.note();
  return files;
}

[[noreturn]] void refuse(const std::vector<TextFile>& files, const char* at, const UnfitText& unfit) {
  for (const TextFile& file : files)
    if (const std::string place = file.place_of(at); !place.empty()) throw FileError(place, ": ", unfit.reason);
  throw unfit;
}

TokeniserPointer train(const CommandLine& line, const Options& options, const std::vector<TextFile>& files) {
  std::vector<std::string_view> texts;
  for (const TextFile& file : files)
    for (const std::string_view document : file.documents(0)) texts.push_back(document);
  try {
    if (options.kind == "bytes") return byte_tokeniser();
    if (options.kind == "bpe") return train_bpe(texts, options.vocabulary);
    const bool all = options.kind == "characters" && !line.given("vocabulary");
    return train_list(options.kind, texts, all ? 0 : options.vocabulary);
  } catch (const UnfitText& unfit) { refuse(files, texts[unfit.text].data() + unfit.byte, unfit); }
}

// "|It|'s| 1|2|" and the numbers below.
void show_cut(const Tokeniser& tokeniser, std::string_view text) {
  const TokenIds ids = tokeniser.encode(text);
  std::string cut, numbers;
  for (const TokenId id : ids) {
    cut += '|' + one_line(tokeniser.token(id));
    numbers += to_text(numbers.empty() ? "" : " ", id);
  }
  std::cout << "cut: " << cut << "|\nids: " << numbers << '\n';
  if (const std::string note = note_on_unknown(tokeniser, ids); !note.empty()) std::cout << "note: " << note << '\n';
}

// What becomes of a file: tokens, their share, and whether it comes back.
void count(const Tokeniser& tokeniser, const TextFile& file, Table& table) {
  const double started = steady_seconds();
  std::int64_t tokens = 0, unknown = 0;
  std::size_t bytes = 0;
  std::set<TokenId> used;
  bool exact = true;
  for (std::string_view rest : file.documents(0)) {
    bytes += rest.size();
    while (!rest.empty()) {
      stop_if_interrupted("counting tokens");
      TokenIds ids;
      try {
        const std::size_t taken = tokeniser.encode_part(rest, ids);
        exact = exact && tokeniser.decode(ids) == rest.substr(0, taken);
        rest.remove_prefix(taken);
      } catch (const UnfitText& unfit) { throw FileError(file.place_of(rest.data() + unfit.byte), ": ", unfit.reason); }
      tokens += static_cast<std::int64_t>(ids.size());
      unknown += std::ranges::count(ids, tokeniser.unknown());
      used.insert(ids.begin(), ids.end());
    }
  }
  const auto all = static_cast<double>(tokens);
  table.row({file.path(), std::to_string(bytes), std::to_string(tokens), fixed(static_cast<double>(bytes) / all, 3),
      std::to_string(used.size()), fixed(100 * static_cast<double>(unknown) / all, 2), exact ? "exact" : "not exact",
      fixed(steady_seconds() - started, 2)});
}

std::string_view beginning(const TextFile& file, std::int64_t bytes) {
  const std::string_view text = file.documents(0).front();
  std::size_t size = std::min(static_cast<std::size_t>(bytes), text.size());
  while (size > 0 && size < text.size() && (text[size] & 0xC0) == 0x80) --size;  // not inside a character
  return text.substr(0, size);
}

int run(CommandLine& line) {
  Options options;
  declare_options(line, options);
  if (line.shows_page()) return 0;
  check(line, options);
  install_interrupt_handler();
  const std::vector<TextFile> files = open_files(options);
  const double started = steady_seconds();
  const TokeniserPointer tokeniser = !options.tokeniser.empty() ? load_tokeniser(options.tokeniser)
                                     : !options.vocab.empty()   ? read_gpt2_files(options.vocab, options.merges)
                                                                : train(line, options, files);
  std::cout << "tokeniser: " << tokeniser->kind() << ", " << tokeniser->vocabulary() << " tokens, sha256 "
            << tokeniser->hash().substr(0, 16) << "..., made in " << fixed(steady_seconds() - started, 2) << " s\n";
  Table table(
      {"file", "bytes", "tokens", "bytes per token", "different tokens", "unknown %", "decode(encode)", "seconds"});
  for (const TextFile& file : files) count(*tokeniser, file, table);  // first, as it says where text does not fit
  if (!options.text.empty())
    show_cut(*tokeniser, options.text);
  else if (!files.empty() && options.show > 0)
    show_cut(*tokeniser, beginning(files[0], options.show));
  if (!files.empty()) std::cout << '\n' << table.text();
  if (!options.out.empty()) {
    tokeniser->save(options.out);
    std::cout << "written: " << one_line(options.out) << '\n';
  }
  if (!options.export_folder.empty()) {
    ensure_output_folder(options.export_folder);
    write_gpt2_files(*tokeniser, options.export_folder);
    std::cout << "written: " << one_line(options.export_folder) << "/{vocab.json, merges.txt}\n";
  }
  return 0;
}

const RegisterCommand registered{
    {"tokenize", Purpose::train, "trains tokenisers on text, shows how they cut it, and counts", run}};

}  // namespace
}  // namespace whence
