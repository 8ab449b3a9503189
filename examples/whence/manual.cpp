// manual: the manual page of all commands, for man(1). Its text is what each command's --help says, so that a page made
// by a program is that program's.
#include <cctype>
#include <iostream>
#include <sstream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/command_line.h"
#include "examples/whence/cli/run_main.h"
#include "tensor/error.h"

namespace whence {
namespace {

// As roff prints it: a backslash and a hyphen as they are typed, and no line that begins with a request.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char letter : text)
    if (letter == '\\')
      result += "\\e";
    else if (letter == '-')
      result += "\\-";
    else
      result += letter;
  return result.starts_with('.') || result.starts_with('\'') ? "\\&" + result : result;
}

std::string in_capitals(std::string text) {
  for (char& letter : text) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return text;
}

std::string help_of(const Command& command) {
  std::ostringstream page;
  std::streambuf* const screen = std::cout.rdbuf(page.rdbuf());
  std::string name = command.name, help = "--help";
  char* words[] = {name.data(), help.data(), nullptr};
  try {
    command.run(2, words);
  } catch (...) {
    std::cout.rdbuf(screen);
    throw;
  }
  std::cout.rdbuf(screen);
  return page.str();
}

// A page as CommandLine::help() lays it out: headings and plain lines at the margin, entries two columns in, and what
// they are behind two blanks or on lines of their own, further in.
void print_page(const std::string& name, const std::string& page) {
  std::istringstream lines(page);
  std::string line;
  std::getline(lines, line);  // "whence NAME: purpose", and its other lines
  std::cout << ".SH " << in_capitals(name) << '\n' << escaped(line.substr(line.find(": ") + 2)) << '\n';
  while (std::getline(lines, line) && !line.empty()) std::cout << escaped(line.substr(2)) << '\n';
  while (std::getline(lines, line)) {
    if (line.starts_with("Exit codes") || line == "About:") {  // the same for all; About ends at an empty line
      while (std::getline(lines, line) && !line.empty()) continue;
    } else if (line.starts_with("Usage: ")) {
      std::cout << ".PP\n.B " << escaped(line.substr(7)) << '\n';
    } else if (!line.empty() && line[0] != ' ') {
      std::cout << ".SS " << escaped(line.substr(0, line.size() - 1)) << '\n';
    } else if (line.starts_with("  ") && line.size() > 2 && line[2] != ' ') {
      const std::size_t gap = line.find("  ", 2);
      std::cout << ".TP\n.B " << escaped(line.substr(2, gap - 2)) << '\n';
      if (gap != std::string::npos) std::cout << escaped(line.substr(line.find_first_not_of(' ', gap))) << '\n';
    } else if (!line.empty()) {
      std::cout << escaped(line.substr(line.find_first_not_of(' '))) << '\n';
    }
  }
}

int run(int argc, char** argv) {
  CommandLine line("whence manual", "Prints the manual page of all commands, as man reads it.");
  line.example("whence manual | man -l -", "to read it here");
  if (line.shows_page(argc, argv)) return 0;
  std::cout << ".TH WHENCE 1 \"\" \"whence " << WHENCE_VERSION << "\" \"User Commands\"\n"
            << ".SH NAME\nwhence \\- trains and looks into transformers with any positional encoding\n"
            << ".SH SYNOPSIS\n.B whence\n.I COMMAND\n[options]\n.SH COMMANDS\n";
  for (const Command& command : registered_commands())
    std::cout << ".TP\n.B " << escaped(command.name) << '\n' << escaped(command.summary) << '\n';
  std::cout << ".PP\nEach has\n.B \\-\\-help\nand\n.B \\-\\-version\\c\n\\&.\n";
  for (const Command& command : registered_commands()) print_page(command.name, help_of(command));
  std::cout
      << ".SH \"EXIT STATUS\"\n"
      << escaped(exit_codes_text())
      << ".SH ENVIRONMENT\n.TP\n.B WHENCE_INSTRUCTIONS\navx512, avx2 or plain: the vector code to run, in place of the "
         "best that the processor has\n";
  return 0;
}

const RegisterCommand registered{{"manual", Purpose::machine, "the manual page of all this, for man", run}};

}  // namespace
}  // namespace whence
