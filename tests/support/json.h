// JSON, read by others' code. Compiled once, in programs.cpp: each file that uses it would do that in seconds.
#pragma once

#include <nlohmann/json.hpp>
#include "tests/support/programs.h"

extern template class nlohmann::detail::serializer<nlohmann::json>;

namespace whence::test {

nlohmann::json json_of(const std::string& text);
std::vector<nlohmann::json> json_lines(const std::string& text);

}  // namespace whence::test
