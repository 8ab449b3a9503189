#include "examples/whence/cli/command_line.h"

#include <algorithm>
#include <iostream>
#include <set>

#include "examples/whence/cli/run_main.h"
#include "examples/whence/cli/text.h"
#include "tensor/error.h"

namespace whence {
namespace {

// Breaks `text` into lines of at most `width` columns, the later lines behind `indent` blanks.
std::string indented(const std::string& text, std::size_t indent, std::size_t width) {
  return joined(wrapped(text, width), std::identity(), '\n' + std::string(indent, ' '));
}

// Formats one entry of the page: the option on the left, its description on the right.
std::string entry(const std::string& left, const std::string& right) {
  constexpr std::size_t left_columns = 24, right_columns = 56;
  std::string text = "  " + left;
  const std::size_t used = display_width(text);
  text += used + 2 > left_columns ? '\n' + std::string(left_columns, ' ') : std::string(left_columns - used, ' ');
  return text + indented(right, left_columns, right_columns) + '\n';
}

}  // namespace

std::optional<std::string> CommandLine::parse(const std::vector<std::string>& words) {
  struct Given {
    Option* option;
    std::string value;
    bool apart = false;  // the value is the word after the option
  };
  std::vector<Given> given_values;
  std::vector<std::string> others;
  bool wants_help = false, wants_all = false, wants_version = false, options_end = false;
  std::string lacks_value;
  for (std::size_t k = 0; k < words.size(); ++k) {
    const std::string& word = words[k];
    const std::size_t equals = word.find('=');
    Option* const option = word.starts_with("--") ? find_option(word.substr(2, equals - 2)) : nullptr;
    options_end = options_end || word == "--";
    if (!options_end && (word == "-h" || word == "--help"))
      wants_help = true, wants_all = k + 1 < words.size() && words[k + 1] == "all";
    else if (!options_end && word == "--version")
      wants_version = true;
    else if (options_end || !option)
      others.push_back(word);
    else if (equals != std::string::npos)
      given_values.push_back({option, word.substr(equals + 1)});
    else if (option->argument_word.empty())
      given_values.push_back({option, "true"});
    else if (k + 1 == words.size())
      lacks_value = word;
    else
      given_values.push_back({option, words[++k], true});
  }
  if (wants_help) return help(wants_all);
  if (wants_version) return program_ + " " WHENCE_VERSION "\n";
  if (!lacks_value.empty()) throw InputError(lacks_value, ": no value given; one value required; ", see_help());
  take_names(others);
  std::set<std::string> typed;
  for (const auto& [option, value, apart] : given_values) {
    const std::string name = "--" + option->name;
    if (!typed.insert(name).second) throw InputError(name, ": given twice; once required; remove one of them");
    // "--out --layers 3" would take "--layers" as the folder's name, which nobody means.
    if (apart && value.starts_with("--"))
      throw InputError(name, ": no value given before ", one_line(value), "; one value required; ", see_help());
    set(option->name, value);
  }
  return std::nullopt;
}

bool CommandLine::shows_page() {
  const auto page = parse(words_);
  if (page) std::cout << *page;
  return page.has_value();
}

void CommandLine::take_names(const std::vector<std::string>& others) {
  std::vector<std::string> plain;
  for (const std::string& word : others) {
    // Refuses the option rather than its value: an unknown "--layer 3" leaves both words.
    if (word.size() > 1 && word[0] == '-' && word != "--") refuse_unknown(word.substr(0, word.find('=')));
    if (word != "--") plain.push_back(word);
  }
  add_names(plain);
}

std::string CommandLine::describe(const Option& option) {
  const std::string initial = option.text.initial.empty() ? "no default" : "default " + option.text.initial;
  if (option.argument_word.empty()) return option.text.help + " (default off)";
  std::string range = option.allowed;
  if (!option.text.unit.empty()) range += (range.empty() ? "" : " ") + option.text.unit;
  return option.text.help + " (" + range + (range.empty() ? "" : "; ") + initial + ")";
}

std::string CommandLine::help(bool all) const {
  std::string page = program_ + ": " + indented(purpose_, 2, 78 - program_.size()) + "\n\nUsage: " + program_ +
                     (names_ ? " " + names_word_ : "") + " [options]\n";
  if (names_) page += "\n" + entry(names_word_, names_help_);
  std::string current;
  const auto shown = [&](const Option& option) {
    return all || everyday_.empty() || std::ranges::find(everyday_, option.name) != everyday_.end();
  };
  const auto left_out = options_.size() - static_cast<std::size_t>(std::ranges::count_if(options_, shown));
  for (const Option& option : options_) {
    if (!shown(option)) continue;
    if (option.heading != current) page += "\n" + option.heading + ":\n";
    current = option.heading;
    page +=
        entry("--" + option.name + (option.argument_word.empty() ? "" : " " + option.argument_word), describe(option));
  }
  page += "\nAbout:\n" + entry("-h, --help", "print this page");
  if (left_out > 0) page += entry("--help all", to_text("the same with ", left_out, " options more"));
  page += entry("--version", "print the version");
  if (!examples_.empty()) page += "\nExamples:\n";
  for (const auto& [command, meaning] : examples_)
    page += "  " + command + "\n      " + indented(meaning, 6, 74) + "\n";
  return page + "\n" + exit_codes_text();
}

}  // namespace whence
