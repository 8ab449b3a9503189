#include "examples/whence/cli/fields.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <type_traits>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "tensor/error.h"

namespace whence {
namespace {

template <class Number> std::string value_text(Number value) {
  if constexpr (std::is_floating_point_v<Number>)
    return exact(value);
  else
    return std::to_string(value);
}

// Formats a range: "1 to 64", "at least 1", "above 0 and at most 1"; empty if every number is allowed.
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

// Returns the option of that name, or nullptr.
template <class Options> auto* find_in(Options& options, std::string_view name) {
  const auto found = std::ranges::find(options, name, [](const auto& option) { return std::string_view(option.name); });
  return found == options.end() ? nullptr : &*found;
}

}  // namespace

Fields& Fields::heading(std::string title) {
  heading_ = std::move(title);
  return *this;
}

Fields& Fields::add(Option option) {
  if (option.name == "help" || option.name == "version" || find_in(options_, option.name))
    throw Error("command line: --", option.name, " declared twice; one declaration required; rename one of them");
  option.heading = heading_;
  if (option.text.initial.empty()) option.text.initial = option.show();
  options_.push_back(std::move(option));
  return *this;
}

template <class Number>
Fields& Fields::add_number(const std::string& name, Number* value, const Range<Number>& range, OptionText text) {
  const auto assign = [value, range](const std::string& typed) { return read_number(typed, range, value); };
  const char* const word = std::is_integral_v<Number> ? "N" : "X";
  return add({name, word, std::move(text), range_text(range), assign, [value] { return value_text(*value); }});
}

template <class Integer>
Fields& Fields::integer(const std::string& name, Integer* value, Range<Integer> range, OptionText text) {
  return add_number(name, value, range, std::move(text));
}

template Fields& Fields::integer(const std::string&, int*, Range<int>, OptionText);
template Fields& Fields::integer(const std::string&, std::int64_t*, Range<std::int64_t>, OptionText);
template Fields& Fields::integer(const std::string&, std::uint64_t*, Range<std::uint64_t>, OptionText);

Fields& Fields::number(const std::string& name, double* value, Range<double> range, OptionText text) {
  return add_number(name, value, range, std::move(text));
}

Fields& Fields::text(const std::string& name, std::string* value, OptionText text) {
  const auto assign = [value](const std::string& typed) {
    *value = typed;
    return std::string();
  };
  return add({name, "TEXT", std::move(text), {}, assign, [value] { return *value; }});
}

Fields& Fields::choice(const std::string& name, std::string* value, std::vector<std::string> choices, OptionText text) {
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

Fields& Fields::flag(const std::string& name, bool* value, OptionText text) {
  const auto assign = [value](const std::string& typed) {
    if (typed != "true" && typed != "false")
      return to_text(in_quotes(typed), " given; no value, or true or false, required");
    *value = typed == "true";
    return std::string();
  };
  return add({name, {}, std::move(text), {}, assign, [value] { return std::string(*value ? "true" : "false"); }});
}

Fields& Fields::names(std::string word, std::vector<std::string>* values, std::string help) {
  names_word_ = std::move(word), names_help_ = std::move(help), names_ = values;
  return *this;
}

Fields& Fields::elsewhere(std::string name, std::string advice) {
  elsewhere_.emplace_back("--" + std::move(name), std::move(advice));
  return *this;
}

Fields& Fields::example(std::string command, std::string meaning) {
  examples_.emplace_back(std::move(command), std::move(meaning));
  return *this;
}

Fields& Fields::everyday(std::vector<std::string> names) {
  everyday_ = std::move(names);
  return *this;
}

Fields& Fields::set_default(const std::string& name, const std::string& value) {
  Option* const option = find_option(name);
  if (!option) throw InputError(in_quotes(name), " given; an option of ", program_, " required");
  assign(*option, value);
  option->text.initial = option->show();
  return *this;
}

void Fields::set(const std::string& name, const std::string& value) {
  Option* const option = find_option(name);
  if (!option) refuse_unknown("--" + name);
  assign(*option, value);
  option->given = true;
}

void Fields::add_names(const std::vector<std::string>& names) {
  if (!names_ && !names.empty())
    throw InputError(in_quotes(names[0]), ": given without an option; options only required; ", see_help());
  if (names_) names_->insert(names_->begin(), names.begin(), names.end());
}

Fields::Option* Fields::find_option(std::string_view name) { return find_in(options_, name); }

bool Fields::has(std::string_view name) const { return find_in(options_, name); }

void Fields::refuse_unknown(const std::string& name) const {
  for (const auto& [known, advice] : elsewhere_)
    if (name == known) throw InputError(name, ": given; no option of ", program_, "; ", advice);
  std::vector<std::string> names = {"help", "version"};
  for (const Option& option : options_) names.push_back(option.name);
  const auto meant = nearest_name(name.substr(std::min(name.find_first_not_of('-'), name.size())), names);
  throw InputError(one_line(name), ": unknown option given; a known option required; ",
      meant ? to_text("did you mean --", *meant, "?") : see_help());
}

void Fields::assign(const Option& option, const std::string& value) const {
  const bool lacks_text = option.argument_word == "TEXT" && value.empty();
  const std::string problem = lacks_text ? "\"\" given; some text required" : option.assign(value);
  if (problem.empty()) return;
  std::string advice = option.text.initial.empty() ? see_help() : "the default is " + option.text.initial;
  if (option.argument_word.empty()) advice = "write the option alone";
  if (!option.text.advice.empty()) advice = option.text.advice;
  if (const auto meant = nearest_name(value, option.text.known)) advice = to_text("did you mean ", *meant, "?");
  throw InputError("--", option.name, ": ", problem, "; ", advice);
}

const Fields::Option& Fields::declared(std::string_view name) const {
  if (const Option* const found = find_in(options_, name)) return *found;
  throw Error("command line: --", name, " requested; a declared option required; declare it first");
}

bool Fields::given(std::string_view name) const { return declared(name).given; }

void Fields::refuse_unless(std::string_view name, bool has_effect, const std::string& required) const {
  const Option& option = declared(name);
  if (!option.given || has_effect) return;
  throw InputError("--", name, ": ", one_line(option.show()), " given; it has no effect ",
      required.starts_with("beside ") ? "" : "without ", required, "; leave it out");
}

void Fields::refuse(std::string_view name, const std::string& required, const std::string& advice) const {
  const std::string shown = one_line(declared(name).show());
  throw InputError("--", name, ": ", shown.empty() ? "nothing" : shown, " given; ", required, " required; ", advice);
}

void Fields::refuse_onto(std::string_view name, const std::string& input) const {
  namespace fs = std::filesystem;
  const std::string output = declared(name).show();
  std::error_code not_there;
  if (output.empty() || input.empty()) return;
  if (fs::equivalent(input, output, not_there))
    refuse(name, "another file than the one that is read", "results would take the place of what they were made from");
}

std::vector<std::pair<std::string, std::string>> Fields::values() const {
  std::vector<std::pair<std::string, std::string>> list;
  for (const Option& option : options_) list.emplace_back(option.name, option.show());
  return list;
}

}  // namespace whence
