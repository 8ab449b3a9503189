// playground: writes the engine as a web page; or answers the page's questions in its place.
#include <cstdio>
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/playground/session.h"
#include "examples/whence/playground/write_page.h"
#include "nn/io/files.h"

namespace whence {
namespace {

int run(CommandLine& line) {
  std::string out = "playground.html", module;
  bool answers = false;
  line.text("out", &out, {"the page to write"})
      .text("module", &module,
          {.help = "folder of playground.js and playground.wasm, which `cmake --preset playground` makes; none: next "
                   "to this program"})
      .flag("answer", &answers, {"no page: answer a page's questions, lines of JSON, on standard input"})
      .example("whence playground", "models learn and can be taken apart in a browser, without a network")
      .example("whence playground --answer < questions.jsonl", "the answers that the page would get");
  if (line.shows_page()) return 0;
  if (answers) {
    playground::Session session;
    for (std::string question; std::getline(std::cin, question);) std::cout << session.answer(question) << std::endl;
    if (std::ferror(stdin)) throw FileError("standard input: cannot be read; a file or a pipe required");
    return 0;
  }
  write_file(out, playground::page_with(module));
  std::cout << "written: " << one_line(out) << '\n';
  return 0;
}

const RegisterCommand registered{{"playground", Purpose::learn, "the engine itself in a web page", run}};

}  // namespace
}  // namespace whence
