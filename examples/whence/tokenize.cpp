// tokenize: shows how a tokeniser cuts text, and makes one file of GPT-2's two. The library `tokenizers` trains others
// (examples/experiments/README.md).
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/language/bpe.h"
#include "examples/whence/language/text_files.h"
#include "examples/whence/run/run_files.h"

namespace whence {
namespace {

using namespace whence::language;

struct Options {
  std::string tokeniser, vocab, merges, text, data, out;
  std::int64_t show = 240;
};

void declare_options(CommandLine& line, Options& options) {
  line.heading("Which tokeniser: bytes, or")
      .text("tokeniser", &options.tokeniser, {"a file that `whence train` reads"})
      .text("vocab", &options.vocab, {"GPT-2's vocab.json, with --merges"})
      .text("merges", &options.merges, {"GPT-2's merges.txt"});
  line.heading("Output")
      .text("text", &options.text, {"show how this is cut"})
      .text("data", &options.data, {"a file whose beginning is cut"})
      .integer("show", &options.show, Range<std::int64_t>{1, 1000000}, {"size of that beginning", "bytes"})
      .text("out", &options.out, {"file for the tokeniser (JSON), which `whence train --tokeniser` reads"});
  line.example("whence tokenize --tokeniser bpe.json --text \"Emma Woodhouse, handsome\"", "how text is cut");
  line.example("whence tokenize --vocab vocab.json --merges merges.txt --out gpt2.json", "GPT-2's own, for training");
}

void check(const CommandLine& line, const Options& options) {
  const bool imports = !options.vocab.empty() || !options.merges.empty();
  if (!options.tokeniser.empty() && imports)
    line.refuse("tokeniser", "no --vocab and --merges with it", "leave one of the two out");
  for (const char* name : {"vocab", "merges"})
    if (imports && !line.given(name)) line.refuse(name, "GPT-2's file of that name", "both belong to one model");
  line.refuse_unless("show", !options.data.empty(), "--data");
  line.refuse_onto("out", options.data);
  ensure_output_file(options.out);
}

// Prints "|It|'s| 1|2|" and the token numbers below.
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

std::string_view beginning(std::string_view text, std::int64_t bytes) {
  std::size_t size = std::min(static_cast<std::size_t>(bytes), text.size());
  while (size > 0 && size < text.size() && (text[size] & 0xC0) == 0x80) --size;  // never cuts inside a character
  return text.substr(0, size);
}

int run(CommandLine& line) {
  Options options;
  declare_options(line, options);
  if (line.shows_page()) return 0;
  check(line, options);
  const TokeniserPointer tokeniser = !options.tokeniser.empty() ? load_tokeniser(options.tokeniser)
                                     : !options.vocab.empty()   ? read_gpt2_files(options.vocab, options.merges)
                                                                : byte_tokeniser();
  std::cout << "tokeniser: " << tokeniser->kind() << ", " << tokeniser->vocabulary() << " tokens, sha256 "
            << tokeniser->hash().substr(0, 16) << "...\n";
  if (!options.text.empty()) show_cut(*tokeniser, options.text);
  if (!options.data.empty()) {
    const TextFile file(options.data);
    try {
      show_cut(*tokeniser, beginning(file.bytes(), options.show));
    } catch (const UnfitText& unfit) {
      throw FileError(file.place_of(file.bytes().data() + unfit.byte), ": ", unfit.reason);
    }
  }
  if (!options.out.empty()) {
    tokeniser->save(options.out);
    std::cout << "written: " << one_line(options.out) << '\n';
  }
  return 0;
}

const RegisterCommand registered{{"tokenize", Purpose::train, "shows how a tokeniser cuts text", run}};

}  // namespace
}  // namespace whence
