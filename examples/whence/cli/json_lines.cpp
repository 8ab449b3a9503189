#include "examples/whence/cli/json_lines.h"

#include <algorithm>

#include "tensor/error.h"

namespace whence {

void for_each_json_line(std::string_view text, const std::string& path, const std::function<void(const Json&)>& take) {
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") != line.npos) take(Json::read(line, to_text(path, ": line ", number)));
  }
}

}  // namespace whence
