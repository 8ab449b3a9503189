// JSON, read by a third-party library. It is compiled once, in programs.cpp, because it takes seconds.
#pragma once

#include <nlohmann/json.hpp>
#include "tests/support/programs.h"

extern template class nlohmann::detail::serializer<nlohmann::json>;

namespace whence::test {

nlohmann::json json_of(const std::string& text);
std::vector<nlohmann::json> json_lines(const std::string& text);

}  // namespace whence::test
