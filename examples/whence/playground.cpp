// playground: the engine itself in a web page; or in its place, question by question.
#include <filesystem>
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/playground/session.h"
#include "examples/whence/report/assets.h"
#include "examples/whence/report/deflate.h"
#include "examples/whence/report/encode.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

namespace fs = std::filesystem;

// Where the module of WebAssembly lies: the folder of the preset beside that of this program, or where it was installed.
std::string folder_of_module(const std::string& given) {
  std::error_code none;
  const fs::path here = fs::read_symlink("/proc/self/exe", none).parent_path();
  for (const fs::path& folder : given.empty() ? std::vector{here / "../playground", here / "../share/whence/playground"}
                                              : std::vector{fs::path(given)})
    if (fs::exists(folder / "playground.wasm", none)) return folder.lexically_normal().string();
  throw InputError("--module: ", given.empty() ? "no module of WebAssembly found" : to_text("none in ", given),
      "; cmake --preset playground && cmake --build build/playground --target playground makes it, with emscripten");
}

std::string element(const std::string& id, const char* type, std::string_view content) {
  return to_text("<script type=\"", type, "\" id=\"", id, "\">", content, "</script>\n");
}

// `</script` in a text would end its element; in a string of JavaScript the other spelling is the same.
std::string inside_element(std::string text) {
  for (std::size_t at = 0; (at = text.find("</script", at)) != std::string::npos;) text.replace(at, 2, "<\\/");
  return text;
}

std::string page_with(const std::string& folder) {
  const std::string module = read_file(folder + "/playground.wasm");
  const std::vector<std::uint8_t> bytes(module.begin(), module.end());
  std::string scripts = element("lessons", "application/json", report::safe_in_script(report::playground_lessons)) +
                        element("worker-script", "text/plain", report::playground_worker) +
                        element("engine-script", "text/plain", inside_element(read_file(folder + "/playground.js"))) +
                        element("engine-module", "application/octet-stream", report::base64(report::deflated(bytes)));
  scripts += "<script type=\"module\">\n";
  for (const std::string_view script : report::playground_scripts) scripts += script;
  scripts += "</script>\n";
  return report::document("whence playground", to_text(report::picture_style, report::playground_style),
      "<noscript><p>The engine runs in a script inside this file, which is switched off here.</p></noscript>\n"
      "<div id=\"playground\"></div>\n",
      scripts, " 'wasm-unsafe-eval' blob:; worker-src blob:; img-src data: blob:; frame-src 'self'");
}

int run(CommandLine& line) {
  std::string out = "playground.html", module;
  bool answers = false;
  line.text("out", &out, {"the page"})
      .text("module", &module,
          {.help = "folder of playground.js and playground.wasm, which `cmake --preset playground` makes; none: beside "
                   "this program"})
      .flag("answer", &answers,
          {"no page: answers the questions that a page asks, lines of JSON on standard input, in its place"})
      .example("whence playground", "models learn and can be taken apart in a browser, without a network")
      .example("whence playground --answer < questions.jsonl", "what the page would be told");
  if (line.shows_page()) return 0;
  if (answers) {
    playground::Session session;
    for (std::string question; std::getline(std::cin, question);) std::cout << session.answer(question) << std::endl;
    return 0;
  }
  write_file(out, page_with(folder_of_module(module)));
  std::cout << "written: " << one_line(out) << '\n';
  return 0;
}

const RegisterCommand registered{{"playground", Purpose::learn, "the engine itself in a web page", run}};

}  // namespace
}  // namespace whence
