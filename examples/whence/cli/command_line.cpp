#include "examples/whence/cli/command_line.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <type_traits>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/run_main.h"
#include "examples/whence/cli/text.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

template <class Number> std::string value_text(Number value) {
  if constexpr (std::is_floating_point_v<Number>)
    return exact(value);
  else
    return std::to_string(value);
}

// "1 to 64", "at least 1", "above 0 and at most 1"; empty where every number will do.
template <class Number> std::string range_text(const Range<Number>& range) {
  const bool has_low = range.low > std::numeric_limits<Number>::lowest(),
             has_high = range.high < std::numeric_limits<Number>::max();
  const std::string low = value_text(range.low), high = value_text(range.high);
  if (has_low && has_high && !range.above_low && !range.below_high) return low + " to " + high;
  std::string text;
  if (has_low || std::is_unsigned_v<Number>) text = (range.above_low ? "above " : "at least ") + low;
  if (has_high) text += (text.empty() ? "" : " and ") + std::string(range.below_high ? "below " : "at most ") + high;
  return text;
}

template <class Number> bool inside(const Range<Number>& range, Number value) {
  return (range.above_low ? value > range.low : value >= range.low) &&
         (range.below_high ? value < range.high : value <= range.high);
}

// Reads one number into `value`, or says why not: "3abc" given; a whole number, 1 to 64, required.
template <class Number>
std::string read_number(const std::string& typed, const Range<Number>& range, std::string_view kind, Number* value) {
  const std::optional<Number> number = parse_number<Number>(typed);
  const std::string allowed = range_text(range);
  if (!number)
    return to_text(in_quotes(typed), " given; ", kind, allowed.empty() ? "" : ", " + allowed + ",", " required");
  if (!inside(range, *number)) return to_text(typed, " given; ", allowed, " required");
  *value = *number;
  return {};
}

// `text` broken at blanks into lines of at most `width` columns, the later ones behind `indent` blanks.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::string result;
  std::size_t column = 0;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t columns = display_width(word);
    if (column > 0 && column + 1 + columns > width) {
      result += '\n' + std::string(indent, ' ');
      column = 0;
    } else if (column > 0) {
      result += ' ';
      ++column;
    }
    result += word;
    column += columns;
  }
  return result;
}

// One entry of the page: the option in the left column, what it is in the right one.
std::string entry(const std::string& left, const std::string& right) {
  constexpr std::size_t left_columns = 24, right_columns = 56;
  std::string text = "  " + left;
  const std::size_t used = display_width(text);
  text += used + 2 > left_columns ? '\n' + std::string(left_columns, ' ') : std::string(left_columns - used, ' ');
  return text + wrapped(right, left_columns, right_columns) + '\n';
}

}  // namespace

CommandLine::CommandLine(std::string program, std::string purpose, std::string version)
    : program_(std::move(program)), purpose_(std::move(purpose)), version_(std::move(version)) {}

CommandLine& CommandLine::heading(std::string title) {
  heading_ = std::move(title);
  return *this;
}

CommandLine::Option& CommandLine::add(Option option) {
  const auto same = [&option](const Option& other) { return other.name == option.name; };
  if (option.name == "help" || option.name == "version" || std::any_of(options_.begin(), options_.end(), same))
    throw Error("command line: --", option.name, " declared twice; one declaration required; rename one of them");
  option.heading = heading_;
  option.initial = option.text.initial.empty() ? option.show() : option.text.initial;
  return options_.emplace_back(std::move(option));
}

template <class Integer>
CommandLine& CommandLine::integer(const std::string& name, Integer* value, Range<Integer> range, OptionText text) {
  const auto assign = [value, range](
                          const std::string& typed) { return read_number(typed, range, "a whole number", value); };
  add({name, {}, "N", std::move(text), range_text(range), {}, {}, assign, [value] { return std::to_string(*value); }});
  return *this;
}

template CommandLine& CommandLine::integer<int>(const std::string&, int*, Range<int>, OptionText);
template CommandLine& CommandLine::integer<std::int64_t>(
    const std::string&, std::int64_t*, Range<std::int64_t>, OptionText);
template CommandLine& CommandLine::integer<std::uint64_t>(
    const std::string&, std::uint64_t*, Range<std::uint64_t>, OptionText);

CommandLine& CommandLine::number(const std::string& name, double* value, Range<double> range, OptionText text) {
  const auto assign = [value, range](
                          const std::string& typed) { return read_number(typed, range, "a finite number", value); };
  add({name, {}, "X", std::move(text), range_text(range), {}, {}, assign, [value] { return exact(*value); }});
  return *this;
}

CommandLine& CommandLine::text(const std::string& name, std::string* value, OptionText text) {
  const auto assign = [value](const std::string& typed) {
    if (!typed.empty()) *value = typed;
    return std::string(typed.empty() ? "\"\" given; some text required" : "");
  };
  add({name, {}, "TEXT", std::move(text), {}, {}, {}, assign, [value] { return *value; }});
  return *this;
}

