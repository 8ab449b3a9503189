// Files of one JSON object a line, as people prepare them for training: read strictly. Lines of blanks alone count, but
// say nothing. Errors are InputError and name file and line: "train.jsonl: line 3: no field 'answer'; ...".
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace whence {

struct JsonlLine {
  const std::string& place;      // "train.jsonl: line 3"
  const nlohmann::json& fields;  // an object, no name of which comes twice

  // The text of a field. InputError when it is not there, or no text.
  [[nodiscard]] const std::string& text(const std::string& field) const;
  // The same, and empty where the field is not there.
  [[nodiscard]] std::string text_or_nothing(const std::string& field) const;
  // InputError "PLACE: PROBLEM".
  [[noreturn]] void refuse(const std::string& problem) const;
};

// Line after line of `text`, the contents of `path`.
void for_each_line_of_jsonl(
    std::string_view text, const std::string& path, const std::function<void(const JsonlLine&)>& take);

}  // namespace whence
