// playground: writes the engine as a web page; or answers the page's questions in its place.
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/page.h"
#include "examples/whence/playground/session.h"
#include "examples/whence/report/assets.h"
#include "examples/whence/report/encode.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

namespace fs = std::filesystem;

// Returns the folder of the preset, next to this program's, or the installed folder.
std::string folder_of_module() {
  std::error_code none;
  const fs::path here = fs::read_symlink("/proc/self/exe", none).parent_path();
  for (const fs::path& folder : {here / "../playground", here / "../share/whence/playground"})
    if (fs::exists(folder / "playground.wasm", none)) return folder.lexically_normal().string();
  throw InputError(
      "no module of WebAssembly found; `apt-get install emscripten && cmake --preset playground && cmake --build "
      "build/playground --target "
      "playground`, in the folder of the sources, builds it in ten minutes on two cores (emscripten takes 0.8 GB); "
      "`whence look RUN` needs no module, and its page can do all but compute new numbers");
}

std::string packed(const std::string& bytes) {
  return report::base64(report::deflated({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}));
}

std::string element(const std::string& id, const char* type, std::string_view content) {
  return to_text("<script type=\"", type, "\" id=\"", id, "\">", content, "</script>\n");
}

// `</script` in a text would end its element; a JavaScript string may spell it `<\/script`.
std::string inside_element(std::string text) {
  for (std::size_t at = 0; (at = text.find("</script", at)) != std::string::npos;) text.replace(at, 2, "<\\/");
  return text;
}

// The page's first question, tried here, and the files that its answer reads, by their names.
std::string element_of(const look::SubjectOptions& run) {
  const Json question = playground::question_that_opens(run);
  playground::Session session;
  for (const std::string& asked : {question.line(), std::string(R"({"ask": "look", "model": 0})")})
    if (const Json answer = Json::read(session.answer(asked), run.run); answer.has("error"))
      throw InputError(answer.text("error"));
  Json files = Json::Fields();
  for (const auto& [name, bytes] : look::files_of(run)) files.add(name, packed(bytes));
  const Json told{{"question", question}, {"files", files}};
  return element("run", "application/json", report::safe_in_script(told.line(Json::Utf8::escaped)));
}

// The page as one file of HTML: style, scripts, and the module of WebAssembly. It has lessons, and models that begin; or
// with `run` it opens that run and has its files. InputError if there is no module, or if the run is too large.
std::string page_with(const look::SubjectOptions* run) {
  const std::string folder = folder_of_module();
  std::string scripts = element("lessons", "application/json", report::safe_in_script(report::lessons));
  if (run) scripts += element_of(*run);
  scripts += element("worker-script", "text/plain", report::playground_worker) +
             element("engine-script", "text/plain", inside_element(read_file(folder + "/playground.js"))) +
             element("engine-module", "application/octet-stream", packed(read_file(folder + "/playground.wasm")));
  scripts += report::viewer_script(report::playground_scripts);
  return report::document("whence playground", to_text(report::style_sheet, report::playground_style),
      "<noscript><p>The engine runs in a script inside this file, which is switched off here.</p></noscript>\n"
      "<main id=\"look\"></main>\n",
      scripts, " 'wasm-unsafe-eval' blob:; worker-src blob:; img-src data: blob:");
}

int run(CommandLine& line) {
  std::vector<std::string> runs;
  look::PageRequest page;
  bool answers = false;
  line.names(
          "RUN", &runs, "the folder of a run, which the page then holds and takes apart; without it models begin there")
      .text("out", &page.out, {.help = "the page to write", .initial = "playground.html, in the folder of RUN"})
      .flag("answer", &answers, {"no page: answer a page's questions, lines of JSON, on standard input"})
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
  write_file(file, page_with(runs.empty() ? nullptr : &page.subject));
  std::cout << "written: " << one_line(file) << '\n';
  return 0;
}

const RegisterCommand registered{{"playground", Purpose::learn, "the engine itself in a web page", run}};

}  // namespace
}  // namespace whence
