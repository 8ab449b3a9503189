#include "examples/whence/cli/json_text.h"

#include <nlohmann/json.hpp>

#include "tensor/error.h"

namespace whence {
namespace {

// Line ends are layout: inside of a JSON string they are escaped.
std::string further_in(std::string text) {
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1))
    text.insert(at + 1, "  ");
  return text;
}

std::string between(char open, const std::vector<std::string>& members, char close, JsonLayout layout) {
  const bool page = layout == JsonLayout::page && !members.empty();
  std::string text(1, open);
  for (const std::string& member : members) {
    if (&member != &members.front()) text += ',';
    text += page ? "\n  " + further_in(member) : member;
  }
  if (page) text += '\n';
  return text + close;
}

}  // namespace

void require_json_text(const std::string& place, std::string_view text) {
  constexpr int deepest = 64;
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos)
    throw FileError(place, ": holds a NUL at byte ", at, "; JSON text required; is the file damaged?");
  int depth = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string && c == '\\')
      ++at;
    else if (c == '"')
      in_string = !in_string;
    else if (!in_string && (c == ']' || c == '}'))
      --depth;
    else if (!in_string && (c == '[' || c == '{') && ++depth > deepest)
      throw FileError(place, ": nests deeper at byte ", at, "; JSON of at most ", deepest, " levels required");
  }
}

std::string json_string(std::string_view text, BrokenUtf8 broken) {
  using Handler = nlohmann::json::error_handler_t;
  return nlohmann::json(text).dump(-1, ' ', false, broken == BrokenUtf8::refused ? Handler::strict : Handler::replace);
}

std::string json_number(double value) { return nlohmann::json(value).dump(); }

std::string json_truth(bool value) { return value ? "true" : "false"; }

std::string json_object(const JsonFields& fields, JsonLayout layout, BrokenUtf8 broken) {
  std::vector<std::string> members;
  for (const auto& [name, value] : fields)
    members.push_back(json_string(name, broken) + (layout == JsonLayout::page ? ": " : ":") + value);
  return between('{', members, '}', layout);
}

std::string json_array(const std::vector<std::string>& values, JsonLayout layout) {
  return between('[', values, ']', layout);
}

}  // namespace whence
