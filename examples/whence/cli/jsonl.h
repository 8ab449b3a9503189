// Files of one JSON object a line, as people prepare them for training: read strictly. Lines of blanks alone count, but
// say nothing. Errors are FileError and name file and line: "train.jsonl: line 3: no field 'answer'; ...".
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace whence {

struct JsonlLine {
  struct Fields;
  const std::string& place;  // "train.jsonl: line 3"
  const Fields& fields;      // of an object, no name of which comes twice

  [[nodiscard]] bool has(const std::string& field) const;
  // The text of a field. FileError when it is not there, or no text.
  [[nodiscard]] const std::string& text(const std::string& field) const;
  // The same, and empty where the field is not there.
  [[nodiscard]] std::string text_or_nothing(const std::string& field) const;
  // A list of texts, and a whole number. The same errors.
  [[nodiscard]] std::vector<std::string> texts(const std::string& field) const;
  [[nodiscard]] std::int64_t whole_number(const std::string& field) const;
  // A number; nan where it is null, as programs write what is not finite. And true or false. The same errors.
  [[nodiscard]] double number(const std::string& field) const;
  [[nodiscard]] bool truth(const std::string& field) const;
  [[nodiscard]] std::vector<std::string> names() const;  // of all fields
  // FileError "PLACE: PROBLEM".
  [[noreturn]] void refuse(const std::string& problem) const;
};

// Line after line of `text`, the contents of `path`.
void for_each_line_of_jsonl(
    std::string_view text, const std::string& path, const std::function<void(const JsonlLine&)>& take);

}  // namespace whence
