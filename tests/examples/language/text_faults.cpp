// Files that are no text; Ctrl-C during reading.
#include <csignal>

#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/run_main.h"
#include "examples/whence/language/corpus.h"
#include "nn/io/files.h"
#include "tests/support/programs.h"

using namespace whence;
using namespace whence::language;
using namespace whence::test;
using namespace std::string_literals;

namespace {

// Simulates a received signal during its lifetime.
struct InterruptedHere {
  InterruptedHere() {
    install_interrupt_handler();
    std::raise(SIGINT);
  }
  ~InterruptedHere() {
    install_interrupt_handler();
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
  }
};

// A byte tokeniser that receives a signal at the first byte.
class Interrupting final : public Tokeniser {
 public:
  Interrupting() : Tokeniser(Kind::bytes, std::vector<std::string>(256, "x"), "{}") {}
  std::size_t encode_part(std::string_view, TokenIds& ids) const override {
    if (++parts == 1) std::raise(SIGINT);
    ids.push_back(0);
    return 1;
  }
  mutable int parts = 0;
};

}  // namespace

TEST_CASE("what is no text: compressed files and PDF are refused, binary is taken") {
  const Scratch scratch("text-packed");
  const std::pair<std::string, std::string> packed[] = {{"\x1f\x8b\x08", "gzip given"},
      {"\x28\xb5\x2f\xfd", "zstd given"}, {"PK\x03\x04", "zip given"}, {"\xfd\x37zXZ", "xz given"},
      {"BZh91AY&SY", "bzip2 given"}, {"%PDF-1.4", "PDF given"}};
  for (const auto& [begins, message] : packed) {
    write_file(scratch / "a.txt", begins + " and what follows");
    CHECK_THROWS_WITH_AS(TextFile(scratch / "a.txt"), doctest::Contains(message.c_str()), FileError);
  }
  write_file(scratch / "a.txt", "PK is how this text begins");
  CHECK(TextFile(scratch / "a.txt").note.empty());
  write_file(scratch / "b.txt", "a\0b\0"s);
  const Corpus corpus({.data = scratch / "b.txt", .validation_share = 0}, *byte_tokeniser());
  CHECK(corpus.size(Part::training).tokens == 4);
}

TEST_CASE("Ctrl-C is heeded while text is read, cut, hashed and made tokens") {
  const Scratch scratch("text-interrupted");
  write_file(scratch / "text", "one two one two\n");
  write_file(scratch / "lines.jsonl", "{\"text\": \"one\"}\n");
  const std::string_view texts[] = {"one two one two one"};
  const TextFile file(scratch / "text", "");
  {
    const InterruptedHere interrupted;
    CHECK_THROWS_AS(TextFile(scratch / "text"), Interrupted);
    CHECK_THROWS_AS((void)file.hash(), Interrupted);
    CHECK_THROWS_AS((void)documents_of(texts[0], 3), Interrupted);
    CHECK_THROWS_AS(TextFile(scratch / "lines.jsonl", "text"), Interrupted);
    CHECK_NOTHROW(for_each_json_line("{}", "here", [](const Json&) {}));  // lab.py reads results when it stops
  }
  Interrupting tokeniser;
  {
    const InterruptedHere at_the_end;
    install_interrupt_handler();
    CHECK_THROWS_AS(Corpus({.data = scratch / "text", .validation_share = 0}, tokeniser), Interrupted);
  }
  CHECK(tokeniser.parts == 1);
}