CommandLine& CommandLine::texts(const std::string& name, std::vector<std::string>* values, OptionText text) {
  const auto assign = [values](const std::string& typed) {
    if (!typed.empty()) values->push_back(typed);
    return std::string(typed.empty() ? "\"\" given; some text required" : "");
  };
  const auto show = [values] { return joined(*values, std::identity(), " "); };
  add({name, {}, "TEXT", std::move(text), {}, {}, {}, assign, show}).repeats = true;
  return *this;
}

CommandLine& CommandLine::choice(
    const std::string& name, std::string* value, std::vector<std::string> choices, OptionText text) {
  const std::string allowed = joined(choices);
  const auto assign = [value, allowed, choices](const std::string& typed) {
    if (std::find(choices.begin(), choices.end(), typed) == choices.end())
      return to_text(in_quotes(typed), " given; one of ", allowed, " required");
    *value = typed;
    return std::string();
  };
  add({name, {}, "NAME", std::move(text), allowed, {}, std::move(choices), assign, [value] { return *value; }});
  return *this;
}

CommandLine& CommandLine::flag(const std::string& name, bool* value, OptionText text) {
  const auto assign = [value](const std::string& typed) {
    if (typed != "true") return to_text(in_quotes(typed), " given; no value required");
    *value = true;
    return std::string();
  };
  add({name, {}, {}, std::move(text), {}, {}, {}, assign, [value] { return std::string(*value ? "true" : "false"); }});
  return *this;
}

CommandLine& CommandLine::example(std::string command, std::string meaning) {
  examples_.emplace_back(std::move(command), std::move(meaning));
  return *this;
}

std::optional<std::string> CommandLine::parse(int argc, const char* const* argv) {
  return parse(std::vector<std::string>(argv + 1, argv + argc));
}

std::optional<std::string> CommandLine::parse(const std::vector<std::string>& words) {
  const auto asked = std::ranges::find(words, complete);
  if (asked != words.end()) return candidates(words.end() - asked > 2 ? *(words.end() - 2) : "");
  std::vector<std::pair<Option*, std::string>> given_values;
  std::vector<std::string> leftovers;
  bool wants_help = false, wants_all = false, wants_version = false, options_end = false;
  std::string lacks_value;
  for (std::size_t k = 0; k < words.size(); ++k) {
    const std::string& word = words[k];
    const std::size_t equals = word.find('=');
    const auto option =
        std::ranges::find(options_, word.substr(0, equals), [](const Option& o) { return "--" + o.name; });
    options_end = options_end || word == "--";
    if (!options_end && (word == "-h" || word == "--help"))
      wants_help = true, wants_all = k + 1 < words.size() && words[k + 1] == "all";
    else if (!options_end && word == "--version")
      wants_version = true;
    else if (options_end || option == options_.end())
      leftovers.push_back(word);
    else if (equals != std::string::npos)
      given_values.emplace_back(&*option, word.substr(equals + 1));
    else if (option->argument_word.empty())
      given_values.emplace_back(&*option, "true");
    else if (k + 1 == words.size())
      lacks_value = word;
    else
      given_values.emplace_back(&*option, words[++k]);
  }
  if (wants_help) return help(wants_all);
  if (wants_version) return program_ + ' ' + version_ + '\n';
  if (!lacks_value.empty())
    throw InputError(lacks_value, ": no value given; one value required; see ", program_, " --help");
  take_names(leftovers);
  for (const auto& [option, value] : given_values) read(*option, value);
  return std::nullopt;
}

std::string CommandLine::candidates(const std::string& previous) const {
  const auto option = std::ranges::find(options_, previous, [](const Option& o) { return "--" + o.name; });
  std::vector<std::string> list;
  if (option != options_.end() && !option->argument_word.empty()) {
    list = option->choices.empty() ? option->text.known : option->choices;
  } else {
    list = known_names_;
    for (const Option& each : options_) list.push_back("--" + each.name);
    list.insert(list.end(), {"--help", "--version"});
  }
  std::string lines;
  for (const std::string& each : list) lines += each + '\n';
  return lines;
}

CommandLine& CommandLine::set_default(const std::string& name, const std::string& value) {
  const auto option = std::ranges::find(options_, name, &Option::name);
  if (option == options_.end()) throw InputError(in_quotes(name), " given; an option of ", program_, " required");
  const std::string problem = option->assign(value);
  if (!problem.empty()) throw InputError("--", name, ": ", problem, "; ", advice(*option, value));
  option->initial = option->show();
  return *this;
}

CommandLine& CommandLine::everyday(std::vector<std::string> names) {
  everyday_ = std::move(names);
  return *this;
}

CommandLine& CommandLine::names(
    std::string word, std::vector<std::string>* values, std::string help, std::vector<std::string> known) {
  names_word_ = std::move(word), names_help_ = std::move(help), names_ = values, known_names_ = std::move(known);
  return *this;
}

CommandLine& CommandLine::elsewhere(std::string name, std::string advice) {
  elsewhere_.emplace_back("--" + std::move(name), std::move(advice));
  return *this;
}

