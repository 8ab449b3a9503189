#include "examples/whence/language/documents.h"

#include <algorithm>
#include <numeric>

#include "examples/whence/cli/interrupt.h"
#include "tensor/random.h"

namespace whence::language {

std::vector<std::string_view> documents_of(std::string_view file, std::int64_t blank_lines) {
  std::vector<std::string_view> documents;
  std::size_t begin = 0;
  std::int64_t blanks = 0;
  bool text_seen = false;
  for (std::size_t line = 0; line < file.size() && blank_lines > 0;) {
    stop_if_interrupted("cutting text");
    const std::size_t newline = file.find('\n', line),
                      end = newline == std::string_view::npos ? file.size() : newline + 1;
    if (file.substr(line, end - line).find_first_not_of(" \t\r\n") == std::string_view::npos) {
      ++blanks;
    } else {
      if (blanks >= blank_lines && text_seen) {
        documents.push_back(file.substr(begin, line - begin));
        begin = line;
      }
      blanks = 0;
      text_seen = true;
    }
    line = end;
  }
  if (begin < file.size()) documents.push_back(file.substr(begin));
  return documents;
}

std::vector<bool> validation_documents(
    const std::vector<std::string_view>& documents, double share, std::uint64_t seed) {
  const Stream stream(seed, "validation documents");
  std::vector<std::size_t> order(documents.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto draw = [&stream](std::size_t i) { return stream.uniform53(i); };
  std::sort(order.begin(), order.end(),
      [&](std::size_t a, std::size_t b) { return std::pair(draw(a), a) < std::pair(draw(b), b); });
  double wanted = 0;
  for (const std::string_view each : documents) wanted += share * static_cast<double>(each.size());
  std::vector<bool> chosen(documents.size(), false);
  for (std::size_t i = 0; i + 1 < order.size() && wanted > 0; ++i) {
    chosen[order[i]] = true;
    wanted -= static_cast<double>(documents[order[i]].size());
  }
  return chosen;
}

}  // namespace whence::language
