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
template <class Number> std::string read_number(const std::string& typed, const Range<Number>& range, Number* value) {
  const std::optional<Number> number = parse_number<Number>(typed);
  const std::string allowed = range_text(range);
  if (!number)
    return to_text(in_quotes(typed), " given; ", std::is_integral_v<Number> ? "a whole number" : "a finite number",
        allowed.empty() ? "" : ", " + allowed + ",", " required");
  if (!inside(range, *number)) return to_text(typed, " given; ", allowed, " required");
  *value = *number;
  return {};
}

// `text` in lines of at most `width` columns, the later ones behind `indent` blanks.
std::string indented(const std::string& text, std::size_t indent, std::size_t width) {
  return joined(wrapped(text, width), std::identity(), '\n' + std::string(indent, ' '));
}

// One entry of the page: the option in the left column, what it is in the right one.
std::string entry(const std::string& left, const std::string& right) {
  constexpr std::size_t left_columns = 24, right_columns = 56;
  std::string text = "  " + left;
  const std::size_t used = display_width(text);
  text += used + 2 > left_columns ? '\n' + std::string(left_columns, ' ') : std::string(left_columns - used, ' ');
  return text + indented(right, left_columns, right_columns) + '\n';
}

// The option of that name, or nullptr.
template <class Options> auto* find_in(Options& options, std::string_view name) {
  const auto found = std::ranges::find(options, name, [](const auto& option) { return std::string_view(option.name); });
  return found == options.end() ? nullptr : &*found;
}

}  // namespace

CommandLine::CommandLine(std::string program, std::string purpose, std::vector<std::string> words)
    : program_(std::move(program)), purpose_(std::move(purpose)), words_(std::move(words)) {}

CommandLine& CommandLine::heading(std::string title) {
  heading_ = std::move(title);
  return *this;
}

CommandLine& CommandLine::add(Option option) {
  if (option.name == "help" || option.name == "version" || find_in(options_, option.name))
    throw Error("command line: --", option.name, " declared twice; one declaration required; rename one of them");
  option.heading = heading_;
  if (option.text.initial.empty()) option.text.initial = option.show();
  options_.push_back(std::move(option));
  return *this;
}

template <class Number>
CommandLine& CommandLine::add_number(
    const std::string& name, Number* value, const Range<Number>& range, OptionText text) {
  const auto assign = [value, range](const std::string& typed) { return read_number(typed, range, value); };
  const char* const word = std::is_integral_v<Number> ? "N" : "X";
  return add({name, word, std::move(text), range_text(range), assign, [value] { return value_text(*value); }});
}

template <class Integer>
CommandLine& CommandLine::integer(const std::string& name, Integer* value, Range<Integer> range, OptionText text) {
  return add_number(name, value, range, std::move(text));
}

template CommandLine& CommandLine::integer(const std::string&, int*, Range<int>, OptionText);
template CommandLine& CommandLine::integer(const std::string&, std::int64_t*, Range<std::int64_t>, OptionText);
template CommandLine& CommandLine::integer(const std::string&, std::uint64_t*, Range<std::uint64_t>, OptionText);

CommandLine& CommandLine::number(const std::string& name, double* value, Range<double> range, OptionText text) {
  return add_number(name, value, range, std::move(text));
}

CommandLine& CommandLine::text(const std::string& name, std::string* value, OptionText text) {
  const auto assign = [value](const std::string& typed) {
    *value = typed;
    return std::string();
  };
  return add({name, "TEXT", std::move(text), {}, assign, [value] { return *value; }});
}

CommandLine& CommandLine::texts(const std::string& name, std::vector<std::string>* values, OptionText text) {
  const auto assign = [values](const std::string& typed) {
    values->push_back(typed);
    return std::string();
  };
  const auto show = [values] { return joined(*values, std::identity(), " "); };
  return add({name, "TEXT", std::move(text), {}, assign, show, true});
}

CommandLine& CommandLine::choice(
    const std::string& name, std::string* value, std::vector<std::string> choices, OptionText text) {
  const std::string allowed = joined(choices);
  text.known = choices;
  const auto assign = [value, allowed, choices](const std::string& typed) {
    if (std::ranges::find(choices, typed) == choices.end())
      return to_text(in_quotes(typed), " given; one of ", allowed, " required");
    *value = typed;
    return std::string();
  };
  return add({name, "NAME", std::move(text), allowed, assign, [value] { return *value; }});
}

CommandLine& CommandLine::flag(const std::string& name, bool* value, OptionText text) {
  const auto assign = [value](const std::string& typed) {
    if (typed != "true") return to_text(in_quotes(typed), " given; no value required");
    *value = true;
    return std::string();
  };
  return add({name, {}, std::move(text), {}, assign, [value] { return std::string(*value ? "true" : "false"); }});
}