void CommandLine::take_names(const std::vector<std::string>& leftovers) const {
  std::vector<std::string> dashed, plain;
  for (const std::string& text : leftovers)
    if (text != "--") (text.size() > 1 && text[0] == '-' ? dashed : plain).push_back(text);
  if (!names_ || !dashed.empty()) return refuse_unknown(leftovers);
  *names_ = plain;
}

void CommandLine::refuse_unknown(const std::vector<std::string>& leftovers) const {
  // Prefer an option to the value that stands behind it: "--layer 3" leaves both.
  const auto dashed = [](const std::string& text) { return text.size() > 1 && text[0] == '-' && text != "--"; };
  const auto found = std::find_if(leftovers.begin(), leftovers.end(), dashed);
  const auto positional =
      std::find_if(leftovers.begin(), leftovers.end(), [](const std::string& text) { return text != "--"; });
  if (positional == leftovers.end()) return;
  if (found == leftovers.end()) {
    throw InputError(
        in_quotes(*positional), ": given without an option; options only required; see ", program_, " --help");
  }
  const std::string name = found->substr(0, found->find('='));
  for (const auto& [known, advice] : elsewhere_)
    if (name == known) throw InputError(name, ": given; no option of ", program_, "; ", advice);
  std::vector<std::string> names = {"help", "version"};
  for (const Option& option : options_) names.push_back(option.name);
  const auto meant =
      nearest_name(std::string_view(name).substr(std::min(name.find_first_not_of('-'), name.size())), names);
  const std::string hint = meant ? to_text("did you mean --", *meant, "?") : to_text("see ", program_, " --help");
  throw InputError(one_line(name), ": unknown option given; a known option required; ", hint);
}

void CommandLine::read(Option& option, const std::string& value) const {
  const std::string place = "--" + option.name + ": ";
  if (option.given && !option.repeats) throw InputError(place + "given twice; once required; remove one of them");
  // "--out --layers 3" would take "--layers" for the folder's name; nobody means that.
  if (value.starts_with("--")) {
    throw InputError(
        place, "no value given before ", one_line(value), "; one value required; see ", program_, " --help");
  }
  const std::string problem = option.assign(value);
  if (!problem.empty()) throw InputError(place, problem, "; ", advice(option, value));
  option.given = true;
}

std::string CommandLine::advice(const Option& option, const std::string& typed) const {
  if (const auto meant = nearest_name(typed, option.choices)) return to_text("did you mean ", *meant, "?");
  if (!option.text.advice.empty()) return option.text.advice;
  if (option.argument_word.empty()) return "write the option alone";
  return option.initial.empty() ? to_text("see ", program_, " --help") : to_text("the default is ", option.initial);
}

const CommandLine::Option& CommandLine::find(std::string_view name) const {
  const auto found =
      std::find_if(options_.begin(), options_.end(), [name](const Option& option) { return option.name == name; });
  if (found == options_.end())
    throw Error("command line: --", name, " asked for; a declared option required; declare it first");
  return *found;
}

bool CommandLine::shows_page(int argc, const char* const* argv) {
  const auto page = parse(argc, argv);
  if (page) std::cout << *page;
  return page.has_value();
}

bool CommandLine::given(std::string_view name) const { return find(name).given; }

void CommandLine::refuse_unless(std::string_view name, bool has_effect, const std::string& required) const {
  const Option& option = find(name);
  if (!option.given || has_effect) return;
  throw InputError(
      "--", name, ": ", one_line(option.show()), " given; it has no effect without ", required, "; leave it out");
}

void CommandLine::refuse(std::string_view name, const std::string& required, const std::string& advice) const {
  throw InputError("--", name, ": ", one_line(find(name).show()), " given; ", required, " required; ", advice);
}

void CommandLine::refuse_onto(std::string_view name, const std::string& input) const {
  namespace fs = std::filesystem;
  const std::string output = find(name).show();
  std::error_code not_there;
  if (output.empty() || input.empty()) return;
  if (fs::equivalent(input, output, not_there) ||
      fs::path(input).lexically_normal() == fs::path(output).lexically_normal())
    refuse(name, "another file than the one that is read", "results would take the place of what they were made from");
}

std::vector<std::pair<std::string, std::string>> CommandLine::values() const {
  std::vector<std::pair<std::string, std::string>> list;
  for (const Option& option : options_) list.emplace_back(option.name, option.show());
  return list;
}

std::string CommandLine::describe(const Option& option) const {
  std::string text = option.text.help;
  if (option.argument_word.empty()) return text + " (default off)";
  text += " (";
  if (!option.allowed.empty()) text += option.allowed + (option.text.unit.empty() ? "" : " " + option.text.unit) + "; ";
  if (option.allowed.empty() && !option.text.unit.empty()) text += option.text.unit + "; ";
  return text + (option.initial.empty() ? "no default" : "default " + option.initial) + ")";
}

std::string CommandLine::help(bool all) const {
  std::string page = program_ + ": " + wrapped(purpose_, 2, 78 - program_.size()) + "\n\nUsage: " + program_ +
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
  for (const auto& [command, meaning] : examples_) page += "  " + command + "\n      " + wrapped(meaning, 6, 74) + "\n";
  return page + "\n" + exit_codes_text();
}

}  // namespace whence
