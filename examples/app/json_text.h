// What is looked at before a text is given to the JSON library, which takes a NUL for the end and nests without a bound.
#pragma once

#include <string>
#include <string_view>

namespace whence {

// FileError "PLACE: ..." where the text holds a NUL, or arrays and objects more than 64 deep.
void refuse_strange_json(std::string_view text, const std::string& place);

}  // namespace whence
