#include "examples/whence/cli/fields.h"

#include <algorithm>
#include <iostream>
#include <set>
#include <type_traits>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/run_main.h"
#include "examples/whence/cli/text.h"
#include "tensor/error.h"

namespace whence {
namespace {

// Formats a range: "1 to 64", "at least 1", "above 0 and at most 1"; empty if every number is allowed.
template <class Number> std::string range_text(const Range<Number>& range) {
  const bool has_low = std::is_unsigned_v<Number> || range.low > std::numeric_limits<Number>::lowest(),
             has_high = range.high < std::numeric_limits<Number>::max();
  const std::string low = exact(range.low), high = exact(range.high);
  if (has_low && has_high && !range.above_low && !range.below_high) return low + " to " + high;
  return (has_low ? (range.above_low ? "above " : "at least ") + low : "") + (has_low && has_high ? " and " : "") +
         (has_high ? (range.below_high ? "below " : "at most ") + high : "");
}

// Breaks `text` into lines of at most 80 columns, the later lines behind `indent` blanks.
std::string indented(const std::string& text, std::size_t indent) {
  return joined(wrapped(text, 80 - indent), std::identity(), '\n' + std::string(indent, ' '));
}

// Formats one entry of the page: the option on the left, its description on the right.
std::string entry(const std::string& left, const std::string& right) {
  const std::string blanks = left.size() > 20 ? '\n' + std::string(24, ' ') : std::string(22 - left.size(), ' ');
  return "  " + left + blanks + indented(right, 24) + '\n';
}

}  // namespace

Fields& Fields::add(Option option) {
  if (option.name == "help" || option.name == "version" || has(option.name))
    throw Error("command line: --", option.name, " declared twice; one declaration required; rename one of them");
  option.heading = heading_;
  if (option.text.initial.empty()) option.text.initial = option.show();
  options_.push_back(std::move(option));
  return *this;
}

template <class Number>
Fields& Fields::integer(const std::string& name, Number* value, Range<Number> range, OptionText text) {
  constexpr bool whole = std::is_integral_v<Number>;
  const std::string allowed = range_text(range);
  const auto assign = [=](const std::string& typed) {
    const std::optional<Number> number = parse_number<Number>(typed);
    if (!number)
      return to_text(in_quotes(typed), " given; a ", whole ? "whole" : "finite", " number",
          allowed.empty() ? "" : ", " + allowed + ",", " required");
    if (*number < range.low || *number > range.high || (range.above_low && *number == range.low) ||
        (range.below_high && *number == range.high))
      return to_text(typed, " given; ", allowed, " required");
    return *value = *number, std::string();
  };
  return add({name, whole ? "N" : "X", std::move(text), allowed, assign, [value] { return exact(*value); }});
}

template Fields& Fields::integer(const std::string&, int*, Range<int>, OptionText);
template Fields& Fields::integer(const std::string&, std::int64_t*, Range<std::int64_t>, OptionText);
template Fields& Fields::integer(const std::string&, std::uint64_t*, Range<std::uint64_t>, OptionText);
template Fields& Fields::integer(const std::string&, double*, Range<double>, OptionText);

Fields& Fields::choice(const std::string& name, std::string* value, Names choices, OptionText text) {
  const bool any = choices.empty();
  const std::string allowed = joined(choices), required = any ? "some text" : "one of " + allowed;
  if (!any) text.known = choices;
  const auto assign = [=](const std::string& typed) {
    if (any ? typed.empty() : std::ranges::count(choices, typed) == 0)
      return to_text(in_quotes(typed), " given; ", required, " required");
    return *value = typed, std::string();
  };
  return add({name, any ? "TEXT" : "NAME", std::move(text), allowed, assign, [value] { return *value; }});
}

Fields& Fields::flag(const std::string& name, bool* value, OptionText text) {
  const auto assign = [value](const std::string& typed) {
    if (typed != "true" && typed != "false")
      return to_text(in_quotes(typed), " given; no value, or true or false, required");
    return *value = typed == "true", std::string();
  };
  return add({name, {}, std::move(text), {}, assign, [value] { return *value ? "true" : "false"; }});
}

Fields& Fields::set_default(const std::string& name, const std::string& value) {
  Option& option = assign(name, value);
  option.text.initial = option.show();
  return *this;
}

void Fields::set(const std::string& name, const std::string& value) { assign(name, value).given = true; }

Fields::Option& Fields::assign(const std::string& name, const std::string& value) {
  if (!has(name)) refuse_unknown("--" + name);
  Option& option = *std::ranges::find(options_, name, &Option::name);
  const std::string problem = option.assign(value);
  if (problem.empty()) return option;
  std::string advice = option.text.initial.empty() ? see_help() : "the default is " + option.text.initial;
  if (option.argument_word.empty()) advice = "write the option alone";
  if (!option.text.advice.empty()) advice = option.text.advice;
  if (const auto meant = nearest_name(value, option.text.known)) advice = to_text("did you mean ", *meant, "?");
  throw InputError("--", name, ": ", problem, "; ", advice);
}

void Fields::add_names(const Names& names) {
  if (!names_ && !names.empty())
    throw InputError(in_quotes(names[0]), ": given without an option; options only required; ", see_help());
  if (names_) names_->insert(names_->begin(), names.begin(), names.end());
}

const Fields::Option* Fields::find(std::string_view name) const {
  const auto found = std::ranges::find(options_, name, &Option::name);
  return found == options_.end() ? nullptr : &*found;
}

const Fields::Option& Fields::declared(std::string_view name) const {
  if (const Option* const found = find(name)) return *found;
  throw Error("command line: --", name, " requested; a declared option required; declare it first");
}

void Fields::refuse_unknown(const std::string& name) const {
  Names names = {"help", "version"};
  for (const Option& option : options_) names.push_back(option.name);
  const auto meant = nearest_name(name.substr(std::min(name.find_first_not_of('-'), name.size())), names);
  throw InputError(one_line(name), ": unknown option given; a known option required; ",
      meant ? to_text("did you mean --", *meant, "?") : see_help());
}

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

Fields::Pairs Fields::values() const {
  Pairs list;
  for (const Option& option : options_) list.emplace_back(option.name, option.show());
  return list;
}

// ---- The command line

std::optional<std::string> CommandLine::parse(const Names& words) {
  const auto end = std::ranges::find(words, "--");
  for (auto word = words.begin(); word != end; ++word)
    if (*word == "-h" || *word == "--help") return help(word + 1 != words.end() && word[1] == "all");
  if (std::find(words.begin(), end, "--version") != end) return program_ + " " WHENCE_VERSION "\n";
  Names names;
  std::set<std::string> typed;
  for (auto word = words.begin(); word != end; ++word) {
    const std::size_t equals = word->find('=');
    const std::string name = word->substr(0, equals);
    if (!name.starts_with('-') || name == "-") {
      names.push_back(*word);
      continue;
    }
    const Option* const option = name.starts_with("--") ? find(name.substr(2)) : nullptr;
    if (!option) refuse_unknown(name);
    if (!typed.insert(name).second) throw InputError(name, ": given twice; once required; remove one of them");
    std::string value = equals == word->npos ? "true" : word->substr(equals + 1);
    if (equals == word->npos && !option->argument_word.empty()) {
      // "--out --layers 3" would take "--layers" as the folder's name, which nobody means.
      const bool last = word + 1 == words.end();
      if (last || word[1].starts_with("--"))
        throw InputError(
            name, ": no value given", last ? "" : " before " + one_line(word[1]), "; one value required; ", see_help());
      value = *++word;
    }
    set(option->name, value);
  }
  names.insert(names.end(), end + (end != words.end()), words.end());
  add_names(names);
  return std::nullopt;
}

bool CommandLine::shows_page() {
  const auto page = parse(words_);
  return page && (std::cout << *page, true);
}

std::string CommandLine::help(bool all) const {
  std::string page = indented(program_ + ": " + purpose_, 2) + "\n\nUsage: " + program_ +
                     (names_ ? " " + names_word_ : "") + " [options]\n";
  if (names_) page += "\n" + entry(names_word_, names_help_);
  std::string current;
  int left_out = 0;
  for (const Option& option : options_) {
    if (!all && !everyday_.empty() && std::ranges::count(everyday_, option.name) == 0 && ++left_out > 0) continue;
    if (option.heading != current) page += "\n" + (current = option.heading) + ":\n";
    const auto& [help, unit, advice, initial, known] = option.text;
    const std::string &word = option.argument_word, &range = option.allowed;
    const std::string value = word.empty() ? "off" : initial;  // a flag is off
    page += entry("--" + option.name + (word.empty() ? "" : " " + word),
        to_text(help, " (", range, range.empty() || unit.empty() ? "" : " ", unit,
            range.empty() && unit.empty() ? "" : "; ", value.empty() ? "no default" : "default " + value, ")"));
  }
  page += "\nAbout:\n" + entry("-h, --help", "print this page");
  if (left_out > 0) page += entry("--help all", to_text("the same with ", left_out, " options more"));
  page += entry("--version", "print the version");
  if (!examples_.empty()) page += "\nExamples:\n";
  for (const auto& [command, meaning] : examples_) page += "  " + command + "\n      " + indented(meaning, 6) + "\n";
  return page + "\n" + exit_codes_text();
}

}  // namespace whence
