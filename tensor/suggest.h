// Names in errors: lists of known names, and the one nearest to an unknown one ("did you mean").
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/error.h"

namespace whence {

// Counts the insertions, deletions, substitutions and swaps of neighbours that turn one name into the other.
[[nodiscard]] std::size_t edit_distance(std::string_view from, std::string_view to);

// Returns the candidate that `name` was probably meant to be: one that begins with it, or one within two edits or a
// third of its length. Case does not count: "CoPE" means "cope".
[[nodiscard]] std::optional<std::string> nearest_name(
    std::string_view name, const std::vector<std::string>& candidates);

// Returns "rope, cope": part(item) of each item, where `part` is a member or a function.
template <class Items, class Projection = std::identity>
[[nodiscard]] std::string joined(const Items& items, const Projection& part = {}, std::string_view separator = ", ") {
  std::string text;
  for (const auto& item : items) text += to_text(text.empty() ? "" : separator, std::invoke(part, item));
  return text;
}

// Returns the first five, and how many more there are.
[[nodiscard]] std::string first_few(const std::vector<std::string>& texts, const char* separator);

// Throws InputError "model: 'gpt2-124' given; one of gpt2-124m, neox-350m required; did you mean 'gpt2-124m'?"
[[noreturn]] void refuse_name(const char* what, const std::string& given, const std::vector<std::string>& known);

// Returns the choice whose to_string is `given`. Else throws InputError "schedule: 'cosin' given; constant, linear or
// cosine required".
template <class Choice>
Choice chosen(const char* what, const std::string& given, std::initializer_list<Choice> choices) {
  std::string known;
  for (const Choice& choice : choices) {
    const std::string name(to_string(choice));
    if (given == name) return choice;
    known += (known.empty() ? "" : &choice + 1 == choices.end() ? " or " : ", ") + name;
  }
  throw InputError(what, ": '", given, "' given; ", known, " required");
}

// True if `name` matches the pattern, in which '*' is any run of characters.
bool matches(const std::string& pattern, const std::string& name);

}  // namespace whence