CommandLine& CommandLine::example(std::string command, std::string meaning) {
  examples_.emplace_back(std::move(command), std::move(meaning));
  return *this;
}

std::optional<std::string> CommandLine::parse(const std::vector<std::string>& words) {
  const auto asked = std::ranges::find(words, complete);
  if (asked != words.end()) return candidates(words.end() - asked > 2 ? *(words.end() - 2) : "");
  struct Given {
    Option* option;
    std::string value;
    bool apart = false;  // a word of its own, behind that of the option
  };
  std::vector<Given> given_values;
  std::vector<std::string> others;
  bool wants_help = false, wants_all = false, wants_version = false, options_end = false;
  std::string lacks_value;
  for (std::size_t k = 0; k < words.size(); ++k) {
    const std::string& word = words[k];
    const std::size_t equals = word.find('=');
    Option* const option = word.starts_with("--") ? find_in(options_, word.substr(2, equals - 2)) : nullptr;
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
  for (const auto& [option, value, apart] : given_values) read(*option, value, apart);
  return std::nullopt;
}

bool CommandLine::shows_page() {
  const auto page = parse(words_);
  if (page) std::cout << *page;
  return page.has_value();
}

std::string CommandLine::candidates(const std::string& previous) const {
  const Option* const option = previous.starts_with("--") ? find_in(options_, previous.substr(2)) : nullptr;
  if (option && !option->argument_word.empty())
    return joined(
        option->text.known, [](const std::string& name) { return name + '\n'; }, "");
  std::string lines;
  for (const std::string& name : known_names_) lines += name + '\n';
  for (const Option& each : options_) lines += "--" + each.name + '\n';
  return lines + "--help\n--version\n";
}

CommandLine& CommandLine::set_default(const std::string& name, const std::string& value) {
  Option* const option = find_in(options_, name);
  if (!option) throw InputError(in_quotes(name), " given; an option of ", program_, " required");
  assign(*option, value);
  option->text.initial = option->show();
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

void CommandLine::take_names(const std::vector<std::string>& others) const {
  std::vector<std::string> plain;
  for (const std::string& word : others) {
    // An option rather than the value that stands behind it: "--layer 3" leaves both.
    if (word.size() > 1 && word[0] == '-' && word != "--") refuse_unknown(word);
    if (word != "--") plain.push_back(word);
  }
  if (!names_ && !plain.empty())
    throw InputError(in_quotes(plain[0]), ": given without an option; options only required; ", see_help());
  if (names_) *names_ = plain;
}

void CommandLine::refuse_unknown(const std::string& word) const {
  const std::string name = word.substr(0, word.find('='));
  for (const auto& [known, advice] : elsewhere_)
    if (name == known) throw InputError(name, ": given; no option of ", program_, "; ", advice);
  std::vector<std::string> names = {"help", "version"};
  for (const Option& option : options_) names.push_back(option.name);
  const auto meant = nearest_name(name.substr(std::min(name.find_first_not_of('-'), name.size())), names);
  throw InputError(one_line(name), ": unknown option given; a known option required; ",
      meant ? to_text("did you mean --", *meant, "?") : see_help());
}

void CommandLine::read(Option& option, const std::string& value, bool apart) const {
  if (option.given && !option.repeats)
    throw InputError("--", option.name, ": given twice; once required; remove one of them");
  // "--out --layers 3" would take "--layers" for the folder's name; nobody means that.
  if (apart && value.starts_with("--"))
    throw InputError(
        "--", option.name, ": no value given before ", one_line(value), "; one value required; ", see_help());
  assign(option, value);
  option.given = true;
}

void CommandLine::assign(const Option& option, const std::string& value) const {
  const bool lacks_text = option.argument_word == "TEXT" && value.empty();
  const std::string problem = lacks_text ? "\"\" given; some text required" : option.assign(value);
  if (problem.empty()) return;
  std::string advice = option.text.initial.empty() ? see_help() : "the default is " + option.text.initial;
  if (option.argument_word.empty()) advice = "write the option alone";
  if (!option.text.advice.empty()) advice = option.text.advice;
  if (const auto meant = nearest_name(value, option.text.known)) advice = to_text("did you mean ", *meant, "?");
  throw InputError("--", option.name, ": ", problem, "; ", advice);
}

const CommandLine::Option& CommandLine::find(std::string_view name) const {
  if (const Option* const found = find_in(options_, name)) return *found;
  throw Error("command line: --", name, " asked for; a declared option required; declare it first");
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
  if (fs::equivalent(input, output, not_there))
    refuse(name, "another file than the one that is read", "results would take the place of what they were made from");
}

std::vector<std::pair<std::string, std::string>> CommandLine::values() const {
  std::vector<std::pair<std::string, std::string>> list;
  for (const Option& option : options_) list.emplace_back(option.name, option.show());
  return list;
}

std::string CommandLine::describe(const Option& option) const {
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
