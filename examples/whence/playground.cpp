// playground: writes the engine as a web page; or answers the page's questions in its place.
#include <cstdio>
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/page.h"
#include "examples/whence/playground/session.h"
#include "examples/whence/playground/write_page.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

int run(CommandLine& line) {
  std::vector<std::string> runs;
  look::PageRequest page;
  bool answers = false;
  line.names(
          "RUN", &runs, "the folder of a run, which the page then holds and takes apart; without it models begin there")
      .text("out", &page.out, {.help = "the page to write", .initial = "playground.html, in the folder of RUN"})
      .flag("answer", &answers, {"no page: answer a page's questions, lines of JSON, on standard input"})
      .elsewhere("module", "the module is taken from ../playground beside the program, where its preset builds it")
      .example("whence playground", "models learn and can be taken apart in a browser, without a network")
      .example("whence playground runs/flip_flop", "a trained run, taken apart in a browser")
      .example("whence playground --answer < questions.jsonl", "the answers that the page would get");
  if (line.shows_page()) return 0;
  if (answers) {
    playground::Session session;
    for (std::string question; std::getline(std::cin, question);) std::cout << session.answer(question) << std::endl;
    if (std::ferror(stdin)) throw FileError("standard input: cannot be read; a file or a pipe required");
    return 0;
  }
  if (runs.size() > 1) throw InputError(runs.size(), " runs given; one at most required");
  if (!runs.empty()) {
    page.subject.run = runs[0];
    std::cerr << look::require_memory(look::subject_of(page.subject)) << '\n';
  }
  const std::string file = look::file_to_write(page, "playground.html");
  ensure_output_file(file);
  write_file(file, playground::page_with(runs.empty() ? nullptr : &page.subject));
  std::cout << "written: " << one_line(file) << '\n';
  return 0;
}

const RegisterCommand registered{{"playground", Purpose::learn, "the engine itself in a web page", run}};

}  // namespace
}  // namespace whence
